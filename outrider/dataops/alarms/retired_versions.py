"""Incidents of versions that the worker retired, resolved by time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from .incident_writer import UNMUTED, IncidentWriter, is_unmuted

RETIRED = "version_retired"


@dataclass(slots=True)
class RetiredVersionIncidents:
    writer: IncidentWriter

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == RETIRED)

    def open(self, connection: Connection, version: str, why: str, *, now_us: int) -> None:
        note = f"version {version} is retired: {why}"
        details = {"version": version, "reason": why}
        made = self.writer.new(f"version {version}", RETIRED, "warning", now_us, note=note, details=details)
        self.writer.open(connection, made)

    def follow_minute(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        for row in rows:
            if is_unmuted(row, now_us):
                self.writer.resolve(connection, row, now_us, why=UNMUTED)
            elif self.writer.is_quiet(row, now_us):
                self.writer.resolve(connection, row, now_us, why=self.writer.quiet_words)
