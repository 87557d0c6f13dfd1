"""Halves of records in the journal: unmatched requests and responses.

They wait for each other, and are no block yet.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

_HALF = "model, key, side, received_us, due_us, digest, payload"
TABLES = (
    "CREATE TABLE half (model TEXT NOT NULL, key TEXT NOT NULL, side TEXT NOT NULL,"
    " received_us INTEGER NOT NULL, due_us INTEGER NOT NULL, digest TEXT NOT NULL, payload BLOB NOT NULL,"
    " PRIMARY KEY (model, key, side))",
    # Apart: whoever looks for what is due does not read past all that is done.
    "CREATE INDEX half_due ON half (due_us) WHERE side != 'done'",
    "CREATE INDEX half_done ON half (due_us) WHERE side = 'done'",
)
DONE = "done"
"""In place of a side: which sides of a key have become records, so that a repeat of one is told."""


@dataclass(frozen=True, slots=True)
class Half:
    """Unmatched side of a record, request or response; no block yet."""

    model: str
    key: str
    """``model`` and ``key``: what both sides share."""
    side: str
    """``request``, ``response``, or ``done`` for what is remembered of a key behind that."""
    received_us: int
    due_us: int
    """``received_us`` and ``due_us``: when it came, and when it is given up waiting (µs since the epoch,
    UTC)."""
    payload: bytes
    """What the writer makes of it."""
    digest: str = ""
    schema: bytes = b""
    """``digest`` and ``schema``: as of an `Entry`: remembered with the first half that has them. ``schema``
    is not read back."""


def change(db: sqlite3.Connection, keep: Sequence[Half], drop: Sequence[Half], forget_us: int) -> None:
    """Store, remove and forget completed halves, in the open transaction."""
    db.executemany(
        "DELETE FROM half WHERE model = ? AND key = ? AND side = ?",
        [(half.model, half.key, half.side) for half in drop],
    )
    db.executemany(
        "INSERT OR REPLACE INTO half VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(h.model, h.key, h.side, h.received_us, h.due_us, h.digest, h.payload) for h in keep],
    )
    if forget_us:
        db.execute("DELETE FROM half WHERE side = 'done' AND due_us <= ?", (forget_us,))


def shift(db: sqlite3.Connection, by_us: int) -> None:
    """Let halves wait on as long, by a clock that was set."""
    db.execute("UPDATE half SET received_us = received_us + ?, due_us = due_us + ?", (by_us, by_us))


def find(db: sqlite3.Connection, model: str, keys: Sequence[str]) -> list[Half]:
    """Halves under these keys, in no order."""
    found: list[Half] = []
    for start in range(0, len(keys), 500):
        part = keys[start : start + 500]
        marks = ", ".join("?" * len(part))
        rows = db.execute(f"SELECT {_HALF} FROM half WHERE model = ? AND key IN ({marks})", (model, *part))
        found += map(_half, rows)
    return found


def read(db: sqlite3.Connection) -> list[Half]:
    """Every half, in no order."""
    return [_half(row) for row in db.execute(f"SELECT {_HALF} FROM half")]


def due(db: sqlite3.Connection, until_us: int, *, limit: int, max_bytes: int) -> list[Half]:
    """Halves given up by ``until_us``, oldest first, up to a size.

    None of side ``done``; the size is of payloads.
    """
    found: list[Half] = []
    rows = db.execute(
        f"SELECT {_HALF} FROM half WHERE side != 'done' AND due_us <= ? ORDER BY due_us LIMIT ?",
        (until_us, limit),
    )
    for row in rows:
        found.append(_half(row))
        max_bytes -= len(found[-1].payload)
        if max_bytes <= 0:
            break
    rows.close()
    return found


def _half(row: tuple[str, str, str, int, int, str, bytes]) -> Half:
    model, key, side, received_us, due_us, digest, payload = row
    return Half(model, key, side, received_us, due_us, payload, digest)
