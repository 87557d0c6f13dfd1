"""Journal: traffic and labels in order, durable before acknowledged.

One SQLite file with one writer (intake) and any number of readers in other processes.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self

from outrider.dataops.state.clock import Step

from . import block_rows
from . import halves as half_rows
from . import notes as note_rows
from .block_rows import READ_BYTES, SchemaSeen
from .entries import Block, BlockInfo, Entry, Kind, checksum, step_entry
from .halves import DONE, Half
from .journal_file import FORMAT_VERSION, PAGE_BYTES, TYPE_OF_FILE, JournalFile
from .notes import Note, Notes

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
        """One durable commit for all; raises JournalFull."""

    def notes(self, *, of_columns: bool = False) -> list[Note]:
        """Notes on columns, or all others, oldest first."""

    def halves(self, model: str, keys: Sequence[str]) -> list[Half]: ...

    def due_halves(self, until_us: int, *, limit: int = 256) -> list[Half]: ...

    def read(self, after: int, *, limit: int = 64, model: str | None = None) -> list[Block]:
        """With ``model``, that model's blocks and the ticks."""

    def get(self, seq: int) -> Block:
        """``KeyError`` if never written, expired or damaged."""

    def last_seq(self) -> int:
        """Highest number ever given out; 0 for an empty journal."""

    def count_records(self, after: int, until: int, *, model: str) -> int:
        """In blocks with ``after < seq <= until``."""

    def steps(self) -> list[Step]: ...

    def note_clock(self, note: str) -> None:
        """State of the clocks, for the next process."""

    def schemas(self) -> list[SchemaSeen]: ...

    def expire(
        self,
        seqs: Iterable[int],
        *,
        kept: Mapping[int, tuple[int, bytes]] = _NOTHING,
        through: Mapping[str, int] = _NOWHERE,
    ) -> int:
        """Numbers are never reused. Only (rows, payload) of ``kept`` blocks stay."""

    def room_bytes(self) -> int:
        """0 or less when full."""

    def close(self) -> None: ...


class SqliteJournal:
    """Journal in one SQLite file, created unless ``read_only``.

    ``append`` raises JournalFull beyond ``max_bytes`` or below ``min_free_bytes`` of free disk: SQLite in WAL
    mode needs room even to delete. Unreadable or foreign files raise JournalUnreadable.
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
        """One sequence number per entry; on JournalFull nothing was written."""
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
            for item, seq in [*brought, *zip(entries, seqs, strict=True)]:
                key = (item.model, item.digest)
                if item.digest and key not in self._digests and key not in fresh:
                    block_rows.remember_schema(self._db, *key, item.schema, seq)
                    fresh.append(key)
        self._digests.update(fresh)
        return seqs

    def note_clock(self, note: str) -> None:
        with self._file.write():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_CLOCK, note))

    def _step(self, step: Step) -> None:
        """Steps are found without reading blocks; waiting times shift."""
        value = f"{step.by_us} {step.received_us}"
        self._db.execute("INSERT INTO meta VALUES (?, ?)", (f"{_STEP}{step.seq}", value))
        half_rows.shift(self._db, step.by_us)
        note_rows.shift(self._db, step.by_us)

    # ---- read ------------------------------------------------------------------------------------------

    def read(self, after: int, *, limit: int = 64, model: str | None = None) -> list[Block]:
        """At most ``limit`` blocks and 32 MiB, damaged ones in their places."""
        with self._lock:
            return block_rows.read(self._db, after, limit=limit, model=model)

    def get(self, seq: int) -> Block:
        with self._lock:
            return block_rows.get(self._db, seq)

    def last_seq(self) -> int:
        with self._lock:
            return block_rows.last_seq(self._db)

    def last_work_seq(self) -> int:
        """Ticks do not count."""
        with self._lock:
            return block_rows.last_work_seq(self._db)

    def count_records(self, after: int, until: int, *, model: str) -> int:
        with self._lock:
            return block_rows.count_records(self._db, after, until, model)

    def outline(self, model: str, *, after: int, until: int, limit: int, rows: int) -> list[BlockInfo]:
        """Without payloads, up to so many blocks and rows."""
        with self._lock:
            return block_rows.outline(self._db, model, after=after, until=until, limit=limit, rows=rows)

    def notes(self, *, of_columns: bool = False) -> list[Note]:
        with self._lock:
            return note_rows.read(self._db, of_columns=of_columns)

    def halves(self, model: str, keys: Sequence[str]) -> list[Half]:
        with self._lock:
            return half_rows.find(self._db, model, keys)

    def due_halves(self, until_us: int, *, limit: int = 256) -> list[Half]:
        """Oldest first, up to 32 MiB, but ``done`` ones."""
        with self._lock:
            return half_rows.due(self._db, until_us, limit=limit, max_bytes=READ_BYTES)

    def steps(self) -> list[Step]:
        with self._lock:
            rows = self._db.execute(
                "SELECT key, value FROM meta WHERE key >= ? AND key < ?", (_STEP, _STEP + "~")
            ).fetchall()
        steps = (Step(int(key.removeprefix(_STEP)), *map(int, value.split())) for key, value in rows)
        return sorted(steps, key=lambda step: step.seq)

    def clock_note(self) -> str:
        with self._lock:
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (_CLOCK,)).fetchone()
        return str(row[0]) if row else ""

    def schemas(self) -> list[SchemaSeen]:
        with self._lock:
            return block_rows.read_schemas(self._db)

    # ---- expire ----------------------------------------------------------------------------------------

    def expire(
        self,
        seqs: Iterable[int],
        *,
        kept: Mapping[int, tuple[int, bytes]] = _NOTHING,
        through: Mapping[str, int] = _NOWHERE,
    ) -> int:
        """Pages are reused, numbers never. The caller checks that no cursor needs blocks."""
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
        """Blocks keep number and kind. ``halves`` are model and key of both sides."""
        with self._file.write():
            block_rows.replace(self._db, blocks)
            self._db.executemany("DELETE FROM half WHERE model = ? AND key = ?", list(halves))
            note_rows.write(self._db, Notes(remove=notes))

    def waiting(self) -> list[Half]:
        with self._lock:
            return half_rows.read(self._db)

    def expired_through(self) -> dict[str, int]:
        """Last block that expiry visited, by model."""
        with self._lock:
            rows = self._db.execute(
                "SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", (len(_THROUGH), _THROUGH)
            ).fetchall()
        return {key.removeprefix(_THROUGH): int(value) for key, value in rows}

    def used_bytes(self) -> int:
        return self._file.used_bytes()

    def room_bytes(self) -> int:
        """Of the own bound or the free disk, the smaller."""
        return self._file.room_bytes()

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class Damage:
    blocks: dict[int, str] = field(default_factory=dict)
    """Reason by number of damaged block."""
    checked: int = 0
    upto_seq: int = 0
    """Last checked block; the journal's last unless time ran out."""


def find_damage(path: Path, *, most_s: float = 20.0) -> Damage:
    """Compare blocks with checksums, in order, for ``most_s`` seconds."""
    found = Damage()
    until = time.monotonic() + most_s
    with SqliteJournal(path, read_only=True) as journal:
        while time.monotonic() < until and (blocks := journal.read(found.upto_seq)):
            found.blocks |= {block.seq: block.damage for block in blocks if block.damage}
            found.checked += len(blocks)
            found.upto_seq = blocks[-1].seq
    return found
