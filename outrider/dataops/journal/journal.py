"""Journal: traffic and labels in order, durable before acknowledged.

One SQLite file (`journal_file`) with one writer (intake) and any number of readers in other processes: blocks
(`entries`, `block_rows`), `schemas`, and what is no block yet (`halves`, `notes`).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self

from outrider.dataops.state.clock import Step

from . import block_rows
from . import halves as half_rows
from . import notes as note_rows
from . import schemas as schema_rows
from .block_rows import READ_BYTES
from .entries import Block, BlockInfo, Entry, Kind, checksum, step_entry
from .halves import DONE, Half
from .journal_file import FORMAT_VERSION, PAGE_BYTES, TYPE_OF_FILE, JournalFile
from .notes import Note, Notes
from .schemas import SchemaSeen

__all__ = [
    "DONE",
    "FORMAT_VERSION",
    "NONE",
    "PAGE_BYTES",
    "TYPE_OF_FILE",
    "Block",
    "BlockInfo",
    "Entry",
    "Half",
    "Journal",
    "Kind",
    "SchemaSeen",
    "SqliteJournal",
    "checksum",
    "step_entry",
]

NONE = Notes()
_THROUGH = "expired:"
_NOTHING: Mapping[int, tuple[int, bytes]] = MappingProxyType({})
_NOWHERE: Mapping[str, int] = MappingProxyType({})
_STEP = "step:"
_CLOCK = "clock"


class Journal(Protocol):
    """An ordered, durable sequence of blocks with one writer."""

    @property
    def uuid(self) -> str:
        """Identity made once, which cursors elsewhere carry."""

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
        """Append all entries in one durable commit; raises JournalFull.

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
        """Return blocks with ``seq > after`` in order. With ``model``, that model's blocks and the ticks."""

    def get(self, seq: int) -> Block:
        """Return one block.

        KeyError when it never was, has expired, or is damaged.
        """

    def last_seq(self) -> int:
        """Return the highest sequence number ever given out. 0 for an empty journal."""

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
        """Delete blocks for good, never reusing numbers; return their number.

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
        self._file = JournalFile(
            self.path, max_bytes=max_bytes, min_free_bytes=min_free_bytes, read_only=read_only
        )
        self._db, self._lock, self.uuid = self._file.db, self._file.lock, self._file.uuid
        self._digests = {(seen.model, seen.digest) for seen in self._file.schemas}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- append ----------------------------------------------------------------------------------------

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
        received_us
            Time of receipt, µs since the epoch, UTC.
        keep, drop
            Halves put away and removed in the same commit; one of the same side and key is replaced.
        forget_us
            Also removed: halves of side ``done`` that are due by then.

        Returns
        -------
        list of int
            One sequence number per entry, ascending.

        Raises
        ------
        JournalFull
            Nothing was written; a later call succeeds once there is room again.
        """
        self._file.check_disk()
        fresh: list[tuple[str, str]] = []
        with self._file.write():
            seqs = [block_rows.insert(self._db, entry, received_us) for entry in entries]
            for entry, seq in zip(entries, seqs, strict=True):
                if entry.kind == "step":
                    self._step(Step(seq, int(entry.payload), received_us))
            if keep or drop or forget_us:
                half_rows.change(self._db, keep, drop, forget_us)
            note_rows.write(self._db, notes)
            # Halves first: what became a block was built with all that they brought.
            begin = seqs[0] if seqs else 0
            brought: list[tuple[Half | Entry, int]] = [(half, begin) for half in keep]
            for one, seq in [*brought, *zip(entries, seqs, strict=True)]:
                key = (one.model, one.digest)
                if one.digest and key not in self._digests and key not in fresh:
                    schema_rows.remember(self._db, *key, one.schema, seq)
                    fresh.append(key)
        self._digests.update(fresh)
        return seqs

    def note_clock(self, note: str) -> None:
        """Note where the clocks stand, for the process that comes next."""
        with self._file.write():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_CLOCK, note))

    def _step(self, step: Step) -> None:
        """Note a step where it is found without reading through the blocks; what waits, waits on as long."""
        value = f"{step.by_us} {step.received_us}"
        self._db.execute("INSERT INTO meta VALUES (?, ?)", (f"{_STEP}{step.seq}", value))
        half_rows.shift(self._db, step.by_us)
        note_rows.shift(self._db, step.by_us)

    # ---- read ------------------------------------------------------------------------------------------

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
        with self._lock:
            return block_rows.read(self._db, after, limit=limit, model=model)

    def get(self, seq: int) -> Block:
        """Return one block.

        Raises
        ------
        KeyError
            If there never was such a block, it has expired, or is damaged.
        """
        with self._lock:
            return block_rows.get(self._db, seq)

    def last_seq(self) -> int:
        """Return the highest sequence number ever given out. Expired blocks included; 0 when none was."""
        with self._lock:
            return block_rows.last_seq(self._db)

    def last_work_seq(self) -> int:
        """Return the highest sequence number of a block to judge.

        Ticks are no such blocks; 0 when there is none.
        """
        with self._lock:
            return block_rows.last_work_seq(self._db)

    def count_records(self, after: int, until: int, *, model: str) -> int:
        """Return the number of a model's records between two blocks.

        In blocks with ``after < seq <= until``.
        """
        with self._lock:
            return block_rows.count_records(self._db, after, until, model)

    def outline(self, model: str, *, after: int, until: int, limit: int, rows: int) -> list[BlockInfo]:
        """Return blocks without payloads, ``after < seq <= until``, in order.

        Parameters
        ----------
        limit, rows
            At most so many blocks, and no further block once they have so many rows together.
        """
        with self._lock:
            return block_rows.outline(self._db, model, after=after, until=until, limit=limit, rows=rows)

    def notes(self, *, of_columns: bool = False) -> list[Note]:
        """Return the notes on columns, or all others, oldest first."""
        with self._lock:
            return note_rows.read(self._db, of_columns=of_columns)

    def halves(self, model: str, keys: Sequence[str]) -> list[Half]:
        """Return the unmatched sides under these keys, unordered."""
        with self._lock:
            return half_rows.find(self._db, model, keys)

    def due_halves(self, until_us: int, *, limit: int = 256) -> list[Half]:
        """Return at most ``limit`` halves due by ``until_us``, oldest first.

        None of side ``done``. Fewer when their payloads exceed 32 MiB together.
        """
        with self._lock:
            return half_rows.due(self._db, until_us, limit=limit, max_bytes=READ_BYTES)

    def steps(self) -> list[Step]:
        """Return all steps of the receipt clock, never expired, in order."""
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

    def schemas(self) -> list[SchemaSeen]:
        """Return every schema seen, oldest first."""
        with self._lock:
            return schema_rows.read(self._db)

    # ---- expire ----------------------------------------------------------------------------------------

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
        with self._file.write():
            deleted = block_rows.delete(self._db, seqs)
            block_rows.keep(self._db, kept)
            self._db.executemany(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)",
                [(f"{_THROUGH}{model}", str(seq)) for model, seq in through.items()],
            )
            return deleted

    def erase(
        self,
        blocks: Mapping[int, tuple[int, bytes]],
        *,
        halves: Iterable[tuple[str, str]] = (),
        notes: Sequence[str] = (),
    ) -> None:
        """Replace contents of blocks and remove waiting sides, in one commit.

        Blocks keep number and kind.

        Parameters
        ----------
        blocks
            By number, how many rows it has and its new payload.
        halves
            Model and key of sides of records; both sides go.
        notes
            Names of notes.
        """
        with self._file.write():
            block_rows.replace(self._db, blocks)
            self._db.executemany("DELETE FROM half WHERE model = ? AND key = ?", list(halves))
            note_rows.write(self._db, Notes(remove=notes))

    def waiting(self) -> list[Half]:
        """Return every side that waits or is remembered, in no order."""
        with self._lock:
            return half_rows.read(self._db)

    def expired_through(self) -> dict[str, int]:
        """Return the last block that expiry visited, younger untouched, by model."""
        with self._lock:
            rows = self._db.execute(
                "SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", (len(_THROUGH), _THROUGH)
            ).fetchall()
        return {key.removeprefix(_THROUGH): int(value) for key, value in rows}

    def used_bytes(self) -> int:
        """Bytes in use in the file, without the room of expired blocks."""
        return self._file.used_bytes()

    def room_bytes(self) -> int:
        """Bytes still appendable: own bound or free disk, the smaller."""
        return self._file.room_bytes()

    def close(self) -> None:
        """Release the file."""
        self._file.close()
