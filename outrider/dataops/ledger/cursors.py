"""Cursors of slots: the last journal block whose effects are committed."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from outrider.dataops.state.rows import insert_rows
from outrider.dataops.state.tables import Cursor, table_of

from .backfill import CHAMPION

_CURSOR = table_of(Cursor)


def cursor(connection: Connection, model: str, slot: str) -> int:
    query = select(_CURSOR.c.seq).where(_CURSOR.c.model == model, _CURSOR.c.slot == slot)
    return int(connection.execute(query).scalar() or 0)


def cursors_of(connection: Connection, model: str, slots: Sequence[str]) -> list[int]:
    query = select(_CURSOR.c.seq).where(_CURSOR.c.model == model, _CURSOR.c.slot.in_(slots))
    return list(connection.scalars(query))


def judged_by_both(connection: Connection, model: str, challenger: str) -> int:
    found = cursors_of(connection, model, (CHAMPION, challenger))
    return min(found) if len(found) == 2 else 0


def open_cursor(connection: Connection, model: str, slot: str, *, begin: int) -> int:
    insert_rows(connection, Cursor, [(model, slot, begin)])
    return cursor(connection, model, slot)
