"""Rows of a version, searched for leaks by index.

Only rows that may match are read, so a commit costs the same in a large dataset as in a small one.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.assertions import Batch
from outrider.assertions.batch.columns import row_hashes
from outrider.dataops.datasets.leaks import TEXT_LIKENESS, Kind, LeakSide, Whole, matches_of
from outrider.dataops.datasets.near_texts import SLACK
from outrider.dataops.datasets.near_values import ValueSketch, sketch_values, spreads
from outrider.dataops.datasets.neighbours import Rows, UInts
from outrider.dataops.datasets.row_files import conform, empty_table
from outrider.dataops.datasets.stored_rows import Run, VersionRows, object_rows, rows_at
from outrider.dataops.datasets.versions import (
    Place,
    Version,
    ids_at,
    lives_of,
    stored_rows,
)
from outrider.dataops.payloads.objects import ObjectStore

from .leak_index import ROOM, IndexedObject, LeakIndex, Shard, likeness, marks_of, open_index

HEAD_ROWS = 1000
SAMPLE_ROWS, ALIKE_ROWS = 10_000, 1000
"""Rows from which spreads are measured, and by which repetition within the version is estimated."""
CLOSEST = 4
"""Rows of numbers that are read for each new one; of texts one."""
_OBJECT = 40
"""Bits of the row in a code of object and row."""

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Object:
    stored: VersionRows
    data: memoryview
    index: LeakIndex
    is_there: NDArray[np.bool_]
    """By row of the object."""

    def place(self, row: int) -> Place:
        runs = sorted(self.stored.runs, key=lambda run: run.start)
        run = runs[bisect_right([run.start for run in runs], row) - 1]
        return run.file, run.position + row - run.start


@dataclass(frozen=True, slots=True)
class _Sample:
    batch: Batch
    codes: Codes


class IndexedVersion:
    """Rows of a version, of which only possible matches are read."""

    def __init__(
        self,
        connection: Connection,
        objects: ObjectStore,
        version: Version,
        *,
        part: str | None = None,
        without: Sequence[str] = (),
        cache: Path,
    ) -> None:
        self._connection, self._store, self._version, self._cache = connection, objects, version, cache
        self._schema = version.schema
        self._stored = stored_rows(connection, version, part=part)
        self._without: dict[int, list[int]] = {}
        for life in lives_of(connection, version.dataset, without).values():
            self._without.setdefault(life.file, []).append(life.position)
        self._opened: list[_Object] = []

    @cached_property
    def rows(self) -> int:
        again = sum(int(self._again(stored).sum()) for stored in self._stored)
        return sum(stored.living for stored in self._stored) - again

    @cached_property
    def head(self) -> Batch:
        for stored in self._stored:
            for table in stored.pieces(self._store.mapped(stored.sha256), self._schema, HEAD_ROWS):
                return Batch.from_arrow(table, model=self._version.model)
        return Batch.from_arrow(empty_table(self._schema), model=self._version.model)

    def near(self, name: str, new: LeakSide) -> LeakSide:
        self._open(new)
        return self._side(name, new, None)

    def holds(self, units: NDArray[np.object_]) -> NDArray[np.bool_]:
        """Mask of known entities (ids for records without one); after :meth:`near`."""
        wanted = row_hashes(pa.array(units.astype(str), pa.string()), "entity")
        found = [np.empty(0, np.uint64)]
        for opened in self._opened:
            for shard in opened.index.shards:
                rows = shard.equal("unit", np.unique(wanted))
                found.append(shard.units[rows[opened.is_there[rows + shard.start]]])
        return np.isin(wanted, np.concatenate(found))

    # ---- opening ----------------------------------------------------------------------------------------

    def _open(self, new: LeakSide) -> None:
        """Indexes are by object and the columns of the new rows."""
        named = {"id", "entity", *new.inputs}
        schema = pa.schema([field for field in self._schema if field.name in named])
        grid: dict[str, float] | None = None
        self._opened = []
        for stored in self._stored:
            of = IndexedObject(stored.sha256, schema, new.prose, self._version.model)
            data = self._store.mapped(stored.sha256)
            rows = object_rows(data)
            index = open_index(self._cache, of, data, rows, grid=grid)
            grid = grid or index.grid
            self._opened.append(_Object(stored, data, index, self._mask(stored, rows)))
        self._widen(new, schema)

    def _widen(self, new: LeakSide, schema: pa.Schema) -> None:
        """Rebuild indexes whose cells are too small for the current spreads."""
        if new.prose or not self._opened:
            return
        scales = spreads(new.values, self._sketch(new))
        for at, opened in enumerate(self._opened):
            grid = opened.index.grid
            larger = [scale / grid[name] for name, scale in scales.items() if name in grid]
            if larger and float(np.sqrt(np.mean(np.square(larger)))) > ROOM:
                of = IndexedObject(opened.stored.sha256, schema, new.prose, self._version.model)
                (self._cache / of.name).unlink(missing_ok=True)
                wider = {name: max(scale, scales.get(name, 0.0)) for name, scale in grid.items()}
                index = open_index(self._cache, of, opened.data, opened.index.rows, grid=wider)
                self._opened[at] = _Object(opened.stored, opened.data, index, opened.is_there)

    def _mask(self, stored: VersionRows, rows: int) -> NDArray[np.bool_]:
        found = np.zeros(rows, np.bool_)
        for run in stored.runs:
            found[run.start : run.start + run.rows] = True
            gone = stored.gone_in(run)
            found[gone - run.position + run.start] = False
        found[self._again(stored, rows)] = False
        return found

    def _again(self, stored: VersionRows, rows: int | None = None) -> NDArray[np.bool_]:
        """Mask of rows that come again."""
        size = rows or max((run.start + run.rows for run in stored.runs), default=0)
        found = np.zeros(size, np.bool_)
        for run in stored.runs:
            for position in self._without.get(run.file, ()):
                if run.position <= position < run.position + run.rows:
                    found[position - run.position + run.start] = True
        return found

    # ---- samples ----------------------------------------------------------------------------------------

    @cached_property
    def _sampled(self) -> _Sample:
        total, codes, batches = max(1, self.rows), [np.empty(0, np.int64)], []
        for at, opened in enumerate(self._opened):
            kept = np.flatnonzero(opened.is_there[opened.index.sampled])
            most = max(1, int(SAMPLE_ROWS * opened.is_there.sum() / total))
            kept = kept[np.arange(min(most, len(kept))) * len(kept) // max(1, min(most, len(kept)))]
            batches.append(opened.index.sample.take(kept))
            codes.append((at << _OBJECT) + opened.index.sampled[kept].astype(np.int64))
        return _Sample(Batch.concat(batches), np.concatenate(codes))

    def _sketch(self, side: LeakSide) -> ValueSketch:
        sample = self._sampled.batch
        return sketch_values(sample, side.inputs, sample=sample, rows=self.rows)

    # ---- searching --------------------------------------------------------------------------------------

    def _side(self, name: str, asking: LeakSide, own: Codes | None) -> LeakSide:
        """With ``own``, codes of the asking rows, these come first."""
        search = _Search(asking, self._opened, own)
        near = search.near(search.equal())
        known = np.empty(0, np.int64) if own is None else own
        near = near[~np.isin(near, known)]
        tables = [self._read(near, asking)]
        batch = Batch.concat([asking.batch, *tables]) if own is not None else tables[0]
        codes = np.concatenate([known, near])
        codes = np.concatenate([codes, np.setdiff1d(search.exact, codes)])
        hashes = self._hashes(codes)
        whole = Whole(
            self.rows,
            self._sampled.batch,
            *hashes,
            alike=lambda: self._alike(asking),
            ids=lambda rows: self._ids(codes[rows]),
        )
        return LeakSide(name, batch, asking.inputs, asking.prose, whole)

    def _alike(self, like: LeakSide) -> dict[Kind, float]:
        codes = self._sampled.codes
        some = np.arange(min(ALIKE_ROWS, len(codes))) * len(codes) // max(1, min(ALIKE_ROWS, len(codes)))
        asking = LeakSide("", self._sampled.batch.take(some), like.inputs, like.prose)
        side = self._side("", asking, codes[some])
        found = matches_of(side, side)
        return {match.kind: float((match.pairs.rows < len(some)).sum()) / len(some) for match in found}

    def _hashes(self, codes: Codes) -> tuple[UInts, UInts]:
        entities, digests = np.zeros(len(codes), np.uint64), np.zeros(len(codes), np.uint64)
        for at, opened in enumerate(self._opened):
            for shard in opened.index.shards:
                rows = codes - ((at << _OBJECT) + shard.start)
                mine = (rows >= 0) & (rows < shard.rows)
                entities[mine], digests[mine] = shard.entities[rows[mine]], shard.digests[rows[mine]]
        return entities, digests

    def _read(self, codes: Codes, like: LeakSide) -> Batch:
        names = [name for name in like.batch.names if name == "id" or name in like.inputs]
        schema = pa.schema([self._schema.field(name) for name in ["id", *sorted({*names} - {"id"})]])
        tables, order = [empty_table(schema)], []
        for at, opened in enumerate(self._opened):
            mine = np.flatnonzero(codes >> _OBJECT == at)
            if len(mine):
                runs = [Run(0, 0, 0, opened.index.rows)]
                places = [(0, row) for row in (codes[mine] & ((1 << _OBJECT) - 1)).tolist()]
                tables.append(conform(rows_at(opened.data, runs, places, schema.names), schema))
                order.append(mine)
        table = pa.concat_tables(tables)
        if order:
            table = table.take(pa.array(np.argsort(np.concatenate(order))))
        return Batch.from_arrow(table, model=self._version.model)

    def _ids(self, codes: Codes) -> list[str]:
        places = [self._opened[code >> _OBJECT].place(code & ((1 << _OBJECT) - 1)) for code in codes.tolist()]
        return ids_at(self._connection, self._version.dataset, places)


class _Search:
    def __init__(self, asking: LeakSide, opened: Sequence[_Object], own: Codes | None) -> None:
        self._asking, self._own = asking, own
        self._shards = [(at, one, shard) for at, one in enumerate(opened) for shard in one.index.shards]
        self.exact: Codes = np.empty(0, np.int64)

    def equal(self) -> NDArray[np.bool_]:
        """Mask of asking rows with equal inputs; collects equal rows in ``exact``."""
        digests = self._asking.digests
        entities = np.unique(self._asking.entities[self._asking.entities != 0])
        wanted = np.unique(digests[digests != 0])
        found, same, counts = [self.exact], [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        for at, opened, shard in self._shards:
            rows = shard.equal("digest", wanted)
            rows = rows[opened.is_there[rows + shard.start]]
            same.append(_codes(at, shard, rows))
            counts.append(shard.digests[rows])
            if self._own is None:
                rows = shard.equal("unit", entities)
                rows = rows[opened.is_there[rows + shard.start] & (shard.entities[rows] != 0)]
                found.append(_codes(at, shard, rows))
        self.exact = np.unique(np.concatenate([*found, *same]))
        values, many = np.unique(np.concatenate(counts), return_counts=True)
        is_equal: NDArray[np.bool_] = np.isin(digests, values if self._own is None else values[many > 1])
        is_equal &= digests != 0
        return is_equal

    def near(self, is_equal: NDArray[np.bool_]) -> Codes:
        """Codes of the closest rows of those without an equal one."""
        best = np.where(is_equal, np.inf, -np.inf)
        asked: list[NDArray[np.intp]] = [np.empty(0, np.intp)]
        codes, scores = [np.empty(0, np.int64)], [np.empty(0)]
        is_text = bool(self._asking.prose)
        enough = TEXT_LIKENESS + SLACK if is_text else np.inf
        marked = {}
        for at, opened, shard in self._shards:
            key = str(opened.index.grid)
            if key not in marked:
                marked[key] = marks_of(self._asking, opened.index.grid)
            marks = marked[key]
            for table in range(shard.tables):
                rows = np.flatnonzero(best < enough)
                pairs, others = shard.neighbours(table, marks.buckets[rows, table])
                found, pairs = _codes(at, shard, others), rows[pairs]
                keep = opened.is_there[others + shard.start]
                if self._own is not None:
                    keep &= found != self._own[pairs]
                found, pairs, others = found[keep], pairs[keep], others[keep]
                score = likeness(marks.marks[pairs], shard.marks(others), is_text=is_text)
                keep = score > -np.inf
                np.maximum.at(best, pairs[keep], score[keep])
                asked.append(pairs[keep])
                codes.append(found[keep])
                scores.append(score[keep])
        most = 1 if is_text else CLOSEST
        return _closest(np.concatenate(asked), np.concatenate(codes), np.concatenate(scores), most)


def _codes(at: int, shard: Shard, rows: Rows) -> Codes:
    return (at << _OBJECT) + shard.start + rows.astype(np.int64)


def _closest(asked: Rows, codes: Codes, scores: NDArray[np.float64], most: int) -> Codes:
    pairs, first = np.unique(np.stack([asked.astype(np.int64), codes]), axis=1, return_index=True)
    order = np.lexsort((-scores[first], pairs[0]))
    rows = pairs[0][order]
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    rank = np.arange(len(rows)) - np.repeat(begins, np.diff([*begins, len(rows)]))
    return np.unique(pairs[1][order][rank < most])
