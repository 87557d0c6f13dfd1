"""Incidents of performance: a risen loss of the judged version."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, func, select

from outrider.dataops.ledger.minutes import DAY_US
from outrider.dataops.state.improvement_tables import ChampionChange
from outrider.dataops.state.tables import Incident, table_of

from .explanation import action, cause_json, event_json, event_near, iso, us_of
from .incident_writer import UNMUTED, IncidentWriter, is_unmuted
from .loss_alarms import LOSS, LossAlarm, LossHistory, loss_alarms, loss_causes, why_recovered
from .loss_evidence import arrived, confusions, is_risen, other_incidents, wrong_records
from .minute_counts import ALL
from .model_events import REVISION
from .rate_alarms import Cause, RateAlarm
from .stored_incidents import PERSON
from .version_losses import (
    LABEL,
    BlockLosses,
    former_version,
    judged_version,
    newest_block,
    read_losses,
)

PERFORMANCE = "performance"
_NEWEST = 4
"""Blocks that decide whether the version before was better when replaced."""
_INCIDENT, _CHANGE = table_of(Incident), table_of(ChampionChange)


@dataclass(slots=True)
class PerformanceIncidents:
    """Incidents of a risen loss, resolved once the loss recovers or another version is judged."""

    writer: IncidentWriter
    _seen: tuple[int, int] | None = field(default=None, init=False)

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == PERFORMANCE)

    def follow_minute(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        newest = newest_block(connection, self.writer.model)
        if newest is None or (newest == self._seen and not rows):
            return
        self._seen = newest
        version = judged_version(connection, self.writer.model, self.writer.version)
        losses = None if version is None else read_losses(connection, self.writer.model, version)
        standing: set[str] = set()
        for row in rows:
            if is_unmuted(row, now_us):
                self.writer.resolve(connection, row, now_us, why=UNMUTED)
            elif row.status != "muted" and (why := self._over(connection, row, losses, now_us)):
                self.writer.resolve(connection, row, now_us, why=why)
            else:
                standing.add(row.slice or ALL)
        if losses is None or _changed_us(connection, self.writer.model) > losses.newest_us.max():
            return  # late labels of a version that is champion no more
        history = self._history(connection, losses)
        if history is None:
            return
        found = loss_alarms(history, self.writer.rule, standing=standing)
        if found:
            self._open(connection, history, found[0], standing, now_us)

    def _over(self, connection: Connection, row: Row[Any], losses: BlockLosses | None, now_us: int) -> str:
        if losses is None or losses.version != row.details["version"]:
            return f"version {row.details['version']} is judged no more"
        if _changed_us(connection, self.writer.model) > row.opened_us:
            return "another version became champion"
        if losses.ended_us[-1] < now_us - self.writer.rule.horizon_s * 1e6:
            return f"no labels came for {self.writer.rule.horizon_s:g} s"
        if bound := row.details.get("error_bound"):
            told = read_losses(connection, self.writer.model, losses.version, bound=bound)
            losses = told or losses
        before, now = row.details["before"], row.details["now"]
        most = max(before["share"], before["high"])
        if why := why_recovered(
            losses, row.slice or ALL, before["share"], now["share"], most=most, since_us=row.opened_us
        ):
            return why
        at = int(np.searchsorted(losses.begun_us, us_of(row.details["labels"]["since"])))
        if self._stands(connection, losses, row.slice, at):
            return ""
        return "labels were corrected: by those that count now, the loss has not risen"

    def _stands(self, connection: Connection, losses: BlockLosses, part: str, block: int) -> bool:
        """True where the current labels do not refute a rise; they say nothing of numbers or of
        labels chosen with unequal chances."""
        if losses.bound is not None or len(losses.weight) > 1:
            return True
        onset_us = int(losses.newest_us[min(block, len(losses.newest_us) - 1)])
        return is_risen(connection, self.writer.model, losses.version, part, onset_us)

    def _history(self, connection: Connection, losses: BlockLosses) -> LossHistory | None:
        """Losses that are usual; what a person resolved is a new normal."""
        since, left_out = self._ended(connection, losses.version)
        begin = int(losses.begun_us[0])
        former = None
        name = former_version(connection, losses, self.writer.model)
        if name is not None and since <= begin:
            former = read_losses(connection, self.writer.model, name)
        if former is not None:
            former = former.where(former.ended_us <= begin)
            former = former if len(former.number) else None
        if former is not None and former.bound is not None:  # large errors are those of the version before
            told = read_losses(connection, self.writer.model, losses.version, bound=former.bound)
            losses = told or losses
        kept = losses.begun_us >= since
        for first, last in left_out:
            kept &= (losses.begun_us < first) | (losses.begun_us >= last)
        return LossHistory(losses.where(kept), former) if kept.any() else None

    def _ended(self, connection: Connection, version: str) -> tuple[int, list[tuple[int, int]]]:
        """Time since which labels count, and the excluded times of earlier incidents."""
        since, left_out = 0, []
        own = _INCIDENT.c.model == self.writer.model, _INCIDENT.c.kind == PERFORMANCE
        columns = _INCIDENT.c.details, _INCIDENT.c.resolved_us, _INCIDENT.c.note
        ended = select(*columns).where(*own, _INCIDENT.c.resolved_us > 0)
        for details, resolved_us, note in connection.execute(ended):
            if details["version"] != version or note.endswith(UNMUTED):
                continue
            if details.get("ended_by") == PERSON:
                since = max(since, resolved_us)
            else:
                left_out.append((us_of(details["labels"]["since"]), resolved_us))
        return since, left_out

    def _open(
        self, connection: Connection, history: LossHistory, alarm: LossAlarm, standing: set[str], now_us: int
    ) -> None:
        told = loss_causes(history, alarm, self.writer.rule)
        first = told[0]
        part = "" if first.slice == ALL else first.slice
        own = history.own
        stands = self._stands(connection, own, part, alarm.block)
        if first.slice in standing or not stands:
            return
        details = self._details(connection, history, alarm, told)
        ids: list[str] = details["records"]
        made = self.writer.new(
            LOSS, PERFORMANCE, "warning", now_us, part=part, flags=first.now.hits,
            record=ids[0] if ids else "", note=_sentence(details), details=details,
        )  # fmt: skip
        self.writer.open(connection, made)

    def _details(
        self, connection: Connection, history: LossHistory, alarm: LossAlarm, told: Sequence[Cause]
    ) -> dict[str, Any]:
        model, own, first = self.writer.model, history.own, told[0]
        part = "" if first.slice == ALL else first.slice
        onset = _onset(own, alarm)
        times = [us_of(onset[name]) for name in ("first", "likeliest", "last")]
        place = RateAlarm(LOSS, first.slice, alarm.evidence, times[1], times[0], times[2])
        event = event_near(connection, model, place, left_out=(REVISION,))
        causes = cause_json(told)
        is_first = alarm.block == 0 and history.former is not None
        confused = [] if own.bound is not None else confusions(connection, model, own.version, part, times[1])
        return {
            "onset": onset,
            "before": causes[0]["before"],
            "now": causes[0]["now"],
            "explained_by": causes,
            "confused": confused,
            "labels": arrived(connection, model, own.version, times[1])
            | {
                "since": iso(int(own.begun_us[alarm.block])),
                "observations": int(own.seen[:, alarm.block :].sum()),
            },
            "error_bound": own.bound,
            "also": other_incidents(connection, model, times[0] - DAY_US, times[2] + DAY_US),
            "version": own.version,
            "former": history.former.version if is_first and history.former is not None else None,
            "event": event_json(event),
            "records": wrong_records(connection, model, own, part),
            "action": "roll_back"
            if (is_first or action(event) == "roll_back") and self._was_better(history, first)
            else "retrain",
            "guarantee": {
                "alpha": self.writer.rule.alpha,
                "horizon_s": self.writer.rule.horizon_s,
                "days": len(np.unique(own.day)),
            },
        }

    def _was_better(self, history: LossHistory, cause: Cause) -> bool:
        """True where the version before lost less in its newest blocks than this one does now."""
        if history.former is None:
            return False
        lost, seen = (side[-_NEWEST:] for side in history.former.of(ALL).effective)
        return bool(seen.sum() and lost.sum() / seen.sum() + self.writer.rule.loss_points <= cause.now.share)


def _changed_us(connection: Connection, model: str) -> int:
    own = _CHANGE.c.model == model, _CHANGE.c.action != "registered"
    newest: int | None = connection.scalar(select(func.max(_CHANGE.c.at_us)).where(*own))
    return newest or 0


def _onset(own: BlockLosses, alarm: LossAlarm) -> dict[str, str]:
    places = np.clip([alarm.first, alarm.block, alarm.last + 1], 0, len(own.record_us) - 1)
    first, likeliest, last = (int(own.record_us[at]) for at in places)
    return {
        "first": iso(min(first, likeliest)),
        "likeliest": iso(likeliest),
        "last": iso(max(last, likeliest) + int(timedelta(minutes=1).total_seconds() * 1e6)),
    }


def _sentence(details: dict[str, Any]) -> str:
    part = details["explained_by"][0]["slice"]
    where = f"records of {part}" if part.startswith(LABEL) else f"slice {part}" if part else "all records"
    before, now = details["before"]["share"], details["now"]["share"]
    what = "wrong" if details["error_bound"] is None else "far off"
    return (
        f"version {details['version']} on {where}: {before:.1%} of labelled observations {what} before, "
        f"{now:.1%} since {details['onset']['likeliest']}"
    )
