"""Journal: every block of traffic and labels, in order.

Durable before it is acknowledged.

SQLite in WAL mode with ``synchronous=FULL``: measured in simulated power cuts, ``NORMAL`` loses acknowledged
blocks and ``FULL`` loses none. One writer (intake), any number of readers in other processes.
"""

import contextlib
import errno
import os
import sqlite3
import threading
import time
import uuid as uuid_module
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, Self

from outrider.dataops.state.clock import Step
from outrider.errors import JournalFull, JournalUnreadable

from .notes import TABLE as NOTE_TABLE
from .notes import Note, Notes
from .notes import read as read_notes
from .notes import write as write_notes

TYPE_OF_FILE = 0x4F555452  # "OUTR": SQLite's application_id, so that a foreign file is told apart
FORMAT_VERSION = 2
PAGE_BYTES = 16_384
"""Of a new file. Blocks of 100 kB cost half as much as with 4 or 8 KiB; a single record three pages."""
_LOG_BYTES = 16_777_216
READ_BYTES = 33_554_432
"""A read stops early after this many payload bytes, so that 64 large blocks never stand in memory."""

Kind = Literal["records", "labels", "tick", "kept", "step"]
"""``kept``: records of which only some payloads are left; nobody judges them again. ``step``: see `clock`."""
_BLOCK = "seq, kind, model, received_us, rows, payload, checksum"
_HALF = "model, key, side, received_us, due_us, digest, payload"
_HALF_TABLES = (
    "CREATE TABLE half (model TEXT NOT NULL, key TEXT NOT NULL, side TEXT NOT NULL,"
    " received_us INTEGER NOT NULL, due_us INTEGER NOT NULL, digest TEXT NOT NULL, payload BLOB NOT NULL,"
    " PRIMARY KEY (model, key, side))",
    # Apart: whoever looks for what is due does not read past all that is done.
    "CREATE INDEX half_due ON half (due_us) WHERE side != 'done'",
    "CREATE INDEX half_done ON half (due_us) WHERE side = 'done'",
)
NONE = Notes()
_THROUGH = "expired:"
_NOTHING: Mapping[int, tuple[int, bytes]] = MappingProxyType({})
_NOWHERE: Mapping[str, int] = MappingProxyType({})
_STEP = "step:"
_CLOCK = "clock"
DONE = "done"
"""In place of a side: which sides of a key have become records, so that a repeat of one is told."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry to append: one block of one model.

    Parameters
    ----------
    kind
        ``records``, ``labels``, ``tick`` (time passed and nothing came; model ``""``, no payload), or
        ``step`` (the clock was set; model ``""``): see `step_entry`.
    model
        Name of the model.
    rows
        Rows in the payload.
    payload
        Arrow IPC stream.
    digest, schema
        Digest of the payload's schema and the serialized schema itself. A digest not seen before is
        remembered in the same commit; ``""`` remembers nothing.
    """

    kind: Kind
    model: str
    rows: int
    payload: bytes
    digest: str = ""
    schema: bytes = b""


@dataclass(frozen=True, slots=True)
class Block:
    """Block as read: an entry with number and receive time.

    Times are µs since the epoch, UTC.

    ``damage`` says what is wrong with a block that is not what was written; it has no payload then, the time
    of the block before it, and whatever else can still be read of it.
    """

    seq: int
    kind: Kind
    model: str
    received_us: int
    rows: int
    payload: bytes
    damage: str = ""


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """A block without its payload, but with its size."""

    seq: int
    kind: Kind
    model: str
    received_us: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Half:
    """Unmatched side of a record, request or response; no block yet.

    Parameters
    ----------
    model, key
        What both sides share.
    side
        ``request``, ``response``, or ``done`` for what is remembered of a key behind that.
    received_us, due_us
        When it came, and when it is given up waiting (µs since the epoch, UTC).
    payload
        What the writer makes of it.
    digest, schema
        As of an `Entry`: remembered with the first half that has them. ``schema`` is not read back.
    """

    model: str
    key: str
    side: str
    received_us: int
    due_us: int
    payload: bytes
    digest: str = ""
    schema: bytes = b""


