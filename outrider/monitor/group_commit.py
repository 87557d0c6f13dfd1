"""Many requests, one durable commit: the thread that writes the journal.

While one commit waits for the disk the next group gathers, so that throughput grows with load instead of
paying one fsync per request.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import cast

import pyarrow as pa

from outrider.dataops.journal import Entry, Journal
from outrider.errors import JournalFull, OutriderError

from .block_builder import BLOCK_ROWS, Block
from .record_shape import KnownRecords

log = logging.getLogger(__name__)

STALL_S = 5.0
"""A commit that takes longer makes the writer not ready: the disk does not answer."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_MAX_TICK_PAUSE_S = 60.0
_TICKS_AT_FULL_RATE = 60


class QueueFull(OutriderError):  # noqa: N818 - reads as the event it is
    """More bytes wait for the journal than ``limits.queue_bytes``; come again in ``retry_after_s``."""

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class WriterUnavailable(OutriderError):  # noqa: N818 - reads as the event it is
    """The journal writer died, stopped, or could not commit: nothing was acknowledged."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What one group commit did, for metrics: seconds it took, bytes and rows it wrote."""

    seconds: float
    payload_bytes: int
    rows: int


@dataclass(slots=True)
class _Request:
    blocks: Sequence[Block]
    size: int
    done: Future[None] = field(default_factory=Future)


