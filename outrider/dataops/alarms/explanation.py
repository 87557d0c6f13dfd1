"""Explanation of an incident: onset, shares, causes, nearest event, records, action."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, and_, func, select

from outrider.assertions.wilson import wilson_interval
from outrider.dataops.state.improvement_tables import ChampionChange
from outrider.dataops.state.tables import AssertionRow, Flag, Record, table_of

from .minute_counts import ALL, CHAMPION
from .rate_alarms import AlarmRule, Cause, FlaggedShare, RateAlarm

_HOUR_US = 3_600_000_000
_NEAR_US = 24 * _HOUR_US
_RECORDS = 5
MOST_CAUSES_TOLD = 10
RUNBOOK = "docs/alarms.md"
_ASSERTION, _FLAG, _RECORD = table_of(AssertionRow), table_of(Flag), table_of(Record)
_CHANGE = table_of(ChampionChange)


@dataclass(frozen=True, slots=True)
class NearestEvent:
    """Change of champion or assertion next to an onset."""

    kind: str
    name: str
    at_us: int

    def to_json(self) -> dict[str, str]:
        """Event as JSON."""
        return {"kind": self.kind, "name": self.name, "at": iso(self.at_us)}


def explained(
    connection: Connection,
    model: str,
    alarm: RateAlarm,
    told: Sequence[Cause],
    rule: AlarmRule,
    *,
    version: str | None,
) -> dict[str, Any]:
    """Details of an incident as JSON.

    Parameters
    ----------
    told
        Causes, the first one first; not empty.
    version
        Champion that is judged.
    """
    first = told[0]
    event = nearest_event(connection, model, alarm)
    return {
        "onset": {
            "first": iso(alarm.first_us), "likeliest": iso(alarm.onset_us), "last": iso(alarm.last_us),
        },
        "before": _share(first.before),
        "now": _share(first.now),
        "explained_by": cause_json(told[:MOST_CAUSES_TOLD]),
        "version": version,
        "event": None if event is None else event.to_json(),
        "records": records(connection, model, first.assertion, first.slice),
        "action": action(event),
        "page": page(model, first.assertion),
        "runbook": RUNBOOK,
        "guarantee": {"alpha": rule.alpha, "horizon_s": rule.horizon_s},
    }  # fmt: skip


def cause_json(told: Sequence[Cause]) -> list[dict[str, Any]]:
    """Causes as JSON, in order."""
    return [_cause(cause) for cause in told]


def records(connection: Connection, model: str, assertion: str, part: str) -> list[str]:
    """Ids of the newest flagged records of a cause, five at most."""
    near = and_(_RECORD.c.model == _FLAG.c.model, _RECORD.c.id == _FLAG.c.record_id)
    own = _FLAG.c.model == model, _FLAG.c.slot == CHAMPION, _FLAG.c.assertion == assertion
    query = select(_FLAG.c.record_id).join(_RECORD, near).where(*own)
    if part != ALL:
        query = query.where(func.coalesce(_RECORD.c.slice, "") == part)
    newest = connection.scalars(query.order_by(_FLAG.c.seq.desc(), _FLAG.c.row.desc()).limit(4 * _RECORDS))
    return list(dict.fromkeys(newest))[:_RECORDS]


def nearest_event(connection: Connection, model: str, alarm: RateAlarm) -> NearestEvent | None:
    """Change of champion or assertion next to the onset.

    From a day before its interval to the interval's end.
    """
    first, last = alarm.first_us - _NEAR_US, alarm.last_us
    own = _CHANGE.c.model == model, _CHANGE.c.action != "registered", _CHANGE.c.at_us.between(first, last)
    changes = connection.execute(select(_CHANGE.c.action, _CHANGE.c.version, _CHANGE.c.at_us).where(*own))
    found = [NearestEvent(*row) for row in changes]
    own = _ASSERTION.c.model == model, _ASSERTION.c.active, _ASSERTION.c.first_seen_us.between(first, last)
    revised = connection.execute(select(_ASSERTION.c.name, _ASSERTION.c.first_seen_us).where(*own))
    found += [NearestEvent("assertion_revision", name, at) for name, at in revised]
    return min(found, key=lambda one: abs(one.at_us - alarm.onset_us), default=None)


def action(event: NearestEvent | None) -> str:
    """Proposed next step: ``roll_back``, ``mute`` or ``label``."""
    if event is None:
        return "label"
    return "mute" if event.kind == "assertion_revision" else "roll_back"


def page(model: str, assertion: str) -> str:
    """Path of the assertion's page."""
    return f"/assertions/{quote(model, safe='')}/{quote(assertion, safe='')}"


def sentence(details: dict[str, Any]) -> str:
    """One line of an explanation, for notes and tables."""
    first = details["explained_by"][0]
    where = "all records" if first["slice"] == "" else f"slice {first['slice']}"
    before, now = details["before"]["share"], details["now"]["share"]
    return (
        f"{first['assertion']} on {where}: {before:.1%} of entities before, {now:.1%} since "
        f"{details['onset']['likeliest']}"
    )


def iso(us: int) -> str:
    """Time in UTC, to the second."""
    return datetime.fromtimestamp(us // 1_000_000, tz=UTC).isoformat().replace("+00:00", "Z")


def us_of(text: str) -> int:
    """Microseconds of a time of :func:`iso`."""
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


def _cause(cause: Cause) -> dict[str, Any]:
    part = "" if cause.slice == ALL else cause.slice
    shares = {"before": _share(cause.before), "now": _share(cause.now)}
    return {"assertion": cause.assertion, "slice": part, **shares, "weight": round(cause.weight, 1)}


def _share(share: FlaggedShare) -> dict[str, Any]:
    low, high = wilson_interval(share.hits, share.seen) if share.seen else (0.0, 1.0)
    figures = {"share": share.share, "low": float(low), "high": float(high)}
    return {name: round(value, 4) for name, value in figures.items()} | {
        "flagged": share.hits, "seen": share.seen,
    }  # fmt: skip
