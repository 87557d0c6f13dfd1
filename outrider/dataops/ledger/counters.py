"""Exact counters of slots, advanced in the transaction that makes them true."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from outrider.dataops.state.rows import add_to_rows
from outrider.dataops.state.tables import Counter, table_of

_COUNTER = table_of(Counter)
RECORDS_OF, FLAGS_OF = "records_of:", "flags_of:"
"""Counters of the champion's slot by judged version."""


@dataclass(frozen=True, slots=True)
class VersionFigures:
    records: int = 0
    flags: int = 0

    @property
    def flags_per_1000(self) -> float:
        return 1000 * self.flags / self.records if self.records else math.nan


def add_counts(connection: Connection, model: str, slot: str, counts: Mapping[str, int]) -> None:
    rows = [(model, slot, name, count) for name, count in counts.items() if count]
    add_to_rows(connection, Counter, rows)


def read_counts(connection: Connection, model: str, slot: str) -> dict[str, int]:
    query = select(_COUNTER.c.name, _COUNTER.c.value).where(
        _COUNTER.c.model == model, _COUNTER.c.slot == slot
    )
    return {row.name: row.value for row in connection.execute(query)}


def counts_by_slot(connection: Connection, model: str, *, prefix: str = "") -> dict[str, dict[str, int]]:
    query = select(_COUNTER.c.slot, _COUNTER.c.name, _COUNTER.c.value).where(
        _COUNTER.c.model == model, _COUNTER.c.name.startswith(prefix)
    )
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(query):
        found.setdefault(row.slot, {})[row.name] = row.value
    return found


def figures_of(counts: Mapping[str, Mapping[str, int]], version: str, *, is_champion: bool) -> VersionFigures:
    """Figures that a version earned as champion, or else in its shadow."""
    served = counts.get("champion", {})
    found = VersionFigures(served.get(f"{RECORDS_OF}{version}", 0), served.get(f"{FLAGS_OF}{version}", 0))
    if found.records or is_champion:
        return found
    own = counts.get(version, {})
    flags = sum(value for name, value in own.items() if name.startswith("flags:"))
    return VersionFigures(own.get("records", 0), flags)