class GroupCommit:
    """Owns the writing side of the journal.

    Parameters
    ----------
    journal
        Written by this object's thread only.
    queue_bytes
        Most bytes that may wait; `submit` raises QueueFull beyond.
    now_us
        Clock for the time of receipt.
    tick_s
        Pause after which a tick is appended when nothing came; ticks start with the first traffic, and
        slow down to one a minute when it stays quiet.
    on_commit
        Told of every commit, on the writer's thread.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        queue_bytes: int,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        tick_s: float = 1.0,
        on_commit: Callable[[Committed], None] = lambda _: None,
    ) -> None:
        self._journal = journal
        self._queue_bytes = queue_bytes
        self._now_us = now_us
        self._tick_s = tick_s
        self._on_commit = on_commit
        self._queue: deque[_Request] = deque()
        self._queued_bytes = 0
        self._in_hand: list[_Request] = []
        self._wake = threading.Condition()
        self._closing = False
        self._fault: str | None = None
        self._needed_bytes = 0
        self._began: float | None = None
        self._ticks = 0
        self._has_traffic = journal.last_seq() > 0
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)

    def start(self) -> None:
        """Start the writer's thread."""
        self._thread.start()

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting now."""
        return self._queued_bytes

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def fault(self) -> str | None:
        """Why a record sent now would not be acknowledged, or None when it very likely would."""
        if self._closing or not self._thread.is_alive():
            return "the journal writer does not run"
        began = self._began
        if began is not None and time.monotonic() - began > STALL_S:
            return f"the disk has not answered for {time.monotonic() - began:.0f} s"
        return self._fault

    async def submit(self, blocks: Sequence[Block], size: int, *, timeout_s: float = 30.0) -> None:
        """Wait until the blocks are durable.

        Parameters
        ----------
        blocks
            Appended in one commit, in order.
        size
            Bytes they count for in the queue.
        timeout_s
            After this long the request fails; its blocks may still be written later.

        Raises
        ------
        QueueFull
            Too much waits already; nothing was queued.
        JournalFull
            The journal cannot take the blocks.
        WriterUnavailable
            The writer died, or the disk does not answer.
        """
        done = self._enqueue(blocks, size)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wrap_future(done)
        except TimeoutError:
            raise WriterUnavailable(
                f"the journal did not confirm within {timeout_s:g} s; send again with the same ids"
            ) from None

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is queued, then stop; what still waits after ``timeout_s`` fails."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._fail_waiting("the journal writer stopped")

    def _enqueue(self, blocks: Sequence[Block], size: int) -> Future[None]:
        request = _Request(blocks, size)
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
        return request.done

    def _run(self) -> None:
        try:
            while self._take():
                if self._in_hand:
                    self._commit()
                elif self._fault is not None:
                    self._probe()
                else:
                    self._tick()
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
        if self._fault is not None:
            return self._tick_s
        if not self._has_traffic:
            return None
        if self._ticks < _TICKS_AT_FULL_RATE:
            return self._tick_s
        return float(min(self._tick_s * 2 ** (self._ticks - _TICKS_AT_FULL_RATE + 1), _MAX_TICK_PAUSE_S))

    def _commit(self) -> None:
        entries = merge([block for request in self._in_hand for block in request.blocks])
        error = self._append(entries)
        done, self._in_hand = self._in_hand, []
        with self._wake:
            self._queued_bytes -= sum(request.size for request in done)
        for request in done:
            if not request.done.set_running_or_notify_cancel():
                continue  # the client has gone; its records are written all the same
            if error is None:
                request.done.set_result(None)
            else:
                request.done.set_exception(error)
        self._has_traffic, self._ticks = True, 0

    def _append(self, entries: list[Entry]) -> OutriderError | None:
        size = sum(len(entry.payload) for entry in entries)
        began = self._began = time.monotonic()
        try:
            self._journal.append(entries, self._now_us())
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
        self._on_commit(Committed(time.monotonic() - began, size, sum(entry.rows for entry in entries)))
        return None

    def _probe(self) -> None:
        """While nothing is sent to a writer that is not ready, find out whether it would succeed again."""
        try:
            if self._journal.room_bytes() > self._needed_bytes * 5 // 4 + 65_536:
                self._fault = None
        except Exception:
            log.exception("the journal cannot be read")

    def _tick(self) -> None:
        if self._has_traffic and not self._closing:
            self._append([Entry("tick", "", 0, b"")])
            self._ticks += 1

    def _fail_waiting(self, reason: str) -> None:
        with self._wake:
            self._closing = True  # in the same breath: nobody may queue behind the last look
            waiting = [*self._in_hand, *self._queue]
            self._in_hand = []
            self._queue.clear()
            self._queued_bytes = 0
        for request in waiting:
            if not request.done.done() and request.done.set_running_or_notify_cancel():
                request.done.set_exception(WriterUnavailable(reason))


def merge(blocks: Sequence[Block]) -> list[Entry]:
    """Journal entries of these blocks; those of one model, kind and schema become one, up to `BLOCK_ROWS`."""
    groups: dict[tuple[str, str, str], list[list[Block]]] = {}
    rows: dict[tuple[str, str, str], int] = {}
    for block in blocks:
        key = (block.kind, block.model, block.digest)
        filling = groups.setdefault(key, [[]])
        rows[key] = rows.get(key, 0) + block.rows
        if rows[key] > BLOCK_ROWS:
            filling.append([])
            rows[key] = block.rows
        filling[-1].append(block)
    return [_entry(members) for filling in groups.values() for members in filling if members]


def _entry(members: list[Block]) -> Entry:
    first = members[0]
    table = _table(members)
    head = first.shape.head if isinstance(first, KnownRecords) else table.schema.serialize().to_pybytes()
    return Entry(
        kind=first.kind,
        model=first.model,
        rows=table.num_rows,
        # A stream of one batch, as a writer makes it, in a third of its time where the batch is small.
        payload=b"".join((head, table.serialize(), _END_OF_STREAM)),
        digest=first.digest,
        schema=head,
    )


def _table(members: list[Block]) -> pa.RecordBatch:
    """All rows in order; those that are no columns yet become columns together."""
    tables = []
    for shape, run in groupby(members, lambda one: one.shape if isinstance(one, KnownRecords) else None):
        if shape is None:
            tables += [block.table for block in run]
        else:
            known = cast(Iterable[KnownRecords], run)
            tables.append(shape.table([(one.records, one.received_us) for one in known]))
    return tables[0] if len(tables) == 1 else pa.concat_batches(tables)
