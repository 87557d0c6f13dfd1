"""Checkpoints of windows: their state behind a journal block."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from outrider.dataops.state.rows import Row, insert_rows
from outrider.dataops.state.tables import WindowCheckpoint, table_of

_CHECKPOINT = table_of(WindowCheckpoint)


def read_checkpoints(connection: Connection, model: str, slot: str) -> dict[str, tuple[int, bytes]]:
    query = select(_CHECKPOINT.c.window, _CHECKPOINT.c.seq, _CHECKPOINT.c.payload).where(
        _CHECKPOINT.c.model == model, _CHECKPOINT.c.slot == slot
    )
    return {row.window: (row.seq, row.payload) for row in connection.execute(query)}


def replace_checkpoints(connection: Connection, model: str, slot: str, rows: Sequence[Row]) -> None:
    connection.execute(_CHECKPOINT.delete().where(_CHECKPOINT.c.model == model, _CHECKPOINT.c.slot == slot))
    insert_rows(connection, WindowCheckpoint, rows)


def forget_windows(connection: Connection, model: str, *, keep: Sequence[str]) -> None:
    connection.execute(
        _CHECKPOINT.delete().where(_CHECKPOINT.c.model == model, _CHECKPOINT.c.slot.not_in(keep))
    )


def keep_windows(connection: Connection, model: str, slot: str, *, windows: Sequence[str]) -> None:
    """Drop window states that are no longer offered, which would hold up expiry."""
    connection.execute(
        _CHECKPOINT.delete().where(
            _CHECKPOINT.c.model == model,
            _CHECKPOINT.c.slot == slot,
            _CHECKPOINT.c.window.not_in(windows),
        )
    )
