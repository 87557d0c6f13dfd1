"""Rows of blocks in the file: inserted, read, checked, counted, deleted."""

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .entries import Block, BlockInfo, Entry, Kind, checksum

TABLE = (
    "CREATE TABLE block (seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,"
    " model TEXT NOT NULL, received_us INTEGER NOT NULL, rows INTEGER NOT NULL,"
    " payload BLOB NOT NULL, checksum INTEGER NOT NULL)"
)
SCHEMAS = (
    "CREATE TABLE schema_seen (model TEXT NOT NULL, digest TEXT NOT NULL, payload BLOB NOT NULL,"
    " first_seq INTEGER NOT NULL, PRIMARY KEY (model, digest))"
)
READ_BYTES = 33_554_432
"""A read stops after so many payload bytes, which bounds memory."""
_BLOCK = "seq, kind, model, received_us, rows, payload, checksum"


def insert(db: sqlite3.Connection, entry: Entry, received_us: int) -> int:
    sum_ = checksum(entry.kind, entry.model, received_us, entry.rows, entry.payload)
    row = (entry.kind, entry.model, received_us, entry.rows, entry.payload, sum_)
    cursor = db.execute(
        "INSERT INTO block (kind, model, received_us, rows, payload, checksum) VALUES (?, ?, ?, ?, ?, ?)",
        row,
    )
    return int(cursor.lastrowid or 0)


# ---- reading -------------------------------------------------------------------------------------------


def read(db: sqlite3.Connection, after: int, *, limit: int, model: str | None) -> list[Block]:
    """Blocks with ``seq > after``, in order; damaged ones in their places."""
    where, arguments = ("", ()) if model is None else (" AND model IN (?, '')", (model,))
    blocks: list[Block] = []
    room = READ_BYTES
    try:
        rows = db.execute(
            f"SELECT {_BLOCK} FROM block WHERE seq > ?{where} ORDER BY seq LIMIT ?",
            (after, *arguments, limit),
        )
        for row in rows:
            blocks.append(_checked(db, row))
            room -= len(row[5])
            if room <= 0:
                break
        rows.close()
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        if not blocks:  # else they come first
            blocks = _read_past(db, after, model, error)
    return blocks


def get(db: sqlite3.Connection, seq: int) -> Block:
    """``KeyError`` if absent or damaged."""
    try:
        row = db.execute(f"SELECT {_BLOCK} FROM block WHERE seq = ?", (seq,)).fetchone()
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        raise KeyError(f"block {seq} is damaged: {error}") from None
    if row is None:
        raise KeyError(f"block {seq} is not in the journal: it expired, or was never written")
    block = _checked(db, row)
    if block.damage:
        raise KeyError(f"block {seq} is damaged: {block.damage}")
    return block


def outline(
    db: sqlite3.Connection, model: str, *, after: int, until: int, limit: int, rows: int
) -> list[BlockInfo]:
    """Blocks with ``after < seq <= until``, up to so many ``rows``."""
    found: list[BlockInfo] = []
    cursor = db.execute(
        "SELECT seq, kind, model, received_us, rows, length(payload) FROM block"
        " WHERE seq > ? AND seq <= ? AND model = ? ORDER BY seq LIMIT ?",
        (after, until, model, limit),
    )
    for row in cursor:
        found.append(BlockInfo(*row))
        rows -= found[-1].rows
        if rows <= 0:
            break
    cursor.close()
    return found


