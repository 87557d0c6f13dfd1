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
"""Who ended an incident that no person ended."""
UNMUTED = "muted until then"
"""Reason to resolve what still stands behind the silence that was asked for: it is told anew."""
_INCIDENT = table_of(Incident)


@dataclass(frozen=True, slots=True)
class CommittedUnit:
    """Unit of the champion in whose transaction incidents are followed."""

    now_us: int
    """Time of receipt."""
    seq: int = 0
    """Last block."""
    flags: Mapping[Stream, Sequence[NewFlags]] = field(default_factory=dict)
    """Of assertions, by assertion and slice."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """By live test."""
    alarms: Sequence[Alarm] = ()
    """Of live tests."""
    ahead: int = 0
    """Records whose event time was too far ahead of receipt."""


@dataclass(slots=True)
class IncidentWriter:
    """Writer of the incidents of one model, in the worker's transactions."""

    model: str
    rule: AlarmRule
    targets: Sequence[WebhookTarget] = ()
    version: str | None = None
    """Champion; None where production alone has the model."""

    def unresolved(self, connection: Connection) -> Sequence[Row[Any]]:
        """Incidents that are not resolved: of the model, and of none."""
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
        """Incident that begins now, for :meth:`open`."""
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
        """Write an incident with its permalink and enqueue its event."""
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
        """Add flags to an incident. A judge that lags speaks of an earlier time."""
        last_us = max(now_us, row.last_flag_us)
        self.set(connection, row, flags=_INCIDENT.c.flags + flags, last_flag_us=last_us)

    def set(self, connection: Connection, row: Row[Any], **values: object) -> None:
        """Replace columns of an incident."""
        connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == row.id).values(values))

    def resolve(self, connection: Connection, row: Row[Any], now_us: int, *, why: str) -> None:
        """Resolve an incident by rule."""
        resolve(connection, row.id, now_us=now_us, why=why, targets=self.targets, by=RULE)

    def is_quiet(self, row: Row[Any], now_us: int) -> bool:
        """True for an incident without a flag in ``quiet_s``, and not muted."""
        quiet_us = int(self.rule.quiet_s * 1e6)
        return bool(row.last_flag_us < now_us - quiet_us and row.muted_until_us <= now_us)

    @property
    def quiet_words(self) -> str:
        """Reason to resolve an incident that is quiet."""
        return f"quiet for {self.rule.quiet_s:g} s"


def is_unmuted(row: Row[Any], now_us: int) -> bool:
    """True for an incident behind the silence that was asked for."""
    return bool(row.status == "muted" and row.muted_until_us <= now_us)
