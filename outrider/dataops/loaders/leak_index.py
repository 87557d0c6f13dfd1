"""Index of an object's rows for the search of leaks.

A row has hashes of entity and inputs, and marks: 16 bits of each text hash, or positions on random
projections. Rows of a bucket are adjacent. The index is an Arrow file in shards, rebuilt when lost.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import mix, row_hashes
from outrider.dataops.datasets.leaks import TEXT_LIKENESS, VALUE_SHARE, LeakSide
from outrider.dataops.datasets.near_texts import BAND_HASHES, BANDS, HASHES, SLACK, band_keys
from outrider.dataops.datasets.near_values import PROJECTIONS, TABLES, projected, sketch_values, spreads
from outrider.dataops.datasets.neighbours import Rows, UInts
from outrider.dataops.datasets.stored_rows import Run, VersionRows

from .arrow_cache import cached

SHARD_ROWS = 32_768
SAMPLE_ROWS, LEAST_SAMPLE = 2000, 100
"""Rows of an object that are kept to measure spreads: one in ten, within these bounds."""
REACH = 8
WIDTH, ROOM = 9.0, 1.5
"""Cell size in largest distances of near-duplicates, and the growth of spreads it allows."""
STEPS = 64
"""Positions in a cell."""
_FORMAT = 1
_PLACE = np.uint64(16)
"""Bits of a bucket's key that order its rows."""
_STEP_PAIRS = 16_384


@dataclass(frozen=True, slots=True)
class Marks:
    marks: NDArray[np.uint16]
    """Shape (rows, marks)."""
    buckets: UInts
    """Shape (rows, tables): 48 bits of the bucket, 16 of the position in it; 0 for none."""


@dataclass(frozen=True, slots=True)
class IndexedObject:
    sha256: str
    schema: pa.Schema
    prose: frozenset[str]
    model: str

    @property
    def inputs(self) -> list[str]:
        return [name for name in self.schema.names if name.startswith("inputs.")]

    @property
    def name(self) -> str:
        columns = [[field.name, str(field.type)] for field in self.schema]
        key = json.dumps([_FORMAT, self.sha256, columns, sorted(self.prose)])
        return "leaks-" + hashlib.sha256(key.encode()).hexdigest()[:40] + ".arrow"


class Shard:
    def __init__(self, batch: pa.RecordBatch, start: int) -> None:
        self._batch, self.start, self.rows = batch, start, batch.num_rows
        self.units, self.digests = self._column("unit"), self._column("digest")
        self.entities = np.where(self._column("has_entity"), self.units, np.uint64(0))

    def equal(self, kind: str, wanted: UInts) -> Rows:
        """``wanted`` is sorted and without 0."""
        keys, order = self._column(f"{kind}_sorted"), self._column(f"{kind}_order")
        first, last = (np.searchsorted(keys, wanted, side=side) for side in ("left", "right"))
        held = np.flatnonzero(last > first)
        counts = (last - first)[held]
        behind = np.repeat(first[held] - (np.cumsum(counts) - counts), counts)
        return order[behind + np.arange(len(behind))].astype(np.intp)

    @property
    def tables(self) -> int:
        return sum(name.startswith("bucket_") for name in self._batch.schema.names)

    def neighbours(self, table: int, asked: UInts) -> tuple[Rows, Rows]:
        keys, order = self._column(f"bucket_{table}"), self._column(f"order_{table}")
        at = np.searchsorted(keys, asked)
        after, before = keys[np.minimum(at, len(keys) - 1)], keys[np.maximum(at - 1, 0)]
        bucket = asked >> _PLACE
        is_held = (asked != 0) & ((after >> _PLACE == bucket) | (before >> _PLACE == bucket))
        rows = np.flatnonzero(is_held)
        to = at[rows, None] + np.arange(-REACH, REACH)
        inside = np.clip(to, 0, len(keys) - 1)
        same = (keys[inside] >> _PLACE == bucket[rows, None]) & (inside == to)
        found, step = np.nonzero(same)
        return rows[found], order[inside[found, step]].astype(np.intp)

    def marks(self, rows: Rows) -> NDArray[np.uint16]:
        column = self._batch.column("marks")
        found: NDArray[np.uint16] = column.values.to_numpy().reshape(self.rows, -1)[rows]
        return found

    def _column(self, name: str) -> NDArray[Any]:
        column = self._batch.column(name)
        found: NDArray[Any] = column.to_numpy(zero_copy_only=not pa.types.is_boolean(column.type))
        return found


