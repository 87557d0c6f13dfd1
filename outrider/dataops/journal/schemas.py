"""Schemas that the records of each model had, in the journal's file."""

import sqlite3
from dataclasses import dataclass

from . import block_rows

TABLE = (
    "CREATE TABLE schema_seen (model TEXT NOT NULL, digest TEXT NOT NULL, payload BLOB NOT NULL,"
    " first_seq INTEGER NOT NULL, PRIMARY KEY (model, digest))"
)


@dataclass(frozen=True, slots=True)
class SchemaSeen:
    """A schema that a model had, from block ``first_seq`` on."""

    model: str
    digest: str
    payload: bytes
    first_seq: int


def remember(db: sqlite3.Connection, model: str, digest: str, schema: bytes, seq: int) -> None:
    """Note a schema, in the open transaction. One of a half (``seq`` 0) is of the next block."""
    seq = seq or block_rows.last_seq(db) + 1
    db.execute("INSERT OR IGNORE INTO schema_seen VALUES (?, ?, ?, ?)", (model, digest, schema, seq))


def read(db: sqlite3.Connection) -> list[SchemaSeen]:
    """Every schema seen, oldest first."""
    rows = db.execute("SELECT model, digest, payload, first_seq FROM schema_seen ORDER BY first_seq, rowid")
    return [SchemaSeen(*row) for row in rows]
