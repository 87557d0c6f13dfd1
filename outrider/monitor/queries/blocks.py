"""Payloads of records from journal blocks, decoded once, briefly cached."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from outrider.assertions import Batch
from outrider.dataops.journal.stored_rows import has_row, read_rows
from outrider.dataops.payloads.payloads import without_payloads

from .payload_views import described


class StoredBlock(Protocol):
    @property
    def kind(self) -> str:
        """``records`` for a whole block, ``kept`` for what retention left of one."""

    @property
    def payload(self) -> bytes: ...


class BlockReader(Protocol):
    def get(self, seq: int) -> StoredBlock: ...

    def last_work_seq(self) -> int: ...


class BlockCache:
    """Least recently used decoded blocks.

    What is older than ``limit_s`` is read again, as what has expired may not be shown for longer.
    """

    def __init__(
        self,
        journal: BlockReader,
        *,
        limit_bytes: int = 64_000_000,
        limit_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal = journal
        self._limit_bytes = limit_bytes
        self._limit_s = limit_s
        self._clock = clock
        self._kept: OrderedDict[int, tuple[Batch, int, float]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def last_work_seq(self) -> int:
        """Number of the newest journal block that is no tick."""
        return self._journal.last_work_seq()

    def batch(self, seq: int) -> Batch | None:
        """Decoded block with expired rows null; None where no record is left."""
        with self._lock:
            if seq in self._kept:
                batch, size, read_s = self._kept[seq]
                if self._clock() - read_s < self._limit_s:
                    self._kept.move_to_end(seq)
                    return batch
                del self._kept[seq]
                self._bytes -= size
        try:
            block = self._journal.get(seq)
        except (KeyError, LookupError):
            return None
        if block is None or block.kind not in ("records", "kept") or not block.payload:
            return None
        batch = read_rows(block.payload)
        with self._lock:
            if seq not in self._kept:
                self._kept[seq] = (batch, len(block.payload), self._clock())
                self._bytes += len(block.payload)
            while self._bytes > self._limit_bytes and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return batch

    def record(self, seq: int, row: int) -> dict[str, Any] | None:
        batch = self.batch(seq)
        if batch is None or not has_row(batch, row):
            return None
        payloads = described(batch, row)
        one = batch.slice(row, 1)
        record = (without_payloads(one) if payloads else one).to_records()[0]
        for part, fields in payloads.items():
            record.setdefault(part, {}).update(fields)
        return record