class LeakIndex:
    def __init__(self, path: Path, model: str) -> None:
        with pa.memory_map(str(path)) as mapped, pa.ipc.open_stream(mapped) as reader:
            table = reader.read_all()
        facts = table.schema.metadata
        self._model, self._sample = model, facts[b"sample"]
        self.grid: dict[str, float] = json.loads(facts[b"grid"])
        starts = np.cumsum([0, *(batch.num_rows for batch in table.to_batches())]).tolist()
        self.shards = [
            Shard(batch, start) for batch, start in zip(table.to_batches(), starts[:-1], strict=True)
        ]
        self.rows = int(starts[-1])
        self.sampled = np.frombuffer(facts[b"sampled"], dtype="<i8").astype(np.intp)  # rows of the object

    @cached_property
    def sample(self) -> Batch:
        with pa.ipc.open_stream(pa.py_buffer(self._sample)) as reader:
            return Batch.from_arrow(reader.read_all(), model=self._model)


def open_index(
    cache: Path, of: IndexedObject, data: memoryview, rows: int, *, grid: Mapping[str, float] | None = None
) -> LeakIndex:
    """``grid``: spreads for a new index; the object's by default."""

    def write(file: BinaryIO) -> None:
        _write(file, of, data, rows, grid)

    return LeakIndex(cached(cache, of.name, write), of.model)


def marks_of(side: LeakSide, grid: Mapping[str, float]) -> Marks:
    if side.prose:
        return _text_marks(side)
    if grid:
        return _value_marks(side, grid)
    return Marks(np.empty((side.batch.rows, 0), np.uint16), np.empty((side.batch.rows, 0), np.uint64))


def likeness(one: NDArray[np.uint16], other: NDArray[np.uint16], *, is_text: bool) -> NDArray[np.float64]:
    """Likeness of each pair by marks; -inf if too far apart."""
    found = np.empty(len(one))
    for start in range(0, len(one), _STEP_PAIRS):
        ours, theirs = one[start : start + _STEP_PAIRS], other[start : start + _STEP_PAIRS]
        if is_text:
            shared = (ours == theirs).mean(axis=1)
            found[start : start + len(ours)] = np.where(shared >= TEXT_LIKENESS - SLACK, shared, -np.inf)
            continue
        steps = ours.view(np.int16).astype(np.int32) - theirs.view(np.int16)
        apart = np.abs(steps).max(axis=1) / STEPS
        found[start : start + len(ours)] = np.where(apart <= 1.0, -apart, -np.inf)
    return found


def _text_marks(side: LeakSide) -> Marks:
    signatures = side.texts.signatures.astype(np.uint16)
    keys = [side.texts.digests, *(band_keys(signatures, band) for band in range(BANDS))]
    places = [signatures[:, band * BAND_HASHES % HASHES] for band in range(BANDS + 1)]
    return Marks(signatures, _buckets(keys, places, side.texts.digests != 0))


