"""Rows of many entities, kept in Arrow chunks so that reading an entity never touches the others.

Each entity's rows lie together in one chunk. They are replaced as a whole: the new ones go into a new chunk,
the old ones are dead until chunks are merged. Chunk sizes fall by at least half from one to the next, so
there are few of them, and a row is copied a logarithmic number of times (O'Neil et al., "The Log-Structured
Merge-Tree", 1996).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Chunk:
    """Rows of some entities: ``codes`` in order, ``counts`` rows each; ``live`` of the rows still count."""

    table: pa.RecordBatch
    codes: Ints
    counts: Ints
    live: int


class Extents:
    """Rows by entity code; entities are small integers that the owner gives out and takes back."""

    def __init__(self) -> None:
        self._chunks: dict[int, Chunk] = {}
        self._next = 1
        self._where = np.zeros(0, dtype=np.int64)
        self._start = np.zeros(0, dtype=np.int64)
        self._count = np.zeros(0, dtype=np.int64)

    @property
    def rows(self) -> int:
        """Rows that count."""
        return sum(chunk.live for chunk in self._chunks.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks, dead rows included."""
        return sum(int(chunk.table.nbytes) for chunk in self._chunks.values())

    def grow(self, size: int) -> None:
        """Make room for entity codes below ``size``."""
        self._where, self._start, self._count = (
            grown(values, size) for values in (self._where, self._start, self._count)
        )

    def gather(self, codes: Ints) -> tuple[list[pa.RecordBatch], Ints]:
        """Rows of entities in pieces, and for every row the index into ``codes`` of its entity."""
        where = self._where[codes]
        tables, owners = [], []
        for serial in np.unique(where[where > 0]).tolist():
            mine = np.flatnonzero(where == serial)
            starts, counts = self._start[codes[mine]], self._count[codes[mine]]
            tables.append(take(self._chunks[serial].table, ranges(starts, counts)))
            owners.append(np.repeat(mine, counts))
        return tables, np.concatenate([*owners, np.zeros(0, dtype=np.int64)])

    def replace(self, codes: Ints, counts: Ints, table: pa.RecordBatch) -> None:
        """Let ``table`` (``counts`` rows of each of ``codes``, in that order) stand for what there was."""
        self.drop(codes)
        if table.num_rows:
            self._add(codes, counts, table)
            self._merge()

    def drop(self, codes: Ints) -> None:
        """Forget the rows of entities."""
        where = self._where[codes]
        for serial in np.unique(where[where > 0]).tolist():
            chunk = self._chunks[serial]
            chunk.live -= int(self._count[codes[where == serial]].sum())
            if not chunk.live:
                del self._chunks[serial]
        self._where[codes] = 0

    def map(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Replace every chunk by one of as many rows."""
        for chunk in self._chunks.values():
            chunk.table = change(chunk.table)

    def _add(self, codes: Ints, counts: Ints, table: pa.RecordBatch) -> None:
        self._chunks[self._next] = Chunk(table, codes, counts, table.num_rows)
        self._where[codes] = np.where(counts > 0, self._next, 0)
        self._start[codes] = np.cumsum(counts) - counts
        self._count[codes] = counts
        self._next += 1

    def _merge(self) -> None:
        while len(self._chunks) > 1:
            (older, first), (newer, last) = list(self._chunks.items())[-2:]
            if first.live > 2 * last.live:
                return
            tables, codes = [], []
            for serial, chunk in ((older, first), (newer, last)):
                own = chunk.codes[(self._where[chunk.codes] == serial) & (chunk.counts > 0)]
                tables.append(take(chunk.table, ranges(self._start[own], self._count[own])))
                codes.append(own)
                del self._chunks[serial]
            merged = np.concatenate(codes)
            self._add(merged, self._count[merged], concat(tables))


def grown(values: Ints, size: int) -> Ints:
    """``values`` with zeros behind, at least ``size`` long; doubles, so that growing stays cheap."""
    if len(values) >= size:
        return values
    return np.concatenate(
        [values, np.zeros(max(size, 2 * len(values), 64) - len(values), dtype=values.dtype)]
    )


def ranges(starts: Ints, counts: Ints) -> Ints:
    """``start, start + 1, …`` of each pair, one after the other."""
    before = np.cumsum(counts) - counts
    found: Ints = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(starts - before, counts)
    return found


def take(table: pa.RecordBatch, index: Ints) -> pa.RecordBatch:
    """Rows of a table; the table itself where these are all of them in order."""
    rows = table.num_rows
    if len(index) == rows and (not rows or (index[0] == 0 and bool((np.diff(index) == 1).all()))):
        return table
    return table.take(pa.array(index))


def concat(tables: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One table of several with one schema."""
    return tables[0] if len(tables) == 1 else pa.concat_batches(tables)
