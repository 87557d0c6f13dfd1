"""Disabled shadow versions, with reasons, as slot strikes until returned."""

from sqlalchemy import Connection, select

from .rows import insert_rows
from .tables import Strike, table_of

LEFT_OUT = "left_out"
"""Reason of these strikes; they have no assertion."""
_strike = table_of(Strike)


def leave_out(connection: Connection, model: str, version: str, why: str, *, now_us: int) -> None:
    """A version of a model is not asked from now on."""
    insert_rows(connection, Strike, [(model, "", now_us, 0, LEFT_OUT, why, version)])


def take_back(connection: Connection, model: str, version: str | None = None) -> None:
    """A version, or every one of a model, is asked again."""
    gone = _strike.delete().where(_strike.c.model == model, _strike.c.reason == LEFT_OUT)
    connection.execute(gone if version is None else gone.where(_strike.c.slot == version))


def left_out(connection: Connection, model: str) -> dict[str, str]:
    """Reason of each disabled version."""
    query = select(_strike.c.slot, _strike.c.detail).where(
        _strike.c.model == model, _strike.c.reason == LEFT_OUT
    )
    return {row.slot: row.detail for row in connection.execute(query.order_by(_strike.c.id))}