def last_seq(db: sqlite3.Connection) -> int:
    """Highest number ever given out; 0 when none was."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'block'").fetchone()
    return int(row[0]) if row else 0


def last_work_seq(db: sqlite3.Connection) -> int:
    """Highest number of a block other than ticks; 0 without one."""
    row = db.execute("SELECT seq FROM block WHERE kind != 'tick' ORDER BY seq DESC LIMIT 1").fetchone()
    return int(row[0]) if row else 0


def count_records(db: sqlite3.Connection, after: int, until: int, model: str) -> int:
    """Blocks with ``after < seq <= until``."""
    try:
        row = db.execute(
            "SELECT coalesce(sum(rows), 0) FROM block"
            " WHERE seq > ? AND seq <= ? AND kind = 'records' AND model = ?",
            (after, until, model),
        ).fetchone()
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        return 0  # nobody can say how many there were on a broken page
    return int(row[0])


def is_corrupt(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _checked(db: sqlite3.Connection, row: tuple[int, Kind, str, int, int, bytes, int | None]) -> Block:
    """A block whose checksum differs is damaged."""
    seq, kind, model, received_us, rows, payload, stored = row
    try:
        if stored == checksum(kind, model, received_us, rows, payload):
            return Block(seq, kind, model, received_us, rows, payload)
    except (AttributeError, TypeError):  # even the types of its columns are others
        pass
    damage = f"its checksum is not the one stored with it: bits have changed on the disk ({rows} records)"
    # As `count_records` counts them, unless that number is what has changed.
    is_sound = kind == "records" and isinstance(payload, bytes) and rows in range(len(payload) + 1)
    return Block(seq, "records", str(model), _time_near(db, seq), rows if is_sound else 0, b"", damage)


def _time_near(db: sqlite3.Connection, seq: int) -> int:
    """Time of receipt of a neighbour, as that of a damaged block is not reliable."""
    for where in ("seq < ? ORDER BY seq DESC", "seq > ? ORDER BY seq"):
        with contextlib.suppress(sqlite3.DatabaseError, TypeError, ValueError):
            row = db.execute(f"SELECT received_us FROM block WHERE {where} LIMIT 1", (seq,)).fetchone()
            if row is not None:
                return int(row[0])
    return time.time_ns() // 1000


def _read_past(db: sqlite3.Connection, after: int, model: str | None, error: sqlite3.Error) -> list[Block]:
    """Next block by number, when SQLite cannot iterate; as damaged, of whatever model is asked for."""
    for seq in range(after + 1, last_seq(db) + 1):
        try:
            row = db.execute(f"SELECT {_BLOCK} FROM block WHERE seq = ?", (seq,)).fetchone()
        except sqlite3.DatabaseError:
            reason = f"its pages cannot be read: {error}"
            return [Block(seq, "records", model or "", _time_near(db, seq), 0, b"", reason)]
        if row is not None and (model is None or row[2] in (model, "")):
            return [_checked(db, row)]
    return []


# ---- expiry --------------------------------------------------------------------------------------------


def delete(db: sqlite3.Connection, seqs: Iterable[int]) -> int:
    return max(0, db.executemany("DELETE FROM block WHERE seq = ?", ((seq,) for seq in seqs)).rowcount)


def keep(db: sqlite3.Connection, kept: Mapping[int, tuple[int, bytes]]) -> None:
    """Remainders of blocks, as (rows, payload), of kind ``kept``."""
    _replace(db, kept, kind="kept")


def replace(db: sqlite3.Connection, blocks: Mapping[int, tuple[int, bytes]]) -> None:
    """New (rows, payload) of blocks; kinds stay."""
    _replace(db, blocks, kind=None)


def _replace(db: sqlite3.Connection, blocks: Mapping[int, tuple[int, bytes]], *, kind: Kind | None) -> None:
    for seq, (rows, payload) in blocks.items():
        found = db.execute("SELECT kind, model, received_us FROM block WHERE seq = ?", (seq,)).fetchone()
        if found is None:
            continue
        kind_now, model, received_us = kind or found[0], found[1], found[2]
        db.execute(
            "UPDATE block SET kind = ?, rows = ?, payload = ?, checksum = ? WHERE seq = ?",
            (kind_now, rows, payload, checksum(kind_now, model, received_us, rows, payload), seq),
        )


# ---- schemas -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchemaSeen:
    model: str
    digest: str
    payload: bytes
    first_seq: int


def remember_schema(db: sqlite3.Connection, model: str, digest: str, schema: bytes, seq: int) -> None:
    """In the open transaction. ``seq`` 0, of a half, stands for the next block."""
    seq = seq or last_seq(db) + 1
    db.execute("INSERT OR IGNORE INTO schema_seen VALUES (?, ?, ?, ?)", (model, digest, schema, seq))


def read_schemas(db: sqlite3.Connection) -> list[SchemaSeen]:
    """Oldest first."""
    rows = db.execute("SELECT model, digest, payload, first_seq FROM schema_seen ORDER BY first_seq, rowid")
    return [SchemaSeen(*row) for row in rows]
