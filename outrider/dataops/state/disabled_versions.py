"""Shadow versions disabled or owing answers, with reasons."""

from collections.abc import Mapping
from typing import Literal, get_args

from sqlalchemy import Connection, select

from .rows import insert_rows
from .tables import Strike, table_of

Why = Literal["left_out", "owing"]
"""Reasons of these strikes, which have no assertion: not asked any more, or asked again for what they owe."""
_strike = table_of(Strike)


def leave_out(
    connection: Connection, model: str, version: str, detail: str, *, now_us: int, why: Why = "left_out"
) -> None:
    """Note a version that is not asked any more, or owes answers."""
    insert_rows(connection, Strike, [(model, "", now_us, 0, why, detail, version)])


def take_back(connection: Connection, model: str) -> None:
    """Every version of a model is asked, and owes nothing."""
    connection.execute(_strike.delete().where(_strike.c.model == model, _strike.c.reason.in_(get_args(Why))))


def left_out(connection: Connection, model: str, *, why: Why = "left_out") -> Mapping[str, str]:
    """Reason of each disabled version, or of each that owes answers."""
    query = select(_strike.c.slot, _strike.c.detail).where(_strike.c.model == model, _strike.c.reason == why)
    return {row.slot: row.detail for row in connection.execute(query.order_by(_strike.c.id))}
