"""Places of erased records that shared windows with others."""

from sqlalchemy import Connection, select

from outrider.dataops.state.erasure_tables import ErasedContext
from outrider.dataops.state.rows import among
from outrider.dataops.state.tables import Record, table_of

_CONTEXT, _RECORD = table_of(ErasedContext), table_of(Record)


def read_contexts(connection: Connection, model: str, by: str) -> list[tuple[int, int, int]]:
    """Block of each erased record, and place of a like one."""
    query = select(_CONTEXT.c.seq, _CONTEXT.c.like_seq, _CONTEXT.c.like_row).where(
        _CONTEXT.c.model == model, _CONTEXT.c.by == by
    )
    return [(row.seq, row.like_seq, row.like_row) for row in connection.execute(query.distinct())]


def places_of(connection: Connection, model: str, ids: set[str]) -> dict[str, tuple[int, int]]:
    """Block and row of records."""
    query = select(_RECORD.c.id, _RECORD.c.seq, _RECORD.c.row).where(
        _RECORD.c.model == model, among(_RECORD.c.id, ids)
    )
    return {row.id: (row.seq, row.row) for row in connection.execute(query)}
