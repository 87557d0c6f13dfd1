"""Joining of request and response sides into records, each record exactly once.

Sides meet where model, scope (`HalfPart.key`) and id are equal. The first waits in the journal; the record is
written in the commit that removes it there. A side whose other side does not come in time becomes a
``partial`` record. Outcomes are remembered for a while: a repeat is ignored, and a late side becomes a
partial record whose id ends in ``:request`` or ``:response``. All state is in the journal, so a crash here
changes nothing.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from outrider.dataops.journal.journal import DONE, Entry, Half, Journal

from .join_rows import JoinedRecord, SideRow, SidesBySchema
from .pending_blocks import PendingBlock, PendingHalf, Side

REMEMBER_S = 300.0
"""How long repeats are recognized, beyond the time that sides wait."""
FORGET_EVERY_S = 10.0
RELEASE_ROWS = 256
FOREVER = 2**63 - 1
RECORDS_OF = {"joined": 1, "partial": 1, "late": 1, "unfit": 2}
"""Records that come of one of each outcome."""
_SEPARATOR = "\x1f"
_CHECKSUM_BYTES = 4

SchemaOf = Callable[[str], tuple[pa.Schema, str]]


@dataclass(slots=True)
class Joined:
    blocks: list[PendingBlock] = field(default_factory=list)
    unreadable: list[Entry] = field(default_factory=list)
    """Sides whose bytes changed on the disk, for the worker's dead letters."""
    keep: list[Half] = field(default_factory=list)
    drop: list[Half] = field(default_factory=list)
    forget_us: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Records or sides, by model and outcome."""


class Joiner:
    """Joiner of the halves of a group commit, used by the journal's writer thread alone."""

    def __init__(self, journal: Journal, *, wait_s: Callable[[str], float], schema_of: SchemaOf) -> None:
        self._journal = journal
        self._wait_s = wait_s
        self._schema_of = schema_of
        self._schemas: dict[tuple[str, str], pa.Schema] = {}
        self._forgot_us = 0
        self._next_due_us = self._oldest_due()

    @property
    def next_due_us(self) -> int | None:
        """Lower bound of the next due time; None without a side."""
        return None if self._next_due_us == FOREVER else self._next_due_us

    def join(self, halves: Sequence[PendingHalf], now_us: int) -> Joined:
        joined = Joined(forget_us=self._forget(now_us))
        models: dict[str, list[PendingHalf]] = {}
        for half in halves:
            models.setdefault(half.block.model, []).append(half)
        for model, members in models.items():
            _Meeting(self, model, now_us, joined).join(members)
        return joined

    def release(self, now_us: int) -> Joined:
        """Release at most 256 overdue sides; repeat until none are left."""
        joined = Joined(forget_us=self._forget(now_us))
        models: dict[str, list[Half]] = {}
        for half in self._journal.due_halves(now_us, limit=RELEASE_ROWS):
            models.setdefault(half.model, []).append(half)
        for model, due in models.items():
            _Meeting(self, model, now_us, joined).release(due)
        return joined

    def committed(self, joined: Joined) -> None:
        if joined.forget_us:
            self._forgot_us = joined.forget_us
        waits = [half.due_us for half in joined.keep if half.side != DONE]
        if waits:
            self._next_due_us = min(self._next_due_us, *waits)

    def stepped(self, by_us: int) -> None:
        """Follow a step of the clock; the journal has shifted the waiting sides."""
        self._forgot_us += by_us
        self._next_due_us = self._oldest_due()

    def released(self) -> None:
        self._next_due_us = self._oldest_due()

    def waiting(self, model: str, keys: Iterable[str]) -> list[Half]:
        return self._journal.halves(model, list(dict.fromkeys(keys)))

    def due_us(self, model: str, now_us: int, *, done: bool = False) -> int:
        """Time when a new side is given up; with ``done``, when its outcome is forgotten."""
        return now_us + int((self._wait_s(model) + (REMEMBER_S if done else 0.0)) * 1e6)

    def target(self, model: str) -> tuple[pa.Schema, str]:
        return self._schema_of(model)

    def decode(self, half: Half) -> pa.RecordBatch:
        """Rows of a waiting side; ValueError if its bytes have changed."""
        crc, message = half.payload[:_CHECKSUM_BYTES], half.payload[_CHECKSUM_BYTES:]
        if zlib.crc32(message) != int.from_bytes(crc, "big"):
            raise ValueError(f"a {half.side} that waited has other bytes than were written")
        return pa.ipc.read_record_batch(pa.py_buffer(message), self._schema(half))

    def _schema(self, half: Half) -> pa.Schema:
        key = (half.model, half.digest)
        if key not in self._schemas:
            for seen in self._journal.schemas():
                self._schemas[seen.model, seen.digest] = pa.ipc.read_schema(pa.py_buffer(seen.payload))
        if key not in self._schemas:
            raise ValueError(f"the journal has lost the schema of a {half.side} that waited")
        return self._schemas[key]

    def _oldest_due(self) -> int:
        oldest = self._journal.due_halves(FOREVER, limit=1)
        return oldest[0].due_us if oldest else FOREVER

    def _forget(self, now_us: int) -> int:
        return now_us if now_us - self._forgot_us >= FORGET_EVERY_S * 1e6 else 0


