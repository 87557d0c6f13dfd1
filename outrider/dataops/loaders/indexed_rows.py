"""Rows of a version, searched for leaks by index.

New rows ask for rows with equal entities or inputs and for those beside them in a bucket; only the few that
may match are read, so that a commit costs as much in a large dataset as in a small one.
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
"""Rows from which spreads are measured, and how many rows of a version match another one."""
CLOSEST = 4
"""Rows of numbers that are read for each new one; of texts the closest alone."""
_OBJECT = 40
"""Bits of the row in a code of an object and a row of it."""

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Object:
    """Rows of the version in an object."""

    stored: VersionRows
    data: memoryview
    index: LeakIndex
    is_there: NDArray[np.bool_]
    """By row of the object."""

    def place(self, row: int) -> Place:
        """File and position of a row."""
        runs = sorted(self.stored.runs, key=lambda run: run.start)
        run = runs[bisect_right([run.start for run in runs], row) - 1]
        return run.file, run.position + row - run.start


@dataclass(frozen=True, slots=True)
class _Sample:
    """Some rows of the version."""

    batch: Batch
    codes: Codes


class IndexedVersion:
    """Rows of a version, of which only possible matches are read.

    Parameters
    ----------
    part
        The only one to search; None for all.
    without
        Ids of rows that are left out.
    cache
        Folder of the Arrow cache.
    """

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
        """Number of rows."""
        again = sum(int(self._again(stored).sum()) for stored in self._stored)
        return sum(stored.living for stored in self._stored) - again

    @cached_property
    def head(self) -> Batch:
        """First rows."""
        for stored in self._stored:
            for table in stored.pieces(self._store.mapped(stored.sha256), self._schema, HEAD_ROWS):
                return Batch.from_arrow(table, model=self._version.model)
        return Batch.from_arrow(empty_table(self._schema), model=self._version.model)

    def near(self, name: str, new: LeakSide) -> LeakSide:
        """Side of the rows that may match new ones."""
        self._open(new)
        return self._side(name, new, None)

    def holds(self, units: NDArray[np.object_]) -> NDArray[np.bool_]:
        """Mask of known entities, or of known ids without an entity.

        Asked once new rows were searched.
        """
        wanted = row_hashes(pa.array(units.astype(str), pa.string()), "entity")
        found = [np.empty(0, np.uint64)]
        for one in self._opened:
            for shard in one.index.shards:
                rows = shard.equal("unit", np.unique(wanted))
                found.append(shard.units[rows[one.is_there[rows + shard.start]]])
        return np.isin(wanted, np.concatenate(found))

    # ---- opening ----------------------------------------------------------------------------------------

    def _open(self, new: LeakSide) -> None:
        """Open the index of each object, by the columns of the new rows."""
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
        """Make indexes anew whose cells are too small for the spreads of now."""
        if new.prose or not self._opened:
            return
        scales = spreads(new.values, self._sketch(new))
        for at, one in enumerate(self._opened):
            grid = one.index.grid
            larger = [scale / grid[name] for name, scale in scales.items() if name in grid]
            if larger and float(np.sqrt(np.mean(np.square(larger)))) > ROOM:
                of = IndexedObject(one.stored.sha256, schema, new.prose, self._version.model)
                (self._cache / of.name).unlink(missing_ok=True)
                wider = {name: max(scale, scales.get(name, 0.0)) for name, scale in grid.items()}
                index = open_index(self._cache, of, one.data, one.index.rows, grid=wider)
                self._opened[at] = _Object(one.stored, one.data, index, one.is_there)

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
        """Rows of all objects, of each in proportion."""
        total, codes, batches = max(1, self.rows), [np.empty(0, np.int64)], []
        for at, one in enumerate(self._opened):
            kept = np.flatnonzero(one.is_there[one.index.sampled])
            most = max(1, int(SAMPLE_ROWS * one.is_there.sum() / total))
            kept = kept[np.arange(min(most, len(kept))) * len(kept) // max(1, min(most, len(kept)))]
            batches.append(one.index.sample.take(kept))
            codes.append((at << _OBJECT) + one.index.sampled[kept].astype(np.int64))
        return _Sample(Batch.concat(batches), np.concatenate(codes))

    def _sketch(self, side: LeakSide) -> ValueSketch:
        sample = self._sampled.batch
        return sketch_values(sample, side.inputs, sample=sample, rows=self.rows)

    # ---- searching --------------------------------------------------------------------------------------

    def _side(self, name: str, asking: LeakSide, own: Codes | None) -> LeakSide:
        """Side of rows that may match; with ``own``, codes of the asking rows, these come first."""
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
        """Share of rows that match another one of the version, by kind, from a sample."""
        codes = self._sampled.codes
        some = np.arange(min(ALIKE_ROWS, len(codes))) * len(codes) // max(1, min(ALIKE_ROWS, len(codes)))
        asking = LeakSide("", self._sampled.batch.take(some), like.inputs, like.prose)
        side = self._side("", asking, codes[some])
        found = matches_of(side, side)
        return {match.kind: float((match.pairs.rows < len(some)).sum()) / len(some) for match in found}

    def _hashes(self, codes: Codes) -> tuple[UInts, UInts]:
        entities, digests = np.zeros(len(codes), np.uint64), np.zeros(len(codes), np.uint64)
        for at, one in enumerate(self._opened):
            for shard in one.index.shards:
                rows = codes - ((at << _OBJECT) + shard.start)
                mine = (rows >= 0) & (rows < shard.rows)
                entities[mine], digests[mine] = shard.entities[rows[mine]], shard.digests[rows[mine]]
        return entities, digests

    def _read(self, codes: Codes, like: LeakSide) -> Batch:
        """Rows by code."""
        names = [name for name in like.batch.names if name == "id" or name in like.inputs]
        schema = pa.schema([self._schema.field(name) for name in ["id", *sorted({*names} - {"id"})]])
        tables, order = [empty_table(schema)], []
        for at, one in enumerate(self._opened):
            mine = np.flatnonzero(codes >> _OBJECT == at)
            if len(mine):
                runs = [Run(0, 0, 0, one.index.rows)]
                places = [(0, row) for row in (codes[mine] & ((1 << _OBJECT) - 1)).tolist()]
                tables.append(conform(rows_at(one.data, runs, places, schema.names), schema))
                order.append(mine)
        table = pa.concat_tables(tables)
        if order:
            table = table.take(pa.array(np.argsort(np.concatenate(order))))
        return Batch.from_arrow(table, model=self._version.model)

    def _ids(self, codes: Codes) -> list[str]:
        places = [self._opened[code >> _OBJECT].place(code & ((1 << _OBJECT) - 1)) for code in codes.tolist()]
        return ids_at(self._connection, self._version.dataset, places)


class _Search:
    """Search of rows in the indexes of a version."""

    def __init__(self, asking: LeakSide, opened: Sequence[_Object], own: Codes | None) -> None:
        self._asking, self._own = asking, own
        self._shards = [(at, one, shard) for at, one in enumerate(opened) for shard in one.index.shards]
        self.exact: Codes = np.empty(0, np.int64)
        """Rows with an equal entity or equal inputs."""

    def equal(self) -> NDArray[np.bool_]:
        """Look for equal entities and inputs; mask of the asking rows with an equal one."""
        digests = self._asking.digests
        entities = np.unique(self._asking.entities[self._asking.entities != 0])
        wanted = np.unique(digests[digests != 0])
        found, same, counts = [self.exact], [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        for at, one, shard in self._shards:
            rows = shard.equal("digest", wanted)
            rows = rows[one.is_there[rows + shard.start]]
            same.append(_codes(at, shard, rows))
            counts.append(shard.digests[rows])
            if self._own is None:
                rows = shard.equal("unit", entities)
                rows = rows[one.is_there[rows + shard.start] & (shard.entities[rows] != 0)]
                found.append(_codes(at, shard, rows))
        self.exact = np.unique(np.concatenate([*found, *same]))
        values, many = np.unique(np.concatenate(counts), return_counts=True)
        is_equal: NDArray[np.bool_] = np.isin(digests, values if self._own is None else values[many > 1])
        is_equal &= digests != 0
        return is_equal

    def near(self, is_equal: NDArray[np.bool_]) -> Codes:
        """Codes of the closest rows of those that have no equal one."""
        best = np.where(is_equal, np.inf, -np.inf)
        asked: list[NDArray[np.intp]] = [np.empty(0, np.intp)]
        codes, scores = [np.empty(0, np.int64)], [np.empty(0)]
        is_text = bool(self._asking.prose)
        enough = TEXT_LIKENESS + SLACK if is_text else np.inf
        marked = {}
        for at, one, shard in self._shards:
            key = str(one.index.grid)
            if key not in marked:
                marked[key] = marks_of(self._asking, one.index.grid)
            marks = marked[key]
            for table in range(shard.tables):
                rows = np.flatnonzero(best < enough)
                pairs, others = shard.beside(table, marks.buckets[rows, table])
                found, pairs = _codes(at, shard, others), rows[pairs]
                keep = one.is_there[others + shard.start]
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
    """Codes of the closest few of each asking row."""
    pairs, first = np.unique(np.stack([asked.astype(np.int64), codes]), axis=1, return_index=True)
    order = np.lexsort((-scores[first], pairs[0]))
    rows = pairs[0][order]
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    rank = np.arange(len(rows)) - np.repeat(begins, np.diff([*begins, len(rows)]))
    return np.unique(pairs[1][order][rank < most])
