"""Group commits: while one waits for the disk the next group gathers, so throughput grows with load."""

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from outrider.dataops.journal.journal import NONE, Entry, Journal, step_entry
from outrider.dataops.journal.notes import Note, Notes
from outrider.dataops.state.clock import STEP_US
from outrider.errors import JournalFull, OutriderError
from outrider.monitor.process.clock import ServiceClock
from outrider.monitor.stream.event_time import settled

from .block_builder import BLOCK_ROWS
from .join import Joined, Joiner
from .pending_blocks import PendingBlock, PendingHalf
from .redaction import IntakeRedaction
from .schema_book import SchemaBook

log = logging.getLogger(__name__)

STALL_S = 5.0
"""A longer commit makes the writer not ready: the disk does not answer."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_MAX_TICK_PAUSE_S = 60.0
_TICKS_AT_FULL_RATE = 60
_RELEASE_AGAIN_US = 5_000_000
_NOTE_CLOCK_S = 3600.0
"""Notes of both clocks must stay fresh: a slewed clock drifts away from the monotonic one."""


class QueueFull(OutriderError):  # noqa: N818 - reads as the event it is
    """More bytes wait for the journal than ``limits.queue_bytes``."""

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class WriterUnavailable(OutriderError):  # noqa: N818 - reads as the event it is
    """The journal writer died, stopped, or could not commit: nothing was acknowledged."""


@dataclass(frozen=True, slots=True)
class Committed:
    seconds: float
    payload_bytes: int
    rows: int
    outcomes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Sides of records by model and outcome."""
    step_us: int = 0
    """Step of the clock found by this commit."""


@dataclass(slots=True)
class _Request:
    blocks: Sequence[PendingBlock]
    size: int
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]
    halves: Sequence[PendingHalf] = ()
    notes: Notes = NONE
    has_own_clock: bool = False


