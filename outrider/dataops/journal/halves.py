"""Unmatched requests and responses, which wait for each other."""

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
"""Side that remembers which sides of a key became records, to detect repeats."""


@dataclass(frozen=True, slots=True)
class Half:
    model: str
    key: str
    side: str
    """``request``, ``response``, or ``done``."""
    received_us: int
    due_us: int
    """End of waiting, µs since the epoch, UTC, as ``received_us``."""
    payload: bytes
    digest: str = ""
    schema: bytes = b""
    """As of an `Entry`; not read back."""


def change(db: sqlite3.Connection, keep: Sequence[Half], drop: Sequence[Half], forget_us: int) -> None:
    """In the open transaction; completed halves due by ``forget_us`` are removed."""
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
    """Keep waiting times when the clock is set."""
    db.execute("UPDATE half SET received_us = received_us + ?, due_us = due_us + ?", (by_us, by_us))


def find(db: sqlite3.Connection, model: str, keys: Sequence[str]) -> list[Half]:
    found: list[Half] = []
    for start in range(0, len(keys), 500):
        part = keys[start : start + 500]
        marks = ", ".join("?" * len(part))
        rows = db.execute(f"SELECT {_HALF} FROM half WHERE model = ? AND key IN ({marks})", (model, *part))
        found += map(_half, rows)
    return found


def read(db: sqlite3.Connection) -> list[Half]:
    return [_half(row) for row in db.execute(f"SELECT {_HALF} FROM half")]


def due(db: sqlite3.Connection, until_us: int, *, limit: int, max_bytes: int) -> list[Half]:
    """Halves due by ``until_us``, but ``done`` ones, oldest first."""
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