@dataclass(frozen=True, slots=True)
class SchemaSeen:
    """A schema that a model had, from block ``first_seq`` on."""

    model: str
    digest: str
    payload: bytes
    first_seq: int


class Journal(Protocol):
    """An ordered, durable sequence of blocks with one writer."""

    @property
    def uuid(self) -> str:
        """Identity of this journal, made once.

        Cursors elsewhere carry it.
        """

    def append(
        self,
        entries: Sequence[Entry],
        received_us: int,
        *,
        keep: Sequence[Half] = (),
        drop: Sequence[Half] = (),
        forget_us: int = 0,
        notes: Notes = NONE,
    ) -> list[int]:
        """Append all entries in one durable commit; return their numbers.

        Raises JournalFull.

        The same commit puts away the halves ``keep``, removes ``drop``, forgets what was done by
        ``forget_us``, and writes ``notes``.
        """

    def notes(self, *, of_columns: bool = False) -> list[Note]:
        """Return the notes on columns, or all others, oldest first."""

    def halves(self, model: str, keys: Sequence[str]) -> list[Half]:
        """Return the unmatched sides under these keys."""

    def due_halves(self, until_us: int, *, limit: int = 256) -> list[Half]:
        """Return halves given up by ``until_us``, oldest first."""

    def read(self, after: int, *, limit: int = 64, model: str | None = None) -> list[Block]:
        """Return blocks with ``seq > after`` in order.

        With ``model``, that model's blocks and the ticks.
        """

    def get(self, seq: int) -> Block:
        """Return one block.

        KeyError when it never was, has expired, or is damaged.
        """

    def last_seq(self) -> int:
        """Return the highest sequence number ever given out.

        0 for an empty journal.
        """

    def count_records(self, after: int, until: int, *, model: str) -> int:
        """Return the number of a model's records between two blocks.

        In blocks with ``after < seq <= until``.
        """

    def steps(self) -> list[Step]:
        """Return every step of the clock of receipt, in order."""

    def note_clock(self, note: str) -> None:
        """Note where the clocks stand, for the process that comes next."""

    def schemas(self) -> list[SchemaSeen]:
        """Return every schema seen, oldest first."""

    def expire(
        self,
        seqs: Iterable[int],
        *,
        kept: Mapping[int, tuple[int, bytes]] = _NOTHING,
        through: Mapping[str, int] = _NOWHERE,
    ) -> int:
        """Delete blocks for good and return their number.

        Sequence numbers are never reused.

        The same commit leaves only (rows, payload) of the blocks ``kept``, and notes ``through``.
        """

    def room_bytes(self) -> int:
        """Bytes that can still be appended; 0 or less when full."""

    def close(self) -> None:
        """Release the file; a closed journal cannot be used again."""


