"""Explanation of an incident: onset, shares, causes, nearest event, records, action."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, and_, func, select

from outrider.assertions.statistics.wilson import wilson_interval
from outrider.dataops.flags.registered_assertions import columns_of, columns_of_sender
from outrider.dataops.ledger.first_seen import STATED
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.state.tables import Flag, Record, table_of

from .minute_counts import ALL, CHAMPION
from .model_events import REVISION, VERSION_SEEN, ModelEvent, nearest_event
from .rate_alarms import AlarmRule, Cause, FlaggedShare, RateAlarm

_HOUR_US = 3_600_000_000
_NEAR_US = 24 * _HOUR_US
_RECORDS = 5
MOST_CAUSES_TOLD = 10
RUNBOOK = "docs/alarms.md"
_ACTIONS = {
    **dict.fromkeys(("promoted", "overridden", "rolled_back", VERSION_SEEN), "roll_back"),
    REVISION: "mute",
    **dict.fromkeys(STATED, "check_sender"),
}
_FLAG, _RECORD = table_of(Flag), table_of(Record)


def explained(
    connection: Connection,
    model: str,
    alarm: RateAlarm,
    told: Sequence[Cause],
    rule: AlarmRule,
    *,
    version: str | None,
) -> dict[str, Any]:
    """Details of an incident as JSON; ``told`` are its causes in order."""
    first = told[0]
    event = event_near(connection, model, alarm)
    reads = columns_of_sender(connection, model, [cause.assertion for cause in told])
    return {
        "onset": {
            "first": iso(alarm.first_us), "likeliest": iso(alarm.onset_us), "last": iso(alarm.last_us),
        },
        "before": _share(first.before),
        "now": _share(first.now),
        "explained_by": cause_json(told[:MOST_CAUSES_TOLD]),
        "version": version,
        "event": event_json(event),
        "records": records(connection, model, first),
        "action": "check_sender" if reads and action(event) != "mute" else action(event),
        "reads": reads or columns_of(connection, model, first.assertion),
        "guarantee": {"alpha": rule.alpha, "horizon_s": rule.horizon_s},
    }  # fmt: skip


def cause_json(told: Sequence[Cause]) -> list[dict[str, Any]]:
    return [_cause(cause) for cause in told]


def records(connection: Connection, model: str, cause: Cause) -> list[str]:
    near = and_(_RECORD.c.model == _FLAG.c.model, _RECORD.c.id == _FLAG.c.record_id)
    own = _FLAG.c.model == model, _FLAG.c.slot == CHAMPION, _FLAG.c.assertion == cause.assertion
    query = select(_FLAG.c.record_id).join(_RECORD, near).where(*own)
    if cause.slice != ALL:
        query = query.where(func.coalesce(_RECORD.c.slice, "") == cause.slice)
    if cause.version == OTHERS:
        query = query.where(_RECORD.c.is_unnamed)
    elif cause.version:
        query = query.where(_FLAG.c.version == cause.version)
    newest = connection.scalars(query.order_by(_FLAG.c.seq.desc(), _FLAG.c.row.desc()).limit(4 * _RECORDS))
    return list(dict.fromkeys(newest))[:_RECORDS]


def event_near(
    connection: Connection, model: str, alarm: RateAlarm, *, left_out: Collection[str] = ()
) -> ModelEvent | None:
    """Event next to an onset, from a day before its interval to the interval's end."""
    return nearest_event(
        connection,
        model,
        since_us=alarm.first_us - _NEAR_US,
        until_us=alarm.last_us,
        onset_us=alarm.onset_us,
        left_out=left_out,
    )


def event_json(event: ModelEvent | None) -> dict[str, str] | None:
    return None if event is None else {"kind": event.kind, "name": event.name, "at": iso(event.at_us)}


def action(event: ModelEvent | None) -> str:
    return _ACTIONS.get("" if event is None else event.kind, "label")


def page(model: str, assertion: str) -> str:
    return f"/assertions/{quote(model, safe='')}/{quote(assertion, safe='')}"


def iso(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, tz=UTC).isoformat().replace("+00:00", "Z")


def us_of(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


def _cause(cause: Cause) -> dict[str, Any]:
    part = "" if cause.slice == ALL else cause.slice
    shares = {"before": _share(cause.before), "now": _share(cause.now)}
    own = {"version": cause.version} if cause.version else {}
    return {"assertion": cause.assertion, "slice": part, **own, **shares, "weight": round(cause.weight, 1)}


def _share(share: FlaggedShare) -> dict[str, Any]:
    low, high = wilson_interval(share.hits, share.seen) if share.seen else (0.0, 1.0)
    figures = {"share": share.share, "low": float(low), "high": float(high)}
    return {name: round(value, 4) for name, value in figures.items()} | {
        "flagged": share.hits, "seen": share.seen,
    }  # fmt: skip
