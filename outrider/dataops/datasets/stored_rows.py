"""Rows of versions as stored: an object holds one or several files."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from .row_files import conform

MOST_BYTES = 33_554_432
"""Approximate size of a streamed batch."""
_REGIONS = 2
"""Parts of a packed object, each of which is read sequentially."""
_TAKEN_ROWS = 8192
"""Rows decoded at once if some of them are wanted."""
_SHARED_ROWS = 65_536
"""Rows from which filtering columns in threads pays."""
Labels = Mapping[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows of a file and their place in an object."""

    file: int
    position: int
    start: int
    rows: int


def runs_of(
    file: int, parts: Sequence[Sequence[object]], packed: Sequence[int] | None
) -> list[tuple[str, Run]]:
    counts = [int(str(count)) for _, count in parts]
    positions = np.cumsum([0, *counts])[:-1].tolist()
    starts = positions if packed is None else packed
    found = zip(parts, positions, starts, counts, strict=True)
    return [(str(part), Run(file, position, start, count)) for (part, _), position, start, count in found]


@dataclass(frozen=True, slots=True)
class VersionRows:
    sha256: str
    runs: Sequence[Run]
    gone: Mapping[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)
    """By file, sorted positions that are not in the version."""
    labels: Mapping[int, Labels] = field(default_factory=dict, repr=False)

    @property
    def living(self) -> int:
        return sum(run.rows - len(self.gone_in(run)) for run in self.runs)

    def read(self, data: memoryview | bytes, schema: pa.Schema) -> pa.Table:
        reader = _Groups(data, schema.names)
        return self._as_of(reader.read(self.runs), self.runs, schema)

    def pieces(self, data: memoryview | bytes, schema: pa.Schema, batch_rows: int) -> Iterator[pa.Table]:
        reader = _Groups(data, schema.names)
        most = reader.batch_rows(batch_rows)
        for table, runs in reader.pieces(self.runs, most):
            if (found := self._as_of(table, runs, schema)).num_rows:
                yield found

    def _as_of(self, table: pa.Table, runs: Sequence[Run], schema: pa.Schema) -> pa.Table:
        table = conform(table, schema)
        at, drop, labels = 0, [], {}
        for run in runs:
            if len(gone := self.gone_in(run)):
                drop.append(gone - run.position + at)
            for position, values in self.labels.get(run.file, {}).items():
                if run.position <= position < run.position + run.rows:
                    labels[position - run.position + at] = values
            at += run.rows
        table = with_labels(table, labels)
        if not drop:
            return table
        keeps = np.ones(at, np.bool_)
        keeps[np.concatenate(drop)] = False
        mask = pa.array(keeps)  # column by column takes half the time of the table's own way
        if at < _SHARED_ROWS:
            return pa.table([column.filter(mask) for column in table.columns], schema=table.schema)
        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            kept = pool.map(lambda column: column.filter(mask), table.columns)
            return pa.table(list(kept), schema=table.schema)

    def gone_in(self, run: Run) -> NDArray[np.int64]:
        gone = self.gone.get(run.file)
        if gone is None:
            return np.empty(0, np.int64)
        first, last = np.searchsorted(gone, [run.position, run.position + run.rows])
        return gone[first:last]


def with_labels(table: pa.Table, labels: Labels) -> pa.Table:
    if not labels:
        return table
    places = np.fromiter(labels, np.int64, len(labels))
    index = np.arange(table.num_rows)
    index[places] = table.num_rows + np.arange(len(places))
    for name in [name for name in table.column_names if name.startswith("label.")]:
        kind = table.schema.field(name).type
        values = pa.array([values.get(name) for values in labels.values()], kind)
        column = pa.concat_arrays([*table.column(name).chunks, values]).take(pa.array(index))
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


def rows_at(
    data: memoryview | bytes, runs: Iterable[Run], places: Sequence[tuple[int, int]], names: Sequence[str]
) -> pa.Table:
    """In the order of ``places``; columns that the object lacks are omitted."""
    ordered = sorted(runs, key=lambda run: (run.file, run.position))
    begins = [(run.file, run.position) for run in ordered]
    found = [(ordered[bisect_right(begins, place) - 1], place[1]) for place in places]
    rows = [run.start + position - run.position for run, position in found]
    return _Groups(data, names).take(np.array(rows, np.int64))


def object_rows(data: memoryview | bytes) -> int:
    return int(pq.read_metadata(pa.BufferReader(pa.py_buffer(data))).num_rows)