class SqliteJournal:
    """The journal in one SQLite file.

    Parameters
    ----------
    path
        The file; made with its folder when missing, unless ``read_only``.
    max_bytes
        Upper bound of the file's size; None for no bound. Beyond it `append` raises JournalFull.
    min_free_bytes
        Free disk space below which `append` raises JournalFull. The reserve lets expiry work on a full
        disk: SQLite in WAL mode needs room even to delete.
    read_only
        For readers in other processes: nothing can be written through this object.

    Raises
    ------
    JournalUnreadable
        If the file is missing (``read_only``), damaged, or belongs to another program or format.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, SqliteJournal(f"{folder}/journal.db") as journal:
    ...     journal.append([Entry("records", "churn", 2, b"arrow")], received_us=1)
    ...     [block.payload for block in journal.read(after=0)]
    [1]
    [b'arrow']
    """

    def __init__(
        self,
        path: Path | str,
        *,
        max_bytes: int | None = None,
        min_free_bytes: int = 0,
        read_only: bool = False,
    ) -> None:
        self.path = Path(path)
        self._min_free_bytes = min_free_bytes
        self._read_only = read_only
        self._lock = threading.Lock()
        if read_only and not self.path.is_file():
            raise JournalUnreadable(
                f"{self.path} does not exist; intake makes it at its first start: is `outrider serve`"
                " running?"
            )
        if not read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = _connect(self.path, read_only=read_only)
        except sqlite3.Error as error:
            raise JournalUnreadable(f"{self.path} cannot be opened: {error}") from error
        try:
            self._prepare(max_bytes)
            self.uuid = self._read_uuid()
            self._digests = {(seen.model, seen.digest) for seen in self.schemas()}
        except sqlite3.DatabaseError as error:
            self._db.close()
            if _is_full(error):
                raise JournalFull(f"{self.path} cannot be made: no room on the disk") from error
            raise JournalUnreadable(
                f"{self.path} is not a readable Outrider journal ({error}); restore it from a backup, or"
                " move it away to start an empty one"
            ) from error
        except JournalUnreadable:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(
        self,
        entries: Sequence[Entry],
        received_us: int,
        *,
        keep: Sequence[Half] = (),
        drop: Sequence[Half] = (),
        forget_us: int = 0,
        notes: Notes = NONE,
    ) -> list[int]:
        """Write all entries in one durable commit.

        Parameters
        ----------
        entries
            Blocks in the order in which they are to be read.
        received_us
            Time of receipt, µs since the epoch, UTC.
        keep, drop
            Halves put away and removed in the same commit; one of the same side and key is replaced.
        forget_us
            Also removed: halves of side ``done`` that are due by then.
        notes
            Written and removed in the same commit.

        Returns
        -------
        list of int
            One sequence number per entry, ascending.

        Raises
        ------
        JournalFull
            Nothing was written; a later call succeeds once there is room again.
        """
        self._check_disk()
        fresh: list[tuple[str, str]] = []
        with self._lock, self._full_is_journal_full(), self._transaction():
            seqs = [self._insert(entry, received_us) for entry in entries]
            for entry, seq in zip(entries, seqs, strict=True):
                if entry.kind == "step":
                    self._step(Step(seq, int(entry.payload), received_us))
            if keep or drop or forget_us:
                self._change_halves(keep, drop, forget_us)
            write_notes(self._db, notes)
            # Halves first: what became a block was built with all that they brought.
            begin = seqs[0] if seqs else 0
            brought: list[tuple[Half | Entry, int]] = [(half, begin) for half in keep]
            for one, seq in [*brought, *zip(entries, seqs, strict=True)]:
                key = (one.model, one.digest)
                if one.digest and key not in self._digests and key not in fresh:
                    self._remember(*key, one.schema, seq)
                    fresh.append(key)
        self._digests.update(fresh)
        return seqs

    def notes(self, *, of_columns: bool = False) -> list[Note]:
        """Return the notes on columns, or all others, oldest first."""
        with self._lock:
            return read_notes(self._db, of_columns=of_columns)

    def halves(self, model: str, keys: Sequence[str]) -> list[Half]:
        """Return the unmatched sides under these keys, unordered."""
        found: list[Half] = []
        with self._lock:
            for start in range(0, len(keys), 500):
                part = keys[start : start + 500]
                marks = ", ".join("?" * len(part))
                rows = self._db.execute(
                    f"SELECT {_HALF} FROM half WHERE model = ? AND key IN ({marks})", (model, *part)
                )
                found += map(_half, rows)
        return found

    def due_halves(self, until_us: int, *, limit: int = 256) -> list[Half]:
        """Return at most ``limit`` halves due by ``until_us``, oldest first.

        None of side ``done``.

        Fewer when their payloads exceed 32 MiB together.
        """
        found: list[Half] = []
        room = READ_BYTES
        with self._lock:
            rows = self._db.execute(
                f"SELECT {_HALF} FROM half WHERE side != 'done' AND due_us <= ? ORDER BY due_us LIMIT ?",
                (until_us, limit),
            )
            for row in rows:
                found.append(_half(row))
                room -= len(found[-1].payload)
                if room <= 0:
                    break
            rows.close()
        return found

    def read(self, after: int, *, limit: int = 64, model: str | None = None) -> list[Block]:
        """Return blocks with ``seq > after``, in order.

        Parameters
        ----------
        after
            Last sequence number already read; 0 starts at the beginning.
        limit
            At most this many blocks; fewer when their payloads exceed 32 MiB together.
        model
            Only blocks of this model, and the ticks (time passes for every model).

        Returns
        -------
        list of Block
            Empty when there is nothing new. Blocks whose checksum does not match, or whose pages SQLite
            cannot read, come as damaged ones in their places.
        """
        where, arguments = ("", ()) if model is None else (" AND model IN (?, '')", (model,))
        blocks: list[Block] = []
        room = READ_BYTES
        with self._lock:
            try:
                rows = self._db.execute(
                    f"SELECT {_BLOCK} FROM block WHERE seq > ?{where} ORDER BY seq LIMIT ?",
                    (after, *arguments, limit),
                )
                for row in rows:
                    blocks.append(self._block(row))
                    room -= len(row[5])
                    if room <= 0:
                        break
                rows.close()
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                if not blocks:  # else they come first
                    blocks = self._read_past(after, model, error)
        return blocks

    def get(self, seq: int) -> Block:
        """Return one block.

        Raises
        ------
        KeyError
            If there never was such a block, it has expired, or is damaged.
        """
        with self._lock:
            try:
                row = self._db.execute(f"SELECT {_BLOCK} FROM block WHERE seq = ?", (seq,)).fetchone()
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                raise KeyError(f"block {seq} is damaged: {error}") from None
            block = None if row is None else self._block(row)
        if block is None:
            raise KeyError(f"block {seq} is not in the journal: it expired, or was never written")
        if block.damage:
            raise KeyError(f"block {seq} is damaged: {block.damage}")
        return block

    def last_seq(self) -> int:
        """Return the highest sequence number ever given out.

        Expired blocks included; 0 when none was.
        """
        with self._lock:
            return self._last_seq()

    def last_work_seq(self) -> int:
        """Return the highest sequence number of a block to judge.

        Ticks are no such blocks; 0 when there is none.
        """
        with self._lock:
            row = self._db.execute(
                "SELECT seq FROM block WHERE kind != 'tick' ORDER BY seq DESC LIMIT 1"
            ).fetchone()
        return int(row[0]) if row else 0

    def count_records(self, after: int, until: int, *, model: str) -> int:
        """Return the number of a model's records between two blocks.

        In blocks with ``after < seq <= until``.
        """
        with self._lock:
            try:
                row = self._db.execute(
                    "SELECT coalesce(sum(rows), 0) FROM block"
                    " WHERE seq > ? AND seq <= ? AND kind = 'records' AND model = ?",
                    (after, until, model),
                ).fetchone()
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                return 0  # nobody can say how many there were on a broken page
        return int(row[0])

    def steps(self) -> list[Step]:
        """Return every step of the clock of receipt, in order.

        Steps never expire.
        """
        with self._lock:
            rows = self._db.execute(
                "SELECT key, value FROM meta WHERE key >= ? AND key < ?", (_STEP, _STEP + "~")
            ).fetchall()
        steps = (Step(int(key.removeprefix(_STEP)), *map(int, value.split())) for key, value in rows)
        return sorted(steps, key=lambda step: step.seq)

    def clock_note(self) -> str:
        """Return the last note of :meth:`note_clock`; ``""`` if none."""
        with self._lock:
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (_CLOCK,)).fetchone()
        return str(row[0]) if row else ""

    def note_clock(self, note: str) -> None:
        """Note where the clocks stand, for the process that comes next."""
        with self._lock, self._full_is_journal_full(), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_CLOCK, note))

    def schemas(self) -> list[SchemaSeen]:
        """Return every schema seen, oldest first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT model, digest, payload, first_seq FROM schema_seen ORDER BY first_seq, rowid"
            ).fetchall()
        return [SchemaSeen(*row) for row in rows]

    def outline(self, model: str, *, after: int, until: int, limit: int, rows: int) -> list[BlockInfo]:
        """Return a model's blocks without payloads, in order.

        Those with ``after < seq <= until``.

        Parameters
        ----------
        limit, rows
            At most so many blocks, and no further block once they have so many rows together.
        """
        found: list[BlockInfo] = []
        with self._lock:
            cursor = self._db.execute(
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

    def expire(
        self,
        seqs: Iterable[int],
        *,
        kept: Mapping[int, tuple[int, bytes]] = _NOTHING,
        through: Mapping[str, int] = _NOWHERE,
    ) -> int:
        """Delete blocks for good; their pages are reused, their numbers never.

        Parameters
        ----------
        seqs
            Sequence numbers; unknown ones are ignored. The caller sees to it that no cursor still needs them.
        kept
            Blocks that stay as ``kept``: how many rows are left of them, and the new payload.
        through
            By model, up to which block this has been done: `expired_through` returns it.

        Returns
        -------
        int
            How many blocks were deleted.
        """
        with self._lock, self._full_is_journal_full(), self._transaction():
            deleted = self._db.executemany("DELETE FROM block WHERE seq = ?", ((seq,) for seq in seqs))
            for seq, (rows, payload) in kept.items():
                self._keep(seq, rows, payload)
            self._db.executemany(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)",
                [(f"{_THROUGH}{model}", str(seq)) for model, seq in through.items()],
            )
            return max(0, deleted.rowcount)

    def _keep(self, seq: int, rows: int, payload: bytes) -> None:
        """Put what is left of a block in its place."""
        about = self._db.execute("SELECT model, received_us FROM block WHERE seq = ?", (seq,)).fetchone()
        if about is not None:
            self._db.execute(
                "UPDATE block SET kind = 'kept', rows = ?, payload = ?, checksum = ? WHERE seq = ?",
                (rows, payload, checksum("kept", about[0], about[1], rows, payload), seq),
            )

    def expired_through(self) -> dict[str, int]:
        """Return the last block that expiry has visited, by model.

        Younger blocks are whole.
        """
        with self._lock:
            rows = self._db.execute(
                "SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", (len(_THROUGH), _THROUGH)
            ).fetchall()
        return {key.removeprefix(_THROUGH): int(value) for key, value in rows}

    def used_bytes(self) -> int:
        """Bytes in use in the file.

        Expired blocks leave room inside it.
        """
        with self._lock:
            pages, free = (
                int(self._db.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count")
            )
        return (pages - free) * self._page_bytes

    def room_bytes(self) -> int:
        """Bytes that can still be appended.

        The smaller of the file's own bound and the free disk.
        """
        with self._lock:
            used, free, most = (
                int(self._db.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "max_page_count")
            )
        return min((most - used + free) * self._page_bytes, self._disk_free() - self._min_free_bytes)

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._db.close()

    def _last_seq(self) -> int:
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'block'").fetchone()
        return int(row[0]) if row else 0

    def _step(self, step: Step) -> None:
        """Note a step where it is found without reading through the blocks; what waits, waits on as long."""
        value = f"{step.by_us} {step.received_us}"
        self._db.execute("INSERT INTO meta VALUES (?, ?)", (f"{_STEP}{step.seq}", value))
        moved = (step.by_us, step.by_us)
        self._db.execute("UPDATE half SET received_us = received_us + ?, due_us = due_us + ?", moved)
        self._db.execute("UPDATE note SET received_us = received_us + ?", moved[:1])

    def _change_halves(self, keep: Sequence[Half], drop: Sequence[Half], forget_us: int) -> None:
        self._db.executemany(
            "DELETE FROM half WHERE model = ? AND key = ? AND side = ?",
            [(half.model, half.key, half.side) for half in drop],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO half VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(h.model, h.key, h.side, h.received_us, h.due_us, h.digest, h.payload) for h in keep],
        )
        if forget_us:
            self._db.execute("DELETE FROM half WHERE side = 'done' AND due_us <= ?", (forget_us,))

    def _remember(self, model: str, digest: str, schema: bytes, seq: int) -> None:
        """Note a schema; one of a half (``seq`` 0) is of the block that comes next."""
        seq = seq or self._last_seq() + 1
        self._db.execute(
            "INSERT OR IGNORE INTO schema_seen VALUES (?, ?, ?, ?)", (model, digest, schema, seq)
        )

    def _block(self, row: tuple[int, Kind, str, int, int, bytes, int | None]) -> Block:
        """Block of a row, checked; those of format 1 have no checksum."""
        seq, kind, model, received_us, rows, payload, stored = row
        try:
            if stored is None or stored == checksum(kind, model, received_us, rows, payload):
                return Block(seq, kind, model, received_us, rows, payload)
        except (AttributeError, TypeError):  # even the types of its columns are others
            pass
        damage = f"its checksum is not the one stored with it: bits have changed on the disk ({rows} records)"
        # As `count_records` counts them, unless that number is what has changed.
        is_sound = kind == "records" and isinstance(payload, bytes) and rows in range(len(payload) + 1)
        return Block(seq, "records", str(model), self._time_near(seq), rows if is_sound else 0, b"", damage)

    def _time_near(self, seq: int) -> int:
        """Time of receipt of a neighbour: that of a damaged block is not to be trusted."""
        for where in ("seq < ? ORDER BY seq DESC", "seq > ? ORDER BY seq"):
            with contextlib.suppress(sqlite3.DatabaseError, TypeError, ValueError):
                row = self._db.execute(
                    f"SELECT received_us FROM block WHERE {where} LIMIT 1", (seq,)
                ).fetchone()
                if row is not None:
                    return int(row[0])
        return time.time_ns() // 1000

    def _read_past(self, after: int, model: str | None, error: sqlite3.Error) -> list[Block]:
        """The next block by its number, where SQLite cannot go through them in order.

        It is a damaged one, of whatever model is asked for: what is on a broken page, nobody knows.
        """
        for seq in range(after + 1, self._last_seq() + 1):
            try:
                row = self._db.execute(f"SELECT {_BLOCK} FROM block WHERE seq = ?", (seq,)).fetchone()
            except sqlite3.DatabaseError:
                reason = f"its pages cannot be read: {error}"
                return [Block(seq, "records", model or "", self._time_near(seq), 0, b"", reason)]
            if row is not None and (model is None or row[2] in (model, "")):
                return [self._block(row)]
        return []

    def _insert(self, entry: Entry, received_us: int) -> int:
        sum_ = checksum(entry.kind, entry.model, received_us, entry.rows, entry.payload)
        row = (entry.kind, entry.model, received_us, entry.rows, entry.payload, sum_)
        cursor = self._db.execute(
            "INSERT INTO block (kind, model, received_us, rows, payload, checksum) VALUES (?, ?, ?, ?, ?, ?)",
            row,
        )
        return int(cursor.lastrowid or 0)

    def _prepare(self, max_bytes: int | None) -> None:
        found = int(self._db.execute("PRAGMA application_id").fetchone()[0])
        objects = int(self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
        if found == 0 and objects == 0 and not self._read_only:
            self._create()
        elif found != TYPE_OF_FILE:
            raise JournalUnreadable(
                f"{self.path} is a SQLite file of another program; name another storage.folder, or move it"
                " away"
            )
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version == 1 and not self._read_only:
            self._upgrade()
        elif version != FORMAT_VERSION:
            raise JournalUnreadable(
                f"{self.path} has journal format {version}, this release reads {FORMAT_VERSION}"
            )
        self._page_bytes = int(self._db.execute("PRAGMA page_size").fetchone()[0])
        if not self._read_only:
            # FULL: fsync of the write-ahead log at every commit, before anything is acknowledged.
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // self._page_bytes}")
            self._db.execute("PRAGMA journal_size_limit = 67108864")
            if max_bytes is not None:
                self._db.execute(f"PRAGMA max_page_count = {max(1, max_bytes // self._page_bytes)}")

    def _create(self) -> None:
        self._db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            self._db.execute(
                "CREATE TABLE block (seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,"
                " model TEXT NOT NULL, received_us INTEGER NOT NULL, rows INTEGER NOT NULL,"
                " payload BLOB NOT NULL, checksum INTEGER)"
            )
            for statement in (*_HALF_TABLES, NOTE_TABLE):
                self._db.execute(statement)
            self._db.execute(
                "CREATE TABLE schema_seen (model TEXT NOT NULL, digest TEXT NOT NULL, payload BLOB NOT NULL,"
                " first_seq INTEGER NOT NULL, PRIMARY KEY (model, digest))"
            )
            self._db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self._db.execute("INSERT INTO meta VALUES ('uuid', ?)", (str(uuid_module.uuid4()),))
            # Last, in the same transaction: a half-made file is never taken for a journal.
            self._db.execute(f"PRAGMA application_id = {TYPE_OF_FILE}")
            self._db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _upgrade(self) -> None:
        """From format 1: blocks written before have no checksum and are not checked."""
        with self._transaction():
            self._db.execute("ALTER TABLE block ADD COLUMN checksum INTEGER")
            for statement in (*_HALF_TABLES, NOTE_TABLE):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _read_uuid(self) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key = 'uuid'").fetchone()
        if row is None:
            raise JournalUnreadable(
                f"{self.path} has lost its identity (meta.uuid); restore it from a backup"
            )
        return str(row[0])

    def _disk_free(self) -> int:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize

    def _check_disk(self) -> None:
        free = self._disk_free()
        if free < self._min_free_bytes:
            raise JournalFull(
                f"{free} bytes free on the disk of {self.path}, storage.min_free_bytes is"
                f" {self._min_free_bytes}; free some space or move storage.folder"
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite itself rolls back on some errors
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _full_is_journal_full(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if not _is_full(error):
                raise
            raise JournalFull(
                f"{self.path} cannot grow: the disk or storage.journal_max_bytes is exhausted; it takes"
                " records again when old blocks expire or space is freed"
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise JournalFull(f"{self.path} cannot grow: {error.strerror}") from error


def step_entry(by_us: int) -> Entry:
    """The border that a clock leaves which was set by so much."""
    return Entry("step", "", 0, str(by_us).encode())


def checksum(kind: str, model: str, received_us: int, rows: int, payload: bytes) -> int:
    """CRC-32 of a block, to detect a flipped bit in storage."""
    return zlib.crc32(payload, zlib.crc32(f"{kind}\0{model}\0{received_us:d}\0{rows:d}".encode()))


def _half(row: tuple[str, str, str, int, int, str, bytes]) -> Half:
    model, key, side, received_us, due_us, digest, payload = row
    return Half(model, key, side, received_us, due_us, payload, digest)


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    # A reader opens read-write and sets query_only: mode=ro cannot make the shared-memory file of the log
    # when it is the first to come after a crash.
    mode = "rw" if read_only else "rwc"
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)
    if read_only:
        db.execute("PRAGMA query_only = ON")
    return db


def _is_corrupt(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _is_full(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
