"""Payloads of records: journal blocks decoded once and kept while they are looked at."""

import threading
from collections import OrderedDict
from typing import Any, Protocol

from outrider.assertions import Batch
from outrider.dataops.payloads import without_payloads

from .payload_views import described


class StoredBlock(Protocol):
    """What the page needs of a journal block."""

    @property
    def kind(self) -> str:
        """``records`` for a block of records."""

    @property
    def payload(self) -> bytes:
        """Arrow IPC of a Batch."""


class BlockReader(Protocol):
    """What the page needs of the journal."""

    def get(self, seq: int) -> StoredBlock:
        """Block of that number."""

    def last_work_seq(self) -> int:
        """Number of the newest block that is no tick, 0 when there is none."""


class Blocks:
    """Least recently used decoded blocks, at most ``limit_bytes`` of payload."""

    def __init__(self, journal: BlockReader, *, limit_bytes: int = 64_000_000) -> None:
        self._journal = journal
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[int, tuple[Batch, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def last_work_seq(self) -> int:
        """Number of the newest journal block that is no tick."""
        return self._journal.last_work_seq()

    def batch(self, seq: int) -> Batch | None:
        """Decoded block; None when it holds no records or its payload has expired."""
        with self._lock:
            if seq in self._kept:
                self._kept.move_to_end(seq)
                return self._kept[seq][0]
        try:
            block = self._journal.get(seq)
        except (KeyError, LookupError):
            return None
        if block is None or block.kind != "records" or not block.payload:
            return None
        batch = Batch.from_ipc(block.payload)
        with self._lock:
            if seq not in self._kept:
                self._kept[seq] = (batch, len(block.payload))
                self._bytes += len(block.payload)
            while self._bytes > self._limit_bytes and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return batch

    def record(self, seq: int, row: int) -> dict[str, Any] | None:
        """One record as nested dictionaries, or None when its payload is gone."""
        batch = self.batch(seq)
        if batch is None or row >= batch.rows:
            return None
        payloads = described(batch, row)
        one = batch.slice(row, 1)
        record = (without_payloads(one) if payloads else one).to_records()[0]
        for part, fields in payloads.items():
            record.setdefault(part, {}).update(fields)
        return record