def _value_marks(side: LeakSide, grid: Mapping[str, float]) -> Marks:
    cell = WIDTH * VALUE_SHARE * len(grid) ** 0.5
    places = projected(side.values, grid) / cell
    offsets = np.random.default_rng(7).uniform(0, 1, places.shape[1])
    steps = np.clip(np.floor((places + offsets) * STEPS), -(2**15), 2**15 - 1).astype(np.int16)
    keys, along = [], []
    for table in range(TABLES):
        key = side.values.fixed
        for column in range(table * PROJECTIONS, (table + 1) * PROJECTIONS):
            key = mix(key ^ (steps[:, column] // STEPS).astype(np.int64).view(np.uint64))
        keys.append(key)
        along.append(steps[:, (table + 1) * PROJECTIONS % steps.shape[1]].view(np.uint16) ^ np.uint16(2**15))
    return Marks(steps.view(np.uint16), _buckets(keys, along, np.ones(len(steps), np.bool_)))


def _buckets(keys: Sequence[UInts], places: Sequence[NDArray[np.uint16]], there: NDArray[np.bool_]) -> UInts:
    found = np.empty((len(there), len(keys)), np.uint64)
    for table, (key, place) in enumerate(zip(keys, places, strict=True)):
        found[:, table] = np.where(there, (key >> _PLACE << _PLACE) | place, np.uint64(0))
    return found


# ---- writing --------------------------------------------------------------------------------------------


def _write(
    file: BinaryIO, of: IndexedObject, data: memoryview, rows: int, grid: Mapping[str, float] | None
) -> None:
    sampled = _sampled(rows)
    sample = _rows(of, data, rows, sampled)
    if grid is None:
        values = sketch_values(Batch.from_arrow(sample, model=of.model), of.inputs)
        grid = {} if of.prose else spreads(values, values)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, sample.schema) as writer:
        writer.write_table(sample)
    facts = {"grid": json.dumps(dict(grid)), "sample": sink.getvalue().to_pybytes()}
    facts["sampled"] = sampled.astype("<i8").tobytes()
    writer = None
    for table in _pieces(of, data, rows):
        shard = _shard(of, table, grid).replace_schema_metadata(facts)
        writer = writer or pa.ipc.new_stream(file, shard.schema)
        writer.write_batch(shard)
    if writer is not None:
        writer.close()


def _pieces(of: IndexedObject, data: memoryview, rows: int) -> Iterator[pa.Table]:
    return VersionRows(of.sha256, [Run(0, 0, 0, rows)]).pieces(data, of.schema, SHARD_ROWS)


def _sampled(rows: int) -> Rows:
    count = min(SAMPLE_ROWS, max(LEAST_SAMPLE, rows // 10), rows)
    return (np.arange(count) * rows // max(count, 1)).astype(np.intp)


def _rows(of: IndexedObject, data: memoryview, rows: int, wanted: Rows) -> pa.Table:
    found, start = [], 0
    for table in _pieces(of, data, rows):
        first, last = np.searchsorted(wanted, [start, start + table.num_rows])
        found.append(table.take(pa.array(wanted[first:last] - start)))
        start += table.num_rows
    return pa.concat_tables(found).combine_chunks()


def _shard(of: IndexedObject, table: pa.Table, grid: Mapping[str, float]) -> pa.RecordBatch:
    side = LeakSide("", Batch.from_arrow(table, model=of.model), of.inputs, of.prose)
    ids = table.column("id").combine_chunks().cast(pa.string())
    entities = pa.nulls(len(ids), pa.string())
    if "entity" in table.column_names:
        entities = table.column("entity").combine_chunks().cast(pa.string())
    columns: dict[str, Any] = {"unit": row_hashes(pc.coalesce(entities, ids), "entity")}
    columns |= {"digest": side.digests, "has_entity": entities.is_valid()}
    for name in ("unit", "digest"):
        order = np.argsort(columns[name], kind="stable")
        columns |= {f"{name}_sorted": columns[name][order], f"{name}_order": order.astype(np.uint16)}
    marks = marks_of(side, grid)
    if marks.buckets.shape[1]:
        size = marks.marks.shape[1]
        columns["marks"] = pa.FixedSizeListArray.from_arrays(pa.array(marks.marks.reshape(-1)), size)
    for number, keys in enumerate(marks.buckets.T):
        order = np.argsort(keys, kind="stable")
        columns |= {f"bucket_{number}": keys[order], f"order_{number}": order.astype(np.uint16)}
    return pa.RecordBatch.from_pydict(
        {
            name: values if isinstance(values, pa.Array) else pa.array(values)
            for name, values in columns.items()
        }
    )
