"""Registered records: places of their payloads, digests and weights."""

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from outrider.dataops.state.rows import among
from outrider.dataops.state.tables import Record, table_of

_RECORD = table_of(Record)


def known_digests(connection: Connection, model: str, ids: Sequence[str]) -> dict[str, int]:
    """Content digests of the registered ids."""
    query = select(_RECORD.c.id, _RECORD.c.digest).where(_RECORD.c.model == model, among(_RECORD.c.id, ids))
    return {row.id: row.digest for row in connection.execute(query)}


def entities_of(connection: Connection, model: str, ids: Sequence[str]) -> dict[str, str | None]:
    """Entities of the registered ids, None where a record names none."""
    query = select(_RECORD.c.id, _RECORD.c.entity).where(_RECORD.c.model == model, among(_RECORD.c.id, ids))
    return {row.id: row.entity for row in connection.execute(query)}


def registered_weights(
    connection: Connection, model: str, *, first: int, last: int
) -> dict[tuple[int, int], float]:
    """Weights of the records of blocks ``first`` to ``last``, by (block, row)."""
    query = select(_RECORD.c.seq, _RECORD.c.row, _RECORD.c.weight).where(
        _RECORD.c.model == model, _RECORD.c.seq >= first, _RECORD.c.seq <= last
    )
    return {(row.seq, row.row): row.weight for row in connection.execute(query)}


def counted_names(
    connection: Connection, model: str, *, first: int, last: int
) -> dict[tuple[int, int], tuple[str | None, bool]]:
    """Slices of a range's records as counted, by (block, row).

    True beside a slice where the record's version is counted with others.
    """
    query = select(_RECORD.c.seq, _RECORD.c.row, _RECORD.c.slice, _RECORD.c.is_unnamed).where(
        _RECORD.c.model == model, _RECORD.c.seq >= first, _RECORD.c.seq <= last
    )
    return {(row.seq, row.row): (row.slice, bool(row.is_unnamed)) for row in connection.execute(query)}


def weights_and_slices(
    connection: Connection, model: str, *, first: int, last: int
) -> dict[int, dict[str, tuple[float, str]]]:
    """Weights and slices of a range's records, by block and id."""
    query = select(_RECORD.c.seq, _RECORD.c.id, _RECORD.c.weight, _RECORD.c.slice).where(
        _RECORD.c.model == model, _RECORD.c.seq >= first, _RECORD.c.seq <= last
    )
    found: dict[int, dict[str, tuple[float, str]]] = {}
    for row in connection.execute(query):
        found.setdefault(row.seq, {})[row.id] = (row.weight, row.slice or "")
    return found


def registered_blocks(connection: Connection, model: str, *, after: int, until: int) -> list[int]:
    """Blocks behind ``after`` up to ``until`` that have registered records, ascending."""
    there = _RECORD.c.model == model, _RECORD.c.seq > after, _RECORD.c.seq <= until
    return list(connection.scalars(select(_RECORD.c.seq).where(*there).distinct().order_by(_RECORD.c.seq)))


def newest_block(connection: Connection, model: str) -> int | None:
    """Last block with a registered record; None before the first."""
    query = select(_RECORD.c.seq).where(_RECORD.c.model == model).order_by(_RECORD.c.seq.desc()).limit(1)
    seq: int | None = connection.scalar(query)
    return seq


def count_records(connection: Connection, model: str, *, until: int, since_us: int) -> int:
    """Number of records up to block ``until``, from ``since_us`` on."""
    query = select(func.count()).where(
        _RECORD.c.model == model, _RECORD.c.seq <= until, _RECORD.c.ts_us >= since_us
    )
    return int(connection.scalar(query) or 0)
