"""Notes of the intake: state that must survive a restart.

Written in commits of blocks, so that a note is gone exactly when its content is in a block.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

COLUMNS = "columns "
"""Prefix of notes on the columns of a model."""
TABLE = "CREATE TABLE note (name TEXT PRIMARY KEY, received_us INTEGER NOT NULL, payload BLOB NOT NULL)"


@dataclass(frozen=True, slots=True)
class Note:
    name: str
    """A new note of the same name replaces it."""
    received_us: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes to write in a commit, and names to remove first."""

    put: Sequence[Note] = ()
    remove: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.remove)


def write(db: sqlite3.Connection, notes: Notes) -> None:
    """In the open transaction."""
    if notes.remove:
        db.executemany("DELETE FROM note WHERE name = ?", [(name,) for name in notes.remove])
    if notes.put:
        rows = [(note.name, note.received_us, note.payload) for note in notes.put]
        db.executemany("INSERT OR REPLACE INTO note VALUES (?, ?, ?)", rows)


def shift(db: sqlite3.Connection, by_us: int) -> None:
    """Keep waiting times when the clock is set."""
    db.execute("UPDATE note SET received_us = received_us + ?", (by_us,))


def read(db: sqlite3.Connection, *, of_columns: bool) -> list[Note]:
    """Notes on columns, or all others, oldest first."""
    rows = db.execute("SELECT name, received_us, payload FROM note ORDER BY received_us, rowid")
    return [note for note in (Note(*row) for row in rows) if note.name.startswith(COLUMNS) == of_columns]
