"""Silence of assertions that judged and do so no more."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, func, select

from outrider.dataops.flags.registered_assertions import note_judged
from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.backfill import SLOT as BACKFILL
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.minutes import DAY_US, minute_of
from outrider.dataops.state.tables import AssertionRow, Strike, table_of

from .explanation import event_json, iso, page
from .incident_writer import UNMUTED, IncidentWriter, is_unmuted
from .model_events import ModelEvent, nearest_event
from .silence import SILENT

ASSERTION = "assertion"
_LEAST_FAILURES = 3
_COLUMN = re.compile(r"no column '([^'\n]+)'")
_ERROR = re.compile(r"(?:^|\n)(?:[\w.]+\.)?(\w+)(?::[^\n]*)?\s*$")
_ASSERTIONS, _STRIKE = table_of(AssertionRow), table_of(Strike)


@dataclass(slots=True)
class JudgedNotes:
    _minutes: dict[str, int] = field(default_factory=dict)

    def note(self, connection: Connection, effects: Effects, *, now_us: int) -> None:
        if effects.slot == BACKFILL:
            return
        minute = minute_of(now_us)
        fresh = [name for name in effects.ran if self._minutes.get(name) != minute]
        if fresh:
            note_judged(connection, effects.model, fresh, at_us=now_us)
            self._minutes |= dict.fromkeys(fresh, minute)
        for name in effects.strikes["assertion"]:  # a verdict behind it is noted at once
            self._minutes.pop(name, None)


@dataclass(frozen=True, slots=True)
class SilentAssertion:
    name: str
    judged_us: int
    first_us: int
    failures: int
    reason: str
    detail: str

    @property
    def column(self) -> str | None:
        """Column that is gone; None for another fault."""
        found = _COLUMN.search(self.detail)
        return None if found is None else found[1]

    @property
    def fault(self) -> str:
        """Fault without the values of records that an error may quote."""
        if self.column is not None:
            return f"column {self.column} is gone"
        error = _ERROR.search(self.detail) if self.reason == "raised" else None
        return self.reason.replace("_", " ") + (f" {error[1]}" if error else "")

    @property
    def sentence(self) -> str:
        return (
            f"{self.name} has given no verdict since {iso(self.judged_us)}: it failed on {self.failures} "
            f"blocks, {self.fault}"
        )

    def details(self, model: str, event: ModelEvent | None) -> dict[str, Any]:
        first = iso(self.first_us)
        return {
            "silent": ASSERTION,
            "onset": {"first": iso(self.judged_us), "likeliest": first, "last": first},
            "before": {"share": 1.0}, "now": {"share": 0.0, "seen": self.failures},
            "explained_by": [], "reason": self.fault, "column": self.column,
            "event": event_json(event), "records": [],
            "action": "mend_assertion" if self.column is None else "check_sender",
            "page": page(model, self.name), "guarantee": None,
        }  # fmt: skip


@dataclass(slots=True)
class AssertionSilenceIncidents:
    """Incidents of assertions that stopped judging, resolved by the next verdict."""

    writer: IncidentWriter

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == SILENT and row.details.get("silent") == ASSERTION)

    def follow_minute(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        judged = self._judged(connection, now_us)
        standing = set()
        for row in rows:
            if row.assertion not in judged:
                self.writer.resolve(connection, row, now_us, why=f"nobody expects {row.assertion} to judge")
            elif judged[row.assertion] > row.opened_us:
                self.writer.resolve(connection, row, now_us, why=f"{row.assertion} judges again")
            elif is_unmuted(row, now_us):
                self.writer.resolve(connection, row, now_us, why=UNMUTED)
            else:
                standing.add(row.assertion)
        for one in self._silent(connection, judged, now_us):
            if one.name not in standing:
                made = self.writer.new(
                    one.name, SILENT, "warning", now_us, flags=one.failures, note=one.sentence,
                    details=one.details(self.writer.model, self._event(connection, one)),
                )  # fmt: skip
                self.writer.open(connection, made)

    def _event(self, connection: Connection, one: SilentAssertion) -> ModelEvent | None:
        """Event between a day before the last verdict and the first failure, nearest to the failure."""
        since_us = one.judged_us - DAY_US
        return nearest_event(
            connection, self.writer.model, since_us=since_us, until_us=one.first_us, onset_us=one.first_us
        )

    def _judged(self, connection: Connection, now_us: int) -> dict[str, int]:
        """Last verdict of each active assertion over all revisions; 0 for none."""
        own = _ASSERTIONS.c.model == self.writer.model, _ASSERTIONS.c.kind == "assertion"
        last = select(_ASSERTIONS.c.name, func.max(_ASSERTIONS.c.judged_us)).where(*own)
        judged = dict(map(tuple, connection.execute(last.group_by(_ASSERTIONS.c.name))))
        is_rested = (_ASSERTIONS.c.suspension != "") & (_ASSERTIONS.c.suspended_until_us > now_us)
        asked = select(_ASSERTIONS.c.name).where(*own, _ASSERTIONS.c.active, ~is_rested)
        return {name: judged[name] for name in connection.scalars(asked)}

    def _silent(
        self, connection: Connection, judged: Mapping[str, int], now_us: int
    ) -> list[SilentAssertion]:
        """Assertions that judged once, and have only failed for ``quiet_s``."""
        before_us = now_us - int(self.writer.rule.quiet_s * 1e6)
        late = {name: us for name, us in judged.items() if 0 < us < before_us}
        if not late:
            return []
        own = _STRIKE.c.model == self.writer.model, _STRIKE.c.slot == CHAMPION
        since = _STRIKE.c.at_us > min(late.values())
        query = select(_STRIKE).where(*own, since, _STRIKE.c.assertion.in_(late)).order_by(_STRIKE.c.id)
        strikes: dict[str, list[Row[Any]]] = {}
        for row in connection.execute(query):
            if late[row.assertion] < row.at_us <= now_us:
                strikes.setdefault(row.assertion, []).append(row)
        return [
            SilentAssertion(
                name, late[name], rows[0].at_us, len(rows), rows[-1].reason, rows[-1].detail
            )
            for name, rows in sorted(strikes.items())
            if len(rows) >= _LEAST_FAILURES and rows[0].at_us <= before_us
        ]  # fmt: skip
