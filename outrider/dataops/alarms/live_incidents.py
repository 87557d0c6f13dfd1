"""Incidents of live behavioral tests, proven to fail above a tolerance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row

from outrider.dataops.flags.live_rates import Alarm, LiveRateView, proof

from .incident_writer import UNMUTED, CommittedUnit, IncidentWriter, is_unmuted

LIVE = "live_test"


@dataclass(slots=True)
class LiveTestIncidents:
    """Incidents of live tests; silence does not resolve one."""

    writer: IncidentWriter
    revisions: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == LIVE)

    def follow(self, connection: Connection, rows: Sequence[Row[Any]], unit: CommittedUnit) -> None:
        standing = set()
        for row in rows:
            new = unit.failures.get(row.assertion, 0)
            if (why := self.refuted(connection, row)) is not None:
                self.writer.resolve(connection, row, unit.now_us, why=why)
            elif new and is_unmuted(row, unit.now_us):
                self.writer.resolve(connection, row, unit.now_us, why=UNMUTED)
                view = self._proof(connection, row.assertion)
                assert view is not None  # or it would be refuted
                again = Alarm(view, row.level, row.first_record, view.failed)
                self._open(connection, again, unit.now_us)
            else:
                standing.add(row.assertion)
                if new:
                    last_us = max(unit.now_us, row.last_flag_us)
                    self.writer.set(connection, row, flags=row.flags + new, last_flag_us=last_us)
        for alarm in unit.alarms:
            if alarm.level != "info" and alarm.view.test not in standing:
                self._open(connection, alarm, alarm.view.alarm_us or unit.now_us)

    def _proof(self, connection: Connection, test: str) -> LiveRateView | None:
        return proof(connection, self.writer.model, test, self.revisions[test], self.writer.version)

    def refuted(self, connection: Connection, row: Row[Any]) -> str | None:
        """Reason that a live test's alarm is refuted, or None."""
        if row.assertion not in self.revisions:
            return "it is no live test any more"
        if self._proof(connection, row.assertion) is None:
            about = "the version" if self.writer.version is None else f"version {self.writer.version}"
            return f"{about} that is asked now, or this revision of the test, has not been proven to fail"
        return None

    def _open(self, connection: Connection, alarm: Alarm, now_us: int) -> None:
        view = alarm.view
        note = (
            f"version {view.version or '?'} fails {view.failed} of {view.asked} live questions, "
            f"{view.rate:.2%} by weight and at least {view.low:.2%}; {view.tolerance:.2%} are tolerated"
        )
        figures = {name: getattr(view, name) for name in ("version", "rate", "low", "high", "tolerance")}
        made = self.writer.new(
            view.test,
            LIVE,
            alarm.level,
            now_us,
            flags=alarm.failures,
            record=alarm.record,
            note=note,
            details=figures,
        )
        self.writer.open(connection, made)
