"""Blocks that wait to be appended, and halves that wait to be joined."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from outrider.assertions.batch import TIME
from outrider.dataops.journal.journal import Kind

Side = Literal["request", "response"]


class Shape(Protocol):
    """Known columns of a model's requests, made of many requests at once."""

    @property
    def most_rows(self) -> int:
        """Rows above which a request becomes columns by itself."""

    @property
    def head(self) -> bytes:
        """Schema as the beginning of a stream."""

    def table(self, blocks: Sequence["PendingBlock"]) -> pa.RecordBatch: ...

    def first_id(self, content: Any) -> str: ...

    def count(self, name: str, content: Any) -> int: ...


class PendingBlock(msgspec.Struct, frozen=True, dict=True):  # a dataclass takes as long as to parse a record
    """Rows of one model: columns in the order of a `Batch`, or what the ``shape`` makes columns of."""

    kind: Kind
    model: str
    digest: str
    content: Any
    shape: Shape | None = None
    received_us: int = 0

    @property
    def rows(self) -> int:
        return len(self.content)

    @cached_property
    def table(self) -> pa.RecordBatch:
        return self.content if self.shape is None else self.shape.table([self])

    @property
    def only_id(self) -> str | None:
        if self.rows != 1:
            return None
        return str(self.table.column("id")[0]) if self.shape is None else self.shape.first_id(self.content)

    def pieces(self, most: int) -> list["PendingBlock"]:
        """Blocks of at most ``most`` rows; few rows keep their shape."""
        if self.rows <= (most if self.shape is None else min(most, self.shape.most_rows)):
            return [self]
        table = self.table
        return [
            PendingBlock(self.kind, self.model, self.digest, table.slice(start, most))
            for start in range(0, self.rows, most)
        ]

    def values_of(self, names: Iterable[str]) -> dict[str, int]:
        """Values other than null, by column."""
        if self.shape is not None:
            return {name: self.shape.count(name, self.content) for name in names}
        found = {name: self.table.schema.get_field_index(name) for name in names}
        return {name: self.rows - self.table.column(at).null_count for name, at in found.items() if at >= 0}


def received_times(blocks: Sequence[PendingBlock]) -> pa.Array:
    times = np.repeat(np.array([b.received_us for b in blocks], dtype=np.int64), [b.rows for b in blocks])
    return pa.Array.from_buffers(TIME, len(times), [None, pa.py_buffer(times)])


@dataclass(frozen=True, slots=True)
class PendingHalf:
    key: str
    side: Side
    block: PendingBlock
