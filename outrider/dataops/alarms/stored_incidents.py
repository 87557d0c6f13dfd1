"""Incidents as stored: listed, acknowledged, muted and resolved."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, case, func, select, update
from typing_extensions import TypedDict

from outrider.assertions.times import utc_text
from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.state.tables import Incident, table_of
from outrider.errors import NotFound, OutriderError

from .incident_row import IncidentRow
from .incident_share import read_share

_INCIDENT = table_of(Incident)


class IncidentStep(TypedDict):
    """Change of an incident: ``acknowledged``, ``muted`` or ``resolved``."""

    at: str
    what: str
    by: str
    """Name of the key; empty where the rule of incidents did it."""
    why: str
    until: str | None


PERSON = "person"


def resolve(
    connection: Connection,
    incident: str,
    *,
    now_us: int,
    why: str,
    targets: Sequence[WebhookTarget] = (),
    by: str = PERSON,
    who: str = "",
) -> None:
    """Close an incident and enqueue its event, in the caller's transaction.

    What a person resolves (``by``) is a new normal; what the rule does is not.
    """
    found = get(connection, incident)
    if found.status == "resolved":
        return
    found = _with_share(connection, replace(found, status="resolved", resolved_us=now_us), now_us=now_us)
    share = None if found.share is None else asdict(found.share)
    details = _with_step(found, "resolved", now_us, who, why) | {"ended_by": by, "share": share}
    connection.execute(
        update(_INCIDENT)
        .where(_INCIDENT.c.id == incident)
        .values(status="resolved", resolved_us=now_us, note=_noted(found, why), details=details)
    )
    told: dict[str, object] = {
        "id": found.id,
        "model": found.model,
        "kind": found.kind,
        "assertion": found.assertion,
        "slice": found.slice,
    }
    told |= {"level": found.level, "flags": found.flags, "reason": why} | found.present
    enqueue(connection, "incident.resolved", told, targets=targets, now_us=now_us)


def acknowledge(connection: Connection, incident: str, *, now_us: int, note: str = "", who: str = "") -> None:
    """Acknowledge an incident; silence still resolves it."""
    found = _standing(connection, incident)
    details = _with_step(found, "acknowledged", now_us, who, note)
    connection.execute(
        update(_INCIDENT)
        .where(_INCIDENT.c.id == incident)
        .values(status="acknowledged", muted_until_us=0, note=_noted(found, note), details=details)
    )


def mute(
    connection: Connection, incident: str, *, until_us: int, now_us: int, note: str = "", who: str = ""
) -> None:
    """Mute an assertion in a slice until a time; a later flag opens a new incident."""
    if until_us <= now_us:
        raise OutriderError("an incident is muted until a time to come; this one has passed")
    found = _standing(connection, incident)
    details = _with_step(found, "muted", now_us, who, note, until_us=until_us)
    connection.execute(
        update(_INCIDENT)
        .where(_INCIDENT.c.id == incident)
        .values(status="muted", muted_until_us=until_us, note=_noted(found, note), details=details)
    )


def get(connection: Connection, incident: str) -> IncidentRow:
    row = connection.execute(select(_INCIDENT).where(_INCIDENT.c.id == incident)).first()
    if row is None:
        raise NotFound(f"no incident {incident!r}; `outrider incidents` lists them")
    return IncidentRow(**row._mapping)


def read_incident(connection: Connection, incident: str, *, now_us: int) -> IncidentRow:
    return _with_share(connection, get(connection, incident), now_us=now_us)


def list_incidents(
    connection: Connection,
    *,
    now_us: int,
    model: str | None = None,
    status: str | None = None,
    assertion: str | None = None,
    limit: int = 50,
) -> list[IncidentRow]:
    """Incidents with their shares, newest first; status ``current`` means all unresolved ones."""
    query = select(_INCIDENT).order_by(_INCIDENT.c.opened_us.desc(), _INCIDENT.c.id).limit(limit)
    if model is not None:  # what is of no model concerns all
        query = query.where(_INCIDENT.c.model.in_((model, "")))
    if assertion is not None:
        query = query.where(_INCIDENT.c.assertion == assertion)
    if status == "current":
        query = query.where(_INCIDENT.c.status != "resolved")
    elif status is not None:
        query = query.where(_INCIDENT.c.status == status)
    found = [IncidentRow(**row._mapping) for row in connection.execute(query)]
    return [_with_share(connection, row, now_us=now_us) for row in found]


def count_incidents(connection: Connection) -> list[tuple[str, str, int, int]]:
    current = case((_INCIDENT.c.status.in_(("open", "acknowledged")), 1), else_=0)
    query = select(_INCIDENT.c.model, _INCIDENT.c.level, func.count(), func.sum(current))
    rows = connection.execute(query.group_by(_INCIDENT.c.model, _INCIDENT.c.level))
    return [(model, level, count, open_) for model, level, count, open_ in rows]


def open_alarms(connection: Connection) -> list[tuple[str, str, str, str]]:
    columns = _INCIDENT.c.model, _INCIDENT.c.kind, _INCIDENT.c.level, _INCIDENT.c.assertion
    query = select(*columns).where(_INCIDENT.c.status.in_(("open", "acknowledged"))).distinct()
    return [(row.model, row.kind, row.level, row.assertion) for row in connection.execute(query)]


def _with_share(connection: Connection, row: IncidentRow, *, now_us: int) -> IncidentRow:
    return replace(row, share=read_share(connection, row, now_us=now_us))


def _noted(found: IncidentRow, more: str) -> str:
    return "; ".join(part for part in (found.note, more) if part)


def _with_step(
    found: IncidentRow, what: str, at_us: int, who: str, why: str, *, until_us: int | None = None
) -> dict[str, Any]:
    until = None if until_us is None else utc_text(until_us)
    step: IncidentStep = {"at": utc_text(at_us), "what": what, "by": who, "why": why, "until": until}
    return found.details | {"history": [*found.details.get("history", ()), step]}


def _standing(connection: Connection, incident: str) -> IncidentRow:
    found = get(connection, incident)
    if found.status == "resolved":
        raise OutriderError(f"incident {incident} is resolved; a recurrence opens another incident")
    return found