class _Meeting:
    """Sides of one model that meet in one commit."""

    def __init__(self, joiner: Joiner, model: str, now_us: int, joined: Joined) -> None:
        self._joiner = joiner
        self._model = model
        self._now_us = now_us
        self._joined = joined
        self._rows = SidesBySchema()
        self._open: dict[str, dict[str, SideRow]] = {}
        self._done: dict[str, set[str]] = {}
        self._touched: set[str] = set()
        """Keys whose ``done`` has changed."""
        self._stored: dict[tuple[str, str], Half] = {}
        self._made: list[JoinedRecord] = []
        self._serialized: dict[str, bytes] = {}

    def join(self, members: Sequence[PendingHalf]) -> None:
        keys = [_keys(half) for half in members]
        self._recall(self._joiner.waiting(self._model, (key for one in keys for key in one)))
        news: dict[tuple[str, str], tuple[PendingHalf, int]] = {}
        for half, own in zip(members, keys, strict=True):
            first = self._rows.add(half.block.digest, half.block.table)
            for row, key in enumerate(own):
                if self._arrive(key, half.side, SideRow(half.block.digest, first + row)):
                    news[key, half.side] = half, row
        self._write()
        for (key, side), (half, row) in news.items():
            if side in self._open.get(key, ()):
                self._joined.keep.append(self._waiting(key, half, row))

    def release(self, due: Sequence[Half]) -> None:
        self._recall(due)
        for half in due:
            self._joined.drop.append(half)
            place = self._open.get(half.key, {}).get(half.side)
            if place is not None:
                self._made.append(JoinedRecord(half.side, place, is_partial=True))
                self._close(half.key, half.side)
        self._count("partial", len(self._made))
        self._write()

    def _recall(self, stored: Sequence[Half]) -> None:
        for half in stored:
            if half.side == DONE:
                self._done[half.key] = set(half.payload.decode().split(","))
                continue
            try:
                table = self._joiner.decode(half)
            except (ValueError, pa.ArrowException, OSError):
                self._joined.drop.append(half)
                self._joined.unreadable.append(Entry("records", self._model, 1, half.payload))
                self._count("unreadable")
                continue
            place = SideRow(half.digest, self._rows.add(half.digest, table))
            self._stored[half.key, half.side] = half
            self._open.setdefault(half.key, {})[half.side] = place

    def _arrive(self, key: str, side: Side, place: SideRow) -> bool:
        """Take one row of a side; True if it may have to wait."""
        seen = self._done.get(key)
        if seen is not None:
            if side in seen:
                self._count("repeated")
                return False
            self._made.append(JoinedRecord(side, place, is_partial=True, is_late=True))
            self._close(key, side)
            self._count("late")
            return False
        sides = self._open.setdefault(key, {})
        if side in sides:
            self._count("repeated")
            return False
        sides[side] = place
        if len(sides) < 2:
            return True
        self._made.append(JoinedRecord("request", sides["request"], sides["response"]))
        for one in ("request", "response"):
            self._close(key, one)
            if (waited := self._stored.get((key, one))) is not None:
                self._joined.drop.append(waited)
        del self._open[key]
        self._count("joined")
        return False

    def _close(self, key: str, side: str) -> None:
        self._done.setdefault(key, set()).add(side)
        self._touched.add(key)

    def _write(self) -> None:
        schema, digest = self._joiner.target(self._model)
        blocks, unfit = self._rows.blocks(self._made, self._model, schema, digest)
        self._joined.blocks += blocks
        self._count("unfit", unfit)
        self._count("joined", -unfit)
        due_us = self._joiner.due_us(self._model, self._now_us, done=True)
        for key in self._touched:
            said = ",".join(sorted(self._done[key])).encode()
            self._joined.keep.append(Half(self._model, key, DONE, self._now_us, due_us, said))

    def _waiting(self, key: str, half: PendingHalf, row: int) -> Half:
        table = half.block.table.slice(row, 1)
        message = table.serialize().to_pybytes()
        schema = self._serialized.get(half.block.digest)
        if schema is None:
            schema = self._serialized[half.block.digest] = table.schema.serialize().to_pybytes()
        return Half(
            self._model,
            key,
            half.side,
            self._now_us,
            self._joiner.due_us(self._model, self._now_us),
            zlib.crc32(message).to_bytes(_CHECKSUM_BYTES, "big") + message,
            half.block.digest,
            schema,
        )

    def _count(self, outcome: str, count: int = 1) -> None:
        if count:
            self._joined.outcomes[self._model, outcome] += count


def _keys(half: PendingHalf) -> list[str]:
    return [half.key + _SEPARATOR + id_ for id_ in half.block.table.column("id").to_pylist()]
