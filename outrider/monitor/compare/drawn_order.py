"""Questions of files in random order, one per conversation."""

import mmap
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import null_column
from outrider.assertions.batch.schema import canonical_order
from outrider.errors import ConfigError

from .questions import MODEL, REQUEST
from .traffic import BLOCK_BYTES, ROWS, Traffic

FIRST = 64
"""Questions of the first window when schemas are mixed; each next window is twice as large."""
KEPT_BYTES = 67_108_864
"""Maximum bytes of questions kept in memory; the others go to a temporary file."""
_ALIGNED = 64


class DrawnTraffic:
    """Questions of files in random order, one random question per conversation; after ``stop`` is set, no
    more files are read."""

    def __init__(self, traffic: Traffic, seed: int = 0, *, stop: threading.Event | None = None) -> None:
        self._traffic, self._seed, self._stop = traffic, seed, stop or threading.Event()
        self._further = 0

    def __iter__(self) -> Iterator[Batch]:
        stored = self._stored()
        rows = drawn_rows(stored.entities(), self._seed)
        self._further = stored.rows - len(rows)
        yield from stored.in_order(rows)

    def _stored(self) -> "_StoredQuestions":
        """Read all files; the temporary file is already unlinked and lives as long as its memory map."""
        try:
            with tempfile.TemporaryFile(prefix="outrider-compare-") as file:
                stored = _StoredQuestions(file)
                for batch in self._traffic:
                    stored.add(batch)
                    if self._stop.is_set():
                        break
                stored.map()
        except OSError as error:
            raise ConfigError(
                f"--from: the questions cannot be set down in {tempfile.gettempdir()}: {error.strerror}; "
                "name a folder with more room in TMPDIR"
            ) from None
        return stored

    def funnel(self) -> dict[str, Any]:
        return self._traffic.funnel() | {"further turns": self._further}


def drawn_rows(entities: NDArray[np.uint64], seed: int) -> NDArray[np.intp]:
    """Rows in random order, one random row per entity.

    Examples
    --------
    >>> rows = drawn_rows(np.array([7, 7, 9], dtype=np.uint64), 0)
    >>> len(rows), 2 in rows
    (2, True)
    """
    random = np.random.default_rng(seed)
    rows = random.permutation(len(entities))
    _, first = np.unique(entities[rows], return_index=True)
    return random.permutation(rows[first])  # in order of appearance, long conversations would come first


class _StoredQuestions:
    """Question batches in memory, overflowing into a memory-mapped file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._mapped: mmap.mmap | None = None
        self._open: list[Batch] = []
        self._open_bytes = self._bytes = 0
        self._kept: list[pa.RecordBatch] = []
        self._places: list[tuple[int, int]] = []
        self._starts = [0]
        self._entities: list[NDArray[np.uint64]] = []
        self._schemas: list[pa.Schema] = []
        """Distinct schemas; compatible schemas are merged into one with the columns of both."""
        self._schema_of: list[int] = []
        """Index into ``_schemas`` of each batch."""
        self.rows = 0

    def add(self, batch: Batch) -> None:
        if not batch.rows:
            return
        self._entities.append(_entities(batch, self.rows))
        self.rows += batch.rows
        schema = batch.to_arrow().schema
        if self._open and not schema.equals(self._open[0].to_arrow().schema, check_metadata=True):
            self._write()
        self._open.append(batch)
        self._open_bytes += batch.to_arrow().nbytes
        if self._open_bytes >= BLOCK_BYTES:
            self._write()

    def _write(self) -> None:
        """Store the pending batches as one, because selecting rows slows down with the number of batches."""
        if not self._open:
            return
        batch = Batch.concat(self._open)
        self._bytes += self._open_bytes
        if self._bytes <= KEPT_BYTES:
            self._kept.append(batch.to_arrow())
        else:
            body = batch.to_ipc()
            self._places.append((self._file.tell(), len(body)))
            self._file.write(body)
            self._file.write(bytes(-len(body) % _ALIGNED))
        self._open, self._open_bytes = [], 0
        self._starts.append(self._starts[-1] + batch.rows)
        self._schema_of.append(self._known_schema(batch.to_arrow().schema))

    def map(self) -> None:
        self._write()
        self._file.flush()
        if self._places:
            self._mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def entities(self) -> NDArray[np.uint64]:
        """Hash of each row's entity; a unique number for a row without one."""
        return np.concatenate([np.zeros(0, dtype=np.uint64), *self._entities])

    def in_order(self, rows: NDArray[np.intp]) -> Iterator[Batch]:
        """Yield the given rows in order; rows of the same window are grouped by schema."""
        if not self.rows:
            return
        batches = self._kept
        if (mapped := self._mapped) is not None:
            whole = pa.py_buffer(mapped)
            batches = [*batches, *(Batch.from_ipc(whole.slice(*each)).to_arrow() for each in self._places)]
        starts = np.asarray(self._starts)
        most = max(1, min(ROWS, BLOCK_BYTES * self.rows // max(1, self._bytes)))
        step = most if len(self._schemas) == 1 else FIRST
        at = 0
        while at < len(rows):
            window, at = rows[at : at + min(step, most)], at + min(step, most)
            of_batch = np.searchsorted(starts, window, side="right") - 1
            groups = np.asarray(self._schema_of)[of_batch]
            for group in dict.fromkeys(groups.tolist()):
                here = groups == group
                yield _select(
                    batches, self._schemas[group], of_batch[here], (window - starts[of_batch])[here]
                )
            if mapped is not None:
                mapped.madvise(mmap.MADV_DONTNEED)
            step *= 2

    def _known_schema(self, schema: pa.Schema) -> int:
        """Index of a compatible schema, extended by the new columns; adds the schema if there is none."""
        for number, known in enumerate(self._schemas):
            if (REQUEST in schema.names) != (REQUEST in known.names):
                continue
            try:
                both = pa.unify_schemas([known, schema])
            except pa.ArrowException:
                continue
            fields = [both.field(name) for name in canonical_order(both.names)]
            self._schemas[number] = pa.schema(fields, metadata=both.metadata)
            return number
        self._schemas.append(schema)
        return len(self._schemas) - 1


def _entities(batch: Batch, before: int) -> NDArray[np.uint64]:
    from pandas.util import hash_array  # pandas is slow to import

    found = np.arange(before, before + batch.rows, dtype=np.uint64)
    if batch.has("entity") and not batch.is_null("entity").all():
        names = np.array(batch.arrow("entity").to_pylist(), dtype=object)
        is_named = np.array([bool(name) for name in names], dtype=np.bool_)
        found[is_named] = hash_array(names[is_named], categorize=False)
    return found


def _select(
    batches: Sequence[pa.RecordBatch], schema: pa.Schema, of_batch: NDArray[np.intp], rows: NDArray[np.intp]
) -> Batch:
    """Select rows of several batches in order, with nulls for missing columns; ``of_batch`` is the
    batch of each row."""
    if (of_batch == of_batch[0]).all():
        return Batch(_with_schema(batches[of_batch[0]].take(pa.array(rows)), schema), model=MODEL)
    order = np.argsort(of_batch, kind="stable")
    numbers, first = np.unique(of_batch[order], return_index=True)
    parts = [
        _with_schema(batches[number].take(pa.array(some)), schema)
        for number, some in zip(numbers.tolist(), np.split(rows[order], first[1:]), strict=True)
    ]
    back = np.empty(len(order), dtype=np.intp)
    back[order] = np.arange(len(order))
    (table,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return Batch(table.take(pa.array(back)), model=MODEL)


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    there = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in there
        else null_column(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