class GroupCommit:
    """Owner of the journal's writing side.

    A step of ``clock`` becomes a border in the journal; event times beyond ``max_ahead_us`` after receipt are
    not believed by windows. Ticks start with the first traffic, and slow down to one a minute.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        queue_bytes: int,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        tick_s: float = 1.0,
        on_commit: Callable[[Committed], None] = lambda _: None,
        joiner: Joiner | None = None,
        book: SchemaBook | None = None,
        clock: ServiceClock | None = None,
        max_ahead_us: int | None = None,
        redaction: IntakeRedaction | None = None,
    ) -> None:
        self._journal = journal
        self._redaction = redaction or IntakeRedaction({}, b"")
        self._book = book
        self._queue_bytes = queue_bytes
        self._now_us = now_us if clock is None else clock.now_us
        self._clock = clock
        self._max_ahead_us = max_ahead_us
        self._tick_s = tick_s
        self._on_commit = on_commit
        self._joiner = joiner
        self._snooze_us = 0
        self._queue: deque[_Request] = deque()
        self._queued_bytes = 0
        self._in_hand: list[_Request] = []
        self._wake = threading.Condition()
        self._closing = False
        self._fault: str | None = None
        self._needed_bytes = 0
        self._began: float | None = None
        self._ticks = 0
        self._noted = 0.0
        self._since_us = max((step.received_us for step in journal.steps()[-1:]), default=0)
        """Time at which the clock was last set, on its own scale."""
        self._has_traffic = journal.last_seq() > 0
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)

    def start(self) -> None:
        if not self._step_us():
            self._note_clock()
        self._thread.start()

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def fault(self) -> str | None:
        """Reason to expect no acknowledgement now, or None."""
        if self._closing or not self._thread.is_alive():
            return "the journal writer does not run"
        began = self._began
        if began is not None and time.monotonic() - began > STALL_S:
            return f"the disk has not answered for {time.monotonic() - began:.0f} s"
        return self._fault

    async def submit(
        self,
        blocks: Sequence[PendingBlock],
        size: int,
        *,
        halves: Sequence[PendingHalf] = (),
        notes: Notes = NONE,
        has_own_clock: bool = False,
        timeout_s: float = 30.0,
    ) -> None:
        """Wait until blocks and sides are durable; after a timeout they may still be written later."""
        loop = asyncio.get_running_loop()
        request = _Request(blocks, size, loop, loop.create_future(), halves, notes, has_own_clock)
        self._enqueue(request)
        timer = loop.call_later(timeout_s, _give_up, request, timeout_s)
        try:
            await request.done
        finally:
            timer.cancel()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write the queue, then stop; after ``timeout_s`` the rest fails."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._fail_waiting("the journal writer stopped")

    def _enqueue(self, request: _Request) -> None:
        size = request.size
        with self._wake:
            if self._closing or not self._thread.is_alive():
                raise WriterUnavailable("the journal writer does not run; the service must be restarted")
            if self._queued_bytes and self._queued_bytes + size > self._queue_bytes:
                raise QueueFull(
                    f"{self._queued_bytes} bytes wait for the journal, at most {self._queue_bytes}"
                    " (limits.queue_bytes); send again later"
                )
            self._queue.append(request)
            self._queued_bytes += size
            self._wake.notify()

    def _run(self) -> None:
        try:
            while self._take():
                if self._in_hand:
                    self._commit()
                elif self._fault is not None:
                    self._probe()
                elif not self._is_due():
                    self._tick()
                if self._is_due():
                    self._release()
        except BaseException:  # whatever ends this thread, nobody may be left waiting
            log.exception("the journal writer died")
            raise
        finally:
            self._fail_waiting("the journal writer died; nothing of this request was acknowledged")

    def _take(self) -> bool:
        """Move the queue in hand, waiting at most until the next tick; False ends the thread."""
        with self._wake:
            if not self._queue and not self._closing:
                self._wake.wait(self._pause_s())
            self._in_hand = list(self._queue)
            self._queue.clear()
            return bool(self._in_hand) or not self._closing

    def _pause_s(self) -> float | None:
        pause, due = self._tick_pause_s(), self._due_us()
        if due is None:
            return pause
        until_due = max(0.0, (due - self._now_us()) / 1e6)
        return until_due if pause is None else min(pause, until_due)

    def _tick_pause_s(self) -> float | None:
        if self._fault is not None:
            return self._tick_s
        if not self._has_traffic:
            return None
        if self._ticks < _TICKS_AT_FULL_RATE:
            return self._tick_s
        doublings = min(self._ticks - _TICKS_AT_FULL_RATE + 1, 64)  # a thousand, after hours, overflow
        return min(self._tick_s * 2.0**doublings, _MAX_TICK_PAUSE_S)

    def _due_us(self) -> int | None:
        """Time when the next side of a record is given up; None while that may not be tried."""
        if self._joiner is None or self._fault is not None or self._closing:
            return None
        due = self._joiner.next_due_us
        return None if due is None else max(self._snooze_us, due)

    def _is_due(self) -> bool:
        due = self._due_us()
        return due is not None and due <= self._now_us()

    def _release(self) -> None:
        """Write overdue sides; queued requests come in between."""
        assert self._joiner is not None
        try:
            while not self._closing:
                now_us = self._now_us()
                if self._step_us() and self._append([], now_us) is not None:
                    return  # what is due is released after the border
                released = self._joiner.release(now_us)
                if not released.drop:
                    self._joiner.released()
                    return
                entries = self._entries([], released, now_us)
                if self._append(entries, now_us, released) is not None:
                    return
                self._has_traffic, self._ticks = True, 0
                if self._queue:
                    return
        except Exception:
            # They stand in the journal; whatever else comes must not wait for them.
            log.exception("sides of records that are due could not be released")
            self._snooze_us = self._now_us() + _RELEASE_AGAIN_US

    def _commit(self) -> None:
        group, now_us = self._in_hand, self._now_us()
        try:
            joined = self._joined(group, now_us)
            entries = self._entries(group, joined, now_us)
        except Exception:
            # One that breaks the making of blocks must not take the others with it, nor this thread.
            log.exception("blocks could not be made of records; each request is tried alone")
            self._commit_apart(group, now_us)
        else:
            self._settle(group, self._append(entries, now_us, joined, notes=_together(group)))
        self._in_hand = []
        self._has_traffic, self._ticks = True, 0

    def _commit_apart(self, group: Sequence[_Request], now_us: int) -> None:
        for request in group:
            try:
                joined = self._joined([request], now_us)
                entries = self._entries([request], joined, now_us)
            except Exception as error:
                log.exception("a request of whose records no blocks could be made")
                self._settle([request], WriterUnavailable(f"its records could not be written: {error}"))
            else:
                self._settle([request], self._append(entries, now_us, joined, notes=request.notes))

    def _entries(self, group: Sequence[_Request], joined: Joined | None, now_us: int) -> list[Entry]:
        made = joined or Joined()
        live = [block for one in group if not one.has_own_clock for block in one.blocks]
        files = [block for one in group if one.has_own_clock for block in one.blocks]
        since_us = now_us if self._step_us() else self._since_us
        redact = self._redaction.table
        entries = merge(
            [*live, *made.blocks],
            now_us=now_us,
            since_us=since_us,
            max_ahead_us=self._max_ahead_us,
            redact=redact,
        )
        return [*entries, *merge(files, now_us=now_us, since_us=since_us, redact=redact), *made.unreadable]

    def _joined(self, group: Sequence[_Request], now_us: int) -> Joined | None:
        halves = [self._redaction.half(half) for request in group for half in request.halves]
        if not halves:
            return None
        if self._joiner is None:
            raise TypeError("sides of records need a joiner")
        return self._joiner.join(halves, now_us)

    def _settle(self, group: Sequence[_Request], error: OutriderError | None) -> None:
        with self._wake:
            self._queued_bytes -= sum(request.size for request in group)
        _resolve_from_thread(group, error)

    def _append(
        self,
        entries: Sequence[Entry],
        now_us: int,
        joined: Joined | None = None,
        *,
        notes: Notes = NONE,
    ) -> OutriderError | None:
        """Commit; after a step of the clock the entries come behind its border."""
        made = joined or Joined()
        step_us = self._step_us()
        if step_us:
            entries = [step_entry(step_us), *entries]
        kept = [*(half.payload for half in made.keep), *(note.payload for note in notes.put)]
        size = sum(len(entry.payload) for entry in entries) + sum(map(len, kept))
        began = self._began = time.monotonic()
        now_us = self._now_us()
        due = None if self._book is None else self._book.due(now_us)
        try:
            self._journal.append(
                entries,
                now_us,
                keep=made.keep,
                drop=made.drop,
                forget_us=made.forget_us,
                notes=notes if due is None else Notes([*notes.put, *due.notes.put], notes.remove),
            )
        except JournalFull as full:
            self._fault, self._needed_bytes = str(full), size
            return full
        except Exception as error:
            # A failing disk or a locked file: this group is refused, the next may succeed.
            log.exception("the journal did not commit")
            self._fault, self._needed_bytes = f"the journal did not commit: {error}", 0
            return WriterUnavailable(f"the journal did not commit: {error}")
        finally:
            self._began = None
        self._fault = None
        if self._book is not None and due is not None:
            self._book.saved(due)
        if step_us:
            self._stepped(step_us, now_us)
        if joined is not None and self._joiner is not None:
            self._joiner.committed(joined)
        rows = sum(entry.rows for entry in entries) + len(kept)
        self._on_commit(Committed(time.monotonic() - began, size, rows, made.outcomes, step_us))
        return None

    def _step_us(self) -> int:
        """Step of the clock since the last commit; 0 in an empty journal."""
        pending = 0 if self._clock is None else self._clock.pending_us
        if self._clock is None or abs(pending) <= STEP_US:
            return 0
        if self._journal.last_seq():
            return pending
        self._clock.written(pending)
        return 0

    def _stepped(self, by_us: int, now_us: int) -> None:
        assert self._clock is not None
        self._since_us = now_us
        self._clock.written(by_us)
        log.warning(
            "the clock of this machine was set %s by %.0f s: windows begin anew, nothing expires for an hour",
            "forward" if by_us > 0 else "back", abs(by_us) / 1e6,
        )  # fmt: skip
        if self._joiner is not None:
            self._joiner.stepped(by_us)
        self._snooze_us = 0
        self._note_clock()

    def _note_clock(self) -> None:
        """Let the next process learn whether the clock was set in between."""
        if self._clock is None:
            return
        self._noted = time.monotonic()
        try:
            self._journal.note_clock(self._clock.note())
        except (JournalFull, sqlite3.Error) as error:
            log.warning("where the clock stands could not be noted: %s", error)

    def _probe(self) -> None:
        """Find out whether a commit would succeed again."""
        try:
            if self._journal.room_bytes() > self._needed_bytes * 5 // 4 + 65_536:
                self._fault = None
        except Exception:
            log.exception("the journal cannot be read")

    def _tick(self) -> None:
        if self._has_traffic and not self._closing:
            now_us = self._now_us()
            self._append([Entry("tick", "", 0, b"")], now_us)
            if time.monotonic() - self._noted > _NOTE_CLOCK_S:
                self._note_clock()
            self._ticks += 1

    def _fail_waiting(self, reason: str) -> None:
        with self._wake:
            self._closing = True  # in the same breath: nobody may queue behind the last look
            waiting = [*self._in_hand, *self._queue]
            self._in_hand = []
            self._queue.clear()
            self._queued_bytes = 0
        _resolve_from_thread(waiting, WriterUnavailable(reason))


def _give_up(request: _Request, timeout_s: float) -> None:
    detail = f"the journal did not confirm within {timeout_s:g} s; send again with the same ids"
    _resolve([(request, WriterUnavailable(detail))])


def _resolve_from_thread(group: Sequence[_Request], error: OutriderError | None) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[tuple[_Request, OutriderError | None]]] = {}
    for request in group:
        loops.setdefault(request.loop, []).append((request, error))
    for loop, answers in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(_resolve, answers)


def _resolve(answers: Sequence[tuple[_Request, OutriderError | None]]) -> None:
    for request, error in answers:
        if request.done.done():
            continue
        if error is None:
            request.done.set_result(None)
        else:
            request.done.set_exception(error)


def _together(group: Sequence[_Request]) -> Notes:
    """Notes of all requests as if one had come after the other."""
    put: dict[str, Note] = {}
    remove: dict[str, None] = {}
    for request in group:
        for name in request.notes.remove:
            put.pop(name, None)
            remove[name] = None
        put |= {note.name: note for note in request.notes.put}
    return Notes(list(put.values()), list(remove))


Redact = Callable[[str, pa.RecordBatch], pa.RecordBatch]


def _as_sent(_: str, table: pa.RecordBatch) -> pa.RecordBatch:
    return table


def merge(
    blocks: Sequence[PendingBlock],
    *,
    now_us: int | None = None,
    since_us: int = 0,
    max_ahead_us: int | None = None,
    redact: Redact = _as_sent,
) -> list[Entry]:
    """Journal entries: blocks of one model, kind and schema become one, up to `BLOCK_ROWS`."""
    groups: dict[tuple[str, str, str], list[list[PendingBlock]]] = {}
    rows: dict[tuple[str, str, str], int] = {}
    for block in blocks:
        key = (block.kind, block.model, block.digest)
        filling = groups.setdefault(key, [[]])
        rows[key] = rows.get(key, 0) + block.rows
        if rows[key] > BLOCK_ROWS:
            filling.append([])
            rows[key] = block.rows
        filling[-1].append(block)
    return [
        _entry(members, now_us, since_us, max_ahead_us, redact)
        for filling in groups.values()
        for members in filling
        if members
    ]


def _entry(
    members: list[PendingBlock], now_us: int | None, since_us: int, bound_us: int | None, redact: Redact
) -> Entry:
    first = members[0]
    table = redact(first.model, _table(members))
    head = stream_head = first.shape.head if first.shape else table.schema.serialize().to_pybytes()
    if first.kind == "records" and now_us is not None:
        made = table
        table = settled(made, now_us, bound_us, since_us=since_us)
        if table is not made:  # it may say a bound, which is of this block, not of the schema of its model
            stream_head = table.schema.serialize().to_pybytes()
    return Entry(
        kind=first.kind,
        model=first.model,
        rows=table.num_rows,
        # A stream of one batch, as a writer makes it, in a third of its time where the batch is small.
        payload=b"".join((stream_head, table.serialize(), _END_OF_STREAM)),
        digest=first.digest,
        schema=head,
    )


def _table(members: list[PendingBlock]) -> pa.RecordBatch:
    """All rows in order; neighbouring requests of one shape become columns together."""
    tables: list[pa.RecordBatch] = []
    for shape, run in groupby(members, attrgetter("shape")):
        blocks = list(run)
        tables += [block.table for block in blocks] if shape is None else [shape.table(blocks)]
    return tables[0] if len(tables) == 1 else pa.concat_batches(tables)
