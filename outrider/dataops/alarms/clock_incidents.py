"""Incidents of clocks: event times far ahead, and the service's own clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, select, update

from outrider.dataops.state.clock import STEADY_S, Step
from outrider.dataops.state.tables import Incident, table_of

from .incident_writer import UNMUTED, CommittedUnit, IncidentWriter, is_unmuted

EVENT_TIME = "event_time"
CLOCK = "clock"
_CLOCK_ID = "inc_clock_"
_INCIDENT = table_of(Incident)


@dataclass(slots=True)
class EventTimeIncidents:
    """Incidents of event times, one per model, resolved by silence."""

    writer: IncidentWriter

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == EVENT_TIME)

    def follow(self, connection: Connection, rows: Sequence[Row[Any]], unit: CommittedUnit) -> None:
        standing: Row[Any] | None = None
        for row in rows:
            if is_unmuted(row, unit.now_us) and unit.ahead:
                self.writer.resolve(connection, row, unit.now_us, why=UNMUTED)
            elif self.writer.is_quiet(row, unit.now_us):
                self.writer.resolve(connection, row, unit.now_us, why=self.writer.quiet_words)
            else:
                standing = row
        if not unit.ahead:
            return
        if standing is not None:
            self.writer.add(connection, standing, unit.ahead, unit.now_us)
            return
        note = "event times far ahead of receipt; windows take the time of receipt for them"
        made = self.writer.new("event time", EVENT_TIME, "warning", unit.now_us, flags=unit.ahead, note=note)
        self.writer.open(connection, made)


@dataclass(slots=True)
class ServiceClockIncidents:
    """Incident of no model: the service's clock was set. Resolved after an hour without a step."""

    writer: IncidentWriter
    steps: Callable[[], Sequence[Step]]

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == CLOCK)

    def follow(self, connection: Connection, rows: Sequence[Row[Any]], unit: CommittedUnit) -> None:
        for row in rows:
            if self.is_steady(row, now_us=unit.now_us, seq=unit.seq):
                self.writer.resolve(connection, row, unit.now_us, why="steady for an hour")

    def is_steady(self, row: Row[Any], *, now_us: int, seq: int) -> bool:
        if any(step.seq >= seq for step in self.steps()) or row.muted_until_us > now_us:
            return False
        return bool(row.last_flag_us < now_us - int(STEADY_S * 1e6))

    def step(self, connection: Connection, *, by_us: int, seq: int) -> None:
        """Shift the model's incidents over a step; announce the step once for all models."""
        self._shift(connection, by_us)
        steps = [step for step in self.steps() if step.seq <= seq]
        if not steps:
            return
        row: Row[Any] | None = None
        for known in connection.execute(select(_INCIDENT).where(_INCIDENT.c.kind == CLOCK)):
            if sum(step.seq >= _opened_at(known.id) for step in steps) <= known.flags:
                return  # another model was here first
            row = known if known.status != "resolved" else row
        newest = steps[-1]
        way = "forward" if newest.by_us > 0 else "back"
        note = (
            f"the clock of the service was set {way} by {abs(newest.by_us) / 1e6:.0f} s: windows began anew "
            "there, and nothing expires until it has been steady for an hour"
        )
        if row is not None:
            flags = sum(step.seq >= _opened_at(row.id) for step in steps)
            self.writer.set(connection, row, flags=flags, last_flag_us=newest.received_us, note=note)
            return
        details = {"set_by_s": newest.by_us / 1e6}
        made = self.writer.new(
            "service clock", CLOCK, "warning", newest.received_us, flags=1, note=note, details=details
        )
        self.writer.open(connection, replace(made, id=f"{_CLOCK_ID}{newest.seq}", model=""))

    def _shift(self, connection: Connection, by_us: int) -> None:
        """Shift deadlines of unresolved incidents."""
        last, muted = _INCIDENT.c.last_flag_us, _INCIDENT.c.muted_until_us
        own = (_INCIDENT.c.model == self.writer.model) & (_INCIDENT.c.status != "resolved")
        connection.execute(update(_INCIDENT).where(own).values(last_flag_us=last + by_us))
        is_muted = own & (muted > 0)
        connection.execute(update(_INCIDENT).where(is_muted).values(muted_until_us=muted + by_us))


def _opened_at(incident: str) -> int:
    return int(incident.removeprefix(_CLOCK_ID))