class _Groups:
    def __init__(self, data: memoryview | bytes, names: Sequence[str] | None) -> None:
        self._file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
        there = self._file.schema_arrow.names
        self._columns = [name for name in (there if names is None else names) if name in there]
        meta = self._file.metadata
        counts = [meta.row_group(at).num_rows for at in range(meta.num_row_groups)]
        self._starts = np.cumsum([0, *counts])
        self._kept: OrderedDict[int, pa.Table] = OrderedDict()

    def batch_rows(self, most: int) -> int:
        """At most ``most`` rows and about ``MOST_BYTES``."""
        meta, rows = self._file.metadata, int(self._starts[-1])
        if not rows or not self._columns:
            return most
        chosen = tuple(self._columns)
        sizes = 0
        for group in (meta.row_group(at) for at in range(meta.num_row_groups)):
            for at in range(group.num_columns):
                column = group.column(at)
                path = column.path_in_schema
                if any(path == name or path.startswith(f"{name}.") for name in chosen):
                    sizes += column.total_uncompressed_size
        return max(1, min(most, MOST_BYTES * rows // max(sizes, 1)))

    def read(self, runs: Sequence[Run]) -> pa.Table:
        begins = np.array([run.start for run in runs], np.int64)
        ends = begins + np.array([run.rows for run in runs], np.int64)
        over = np.searchsorted(self._starts, begins, side="right") - 1, np.searchsorted(self._starts, ends)
        spans = [range(first, last) for first, last in zip(*(side.tolist() for side in over), strict=True)]
        groups = sorted({group for span in spans for group in span})
        table = self._file.read_row_groups(groups, self._columns)
        counts = np.diff(self._starts)[groups]
        offsets = dict(zip(groups, np.cumsum([0, *counts])[:-1].tolist(), strict=True))
        slices: list[tuple[int, int]] = []
        starts = self._starts.tolist()
        for run, span in zip(runs, spans, strict=True):
            for group in span:
                begin = starts[group]
                first = offsets[group] + max(run.start - begin, 0)
                last = offsets[group] + min(run.start + run.rows, starts[group + 1]) - begin
                if slices and slices[-1][1] == first:
                    first = slices.pop()[0]
                slices.append((first, last))
        if slices == [(0, table.num_rows)]:
            return table
        return pa.concat_tables([table.slice(first, last - first) for first, last in slices] or [table])

    def pieces(self, runs: Sequence[Run], most: int) -> Iterator[tuple[pa.Table, list[Run]]]:
        """Tables of at most ``most`` rows, each with its runs."""
        tables: list[pa.Table] = []
        there: list[Run] = []
        count = 0
        for run in runs:
            for at, table in self._streamed(run, most):
                for cut in range(0, table.num_rows, most):
                    rows = min(most, table.num_rows - cut)
                    if count + rows > most:
                        yield pa.concat_tables(tables), there
                        tables, there, count = [], [], 0
                    tables.append(table.slice(cut, rows))
                    offset = at + cut - run.start
                    there.append(Run(run.file, run.position + offset, at + cut, rows))
                    count += rows
        if tables:
            yield pa.concat_tables(tables), there

    def _streamed(self, run: Run, most: int) -> Iterator[tuple[int, pa.Table]]:
        """Tables with the object's row at which each begins."""
        end = run.start + run.rows
        for group in self._over(run.start, end):
            first, last = int(self._starts[group]), int(self._starts[group + 1])
            if run.start <= first and last <= end:  # a whole group: decoded as it is taken
                at = first
                for batch in self._file.iter_batches(most, row_groups=[group], columns=self._columns):
                    yield at, pa.Table.from_batches([batch])
                    at += batch.num_rows
            else:
                begin, stop = max(first, run.start), min(last, end)
                yield begin, self.rows(begin, stop)

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """Decodes no row after the last wanted one of a group."""
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        tables = []
        for group in np.unique(np.searchsorted(self._starts, ascending, side="right") - 1).tolist():
            first, last = np.searchsorted(ascending, self._starts[group : group + 2])
            wanted = ascending[first:last] - self._starts[group]
            most, at = min(int(wanted[-1]) + 1, self.batch_rows(_TAKEN_ROWS)), 0
            for batch in self._file.iter_batches(most, row_groups=[group], columns=self._columns):
                begin, end = np.searchsorted(wanted, [at, at + batch.num_rows])
                if begin < end:
                    tables.append(pa.Table.from_batches([batch]).take(pa.array(wanted[begin:end] - at)))
                at += batch.num_rows
                if end == len(wanted):
                    break
        return pa.concat_tables(tables).take(pa.array(np.argsort(order)))

    def rows(self, start: int, stop: int) -> pa.Table:
        """From groups in a small cache."""
        found = []
        for group in self._over(start, stop):
            first, last = int(self._starts[group]), int(self._starts[group + 1])
            begin, end = max(first, start), min(last, stop)
            found.append(self._group(group).slice(begin - first, end - begin))
        return pa.concat_tables(found)

    def _group(self, group: int) -> pa.Table:
        if group not in self._kept:
            self._kept[group] = self._file.read_row_group(group, self._columns)
            if len(self._kept) > _REGIONS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(group)
        return self._kept[group]

    def _over(self, start: int, stop: int) -> range:
        if stop <= start:
            return range(0)
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        last = int(np.searchsorted(self._starts, stop, side="left"))
        return range(first, last)
