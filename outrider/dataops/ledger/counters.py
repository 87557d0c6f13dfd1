"""Exact counters of slots, advanced in the transaction that makes them true."""

from collections.abc import Mapping

from sqlalchemy import Connection, select

from outrider.dataops.state.rows import add_to_rows
from outrider.dataops.state.tables import Counter, table_of

_COUNTER = table_of(Counter)


def add_counts(connection: Connection, model: str, slot: str, counts: Mapping[str, int]) -> None:
    """Advance the counters of a slot."""
    rows = [(model, slot, name, count) for name, count in counts.items() if count]
    add_to_rows(connection, Counter, rows)


def read_counts(connection: Connection, model: str, slot: str) -> dict[str, int]:
    """Counters of a slot by name."""
    query = select(_COUNTER.c.name, _COUNTER.c.value).where(
        _COUNTER.c.model == model, _COUNTER.c.slot == slot
    )
    return {row.name: row.value for row in connection.execute(query)}


def counts_by_slot(connection: Connection, model: str, *, prefix: str = "") -> dict[str, dict[str, int]]:
    """Counters of every slot of a model, by a prefix of names."""
    query = select(_COUNTER.c.slot, _COUNTER.c.name, _COUNTER.c.value).where(
        _COUNTER.c.model == model, _COUNTER.c.name.startswith(prefix)
    )
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(query):
        found.setdefault(row.slot, {})[row.name] = row.value
    return found
