"""Incidents of one model as rows and events."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from outrider.dataops.flags.live_rates import Alarm
from outrider.dataops.flags.rate_limit import NewFlags
from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.state.tables import Incident, table_of

from .explanation import RUNBOOK
from .incident_row import IncidentRow
from .rate_alarms import AlarmRule, Stream
from .stored_incidents import read_incident, resolve

RULE = "rule"
"""Resolver of an incident that no person resolved."""
UNMUTED = "muted until then"
"""Resolution note when a mute expires; the incident is announced again."""
_INCIDENT = table_of(Incident)


@dataclass(frozen=True, slots=True)
class CommittedUnit:
    now_us: int
    seq: int = 0
    flags: Mapping[Stream, Sequence[NewFlags]] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    alarms: Sequence[Alarm] = ()
    ahead: int = 0


@dataclass(slots=True)
class IncidentWriter:
    model: str
    rule: AlarmRule
    targets: Sequence[WebhookTarget] = ()
    version: str | None = None

    def unresolved(self, connection: Connection) -> Sequence[Row[Any]]:
        """Unresolved incidents of the model, and of no model."""
        alive = _INCIDENT.c.status.in_(("open", "acknowledged", "muted"))
        query = select(_INCIDENT).where(_INCIDENT.c.model.in_((self.model, "")), alive)
        return connection.execute(query).all()

    def new(
        self,
        assertion: str,
        kind: str,
        level: str,
        now_us: int,
        *,
        part: str = "",
        flags: int = 0,
        record: str = "",
        note: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> IncidentRow:
        first: Mapping[str, Any] = next(iter((details or {}).get("explained_by") or ()), {})
        version = first.get("version", "")
        text = "\0".join((self.model, assertion, part, str(now_us), kind, note, version))
        identity = f"inc_{blake2b(text.encode(), digest_size=12).hexdigest()}"
        return IncidentRow(
            id=identity, model=self.model, assertion=assertion, slice=part, kind=kind, status="open",
            opened_us=now_us, last_flag_us=now_us, muted_until_us=0, resolved_us=None,
            flags=flags, level=level, first_record=record, note=note, details=dict(details or {}),
        )  # fmt: skip

    def open(self, connection: Connection, row: IncidentRow) -> None:
        details = row.details | {"page": f"/incidents/{row.id}", "runbook": RUNBOOK}
        if "page" in row.details:  # of what it is about
            details["subject_page"] = row.details["page"]
        values = asdict(row) | {"details": details}
        del values["share"]
        connection.execute(insert(_INCIDENT), [values])
        names = ("id", "model", "kind", "assertion", "slice", "level", "first_record")
        current = read_incident(connection, row.id, now_us=row.opened_us)
        told = {name: values[name] for name in names} | details | current.present
        enqueue(connection, "incident.opened", told, targets=self.targets, now_us=row.opened_us)

    def add(self, connection: Connection, row: Row[Any], flags: int, now_us: int) -> None:
        """Add flags to an incident; a slow judge's flags are of an earlier time."""
        last_us = max(now_us, row.last_flag_us)
        self.set(connection, row, flags=_INCIDENT.c.flags + flags, last_flag_us=last_us)

    def set(self, connection: Connection, row: Row[Any], **values: object) -> None:
        connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == row.id).values(values))

    def resolve(self, connection: Connection, row: Row[Any], now_us: int, *, why: str) -> None:
        resolve(connection, row.id, now_us=now_us, why=why, targets=self.targets, by=RULE)

    def is_quiet(self, row: Row[Any], now_us: int) -> bool:
        quiet_us = int(self.rule.quiet_s * 1e6)
        return bool(row.last_flag_us < now_us - quiet_us and row.muted_until_us <= now_us)

    @property
    def quiet_words(self) -> str:
        return f"quiet for {self.rule.quiet_s:g} s"


def is_unmuted(row: Row[Any], now_us: int) -> bool:
    """True for an incident whose mute has expired."""
    return bool(row.status == "muted" and row.muted_until_us <= now_us)
