"""Rows of many entities in Arrow chunks, read entity by entity.

Reading one entity does not touch the others. Each entity's rows are contiguous in one chunk. They are
replaced as a whole: the new ones go into a new chunk, the old ones are unused until chunks are merged. Chunk
sizes fall by at least half from one to the next, so there are few of them, and a row is copied a logarithmic
number of times (O'Neil et al., "The Log-Structured Merge-Tree", 1996).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch.columns import null_column

Ints = NDArray[np.int64]
NO_ROWS = np.zeros(0, dtype=np.int64)
SPARSE = 4
"""Maximum ratio of copied to wanted rows: below it copying all is cheaper than picking rows."""


@dataclass(slots=True)
class Chunk:
    """Rows of the entities ``codes``.

    ``live`` counts the rows still in use.
    """

    table: pa.RecordBatch
    codes: Ints
    live: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of several entities.

    Attributes
    ----------
    tables
        Tables with the rows, treated as concatenated.
    index, owner
        Row number in the concatenated ``tables``, and position of its entity among the requested ones, shape
        (rows,).
    """

    tables: list[pa.RecordBatch]
    index: Ints
    owner: Ints

    def and_also(self, table: pa.RecordBatch, index: Ints, owner: Ints) -> "Gathered":
        """Gathered rows extended by rows of another table."""
        index = np.concatenate([self.index, self.size + index])
        return Gathered([*self.tables, table], index, np.concatenate([self.owner, owner]))

    @property
    def size(self) -> int:
        """Number of rows of all tables."""
        return sum(table.num_rows for table in self.tables)

    def numbers(self, name: str) -> NDArray[Any]:
        """Values of a column of whole numbers, shape (rows,)."""
        whole = [numbers(table.column(name)) for table in self.tables]
        if not whole:
            return NO_ROWS
        return (np.concatenate(whole) if len(whole) > 1 else whole[0])[self.index]


class EntityRows:
    """Rows by entity code.

    The owner allocates and frees the codes.
    """

    def __init__(self) -> None:
        self._chunks: dict[int, Chunk] = {}
        self._next = 1
        self._where = np.zeros(0, dtype=np.int64)
        self._start = np.zeros(0, dtype=np.int64)
        self._count = np.zeros(0, dtype=np.int64)

    @property
    def rows(self) -> int:
        """Number of rows in use."""
        return sum(chunk.live for chunk in self._chunks.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks, unused rows included."""
        return sum(int(chunk.table.nbytes) for chunk in self._chunks.values())

    def grow(self, size: int) -> None:
        """Make room for entity codes below ``size``."""
        self._where, self._start, self._count = (
            grown(values, size) for values in (self._where, self._start, self._count)
        )

    def gather(self, codes: Ints) -> "Gathered":
        """Rows of the entities with these codes."""
        where = self._where[codes]
        found = Gathered([], NO_ROWS, NO_ROWS)
        for serial in np.unique(where[where > 0]).tolist():
            mine = np.flatnonzero(where == serial)
            starts, counts = self._start[codes[mine]], self._count[codes[mine]]
            table, index = self._chunks[serial].table, ranges(starts, counts)
            if len(index) * SPARSE < table.num_rows:
                table, index = take(table, index), np.arange(len(index))
            found = found.and_also(table, index, np.repeat(mine, counts))
        return found

    def replace(self, codes: Ints, starts: Ints, counts: Ints, table: pa.RecordBatch) -> None:
        """Replace the rows of ``codes`` by ``counts`` rows from ``starts`` on.

        All earlier rows of these entities are removed.
        """
        self.drop(codes)
        rows = int(counts.sum())
        if not rows:
            return
        if rows * SPARSE < table.num_rows:
            table, starts = take(table, ranges(starts, counts)), np.cumsum(counts) - counts
        self._add(codes, starts, counts, table)
        self._merge()

    def drop(self, codes: Ints) -> None:
        """Remove the rows of entities."""
        where = self._where[codes]
        for serial in np.unique(where[where > 0]).tolist():
            chunk = self._chunks[serial]
            chunk.live -= int(self._count[codes[where == serial]].sum())
            if not chunk.live:
                del self._chunks[serial]
        self._where[codes] = 0

    def map(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Replace each chunk by ``change(chunk)``, with equal row count."""
        for chunk in self._chunks.values():
            chunk.table = change(chunk.table)

    def _add(self, codes: Ints, starts: Ints, counts: Ints, table: pa.RecordBatch) -> None:
        self._chunks[self._next] = Chunk(table, codes[counts > 0], int(counts.sum()))
        self._where[codes] = np.where(counts > 0, self._next, 0)
        self._start[codes] = starts
        self._count[codes] = counts
        self._next += 1

    def _merge(self) -> None:
        while len(self._chunks) > 1:
            (older, first), (newer, last) = list(self._chunks.items())[-2:]
            if first.live > 2 * last.live:
                return
            tables, codes = [], []
            for serial, chunk in ((older, first), (newer, last)):
                own = chunk.codes[self._where[chunk.codes] == serial]
                tables.append(take(chunk.table, ranges(self._start[own], self._count[own])))
                codes.append(own)
                del self._chunks[serial]
            merged = np.concatenate(codes)
            counts = self._count[merged]
            self._add(merged, np.cumsum(counts) - counts, counts, concat(tables))


def grown(values: Ints, size: int) -> Ints:
    """Copy of ``values`` with at least ``size`` entries, zero-filled.

    The size at least doubles, so that growing stays cheap.
    """
    if len(values) >= size:
        return values
    return np.concatenate(
        [values, np.zeros(max(size, 2 * len(values), 64) - len(values), dtype=values.dtype)]
    )


def ranges(starts: Ints, counts: Ints) -> Ints:
    """Concatenation of ``start, start + 1, …``, ``count`` numbers per pair."""
    before = np.cumsum(counts) - counts
    found: Ints = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(starts - before, counts)
    return found


def take(table: pa.RecordBatch, index: Ints) -> pa.RecordBatch:
    """Rows of a table. Returns the table itself if ``index`` is all rows in order."""
    rows = table.num_rows
    if len(index) == rows and (not rows or (index[0] == 0 and bool((np.diff(index) == 1).all()))):
        return table
    # Columns that hold nothing are many and cost as much as the others.
    places = pa.array(index)
    columns = [
        null_column(len(index), column.type) if column.null_count == rows and rows else column.take(places)
        for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def numbers(column: pa.Array) -> NDArray[Any]:
    """View of an integer column without nulls; times as µs."""
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def concat(tables: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate tables of one schema."""
    return tables[0] if len(tables) == 1 else pa.concat_batches(tables)
