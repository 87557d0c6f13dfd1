"""Pairs of rows of sides become the records of a block."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.assertions.batch import REST

from .block_builder import BLOCK_ROWS
from .column_types import nulls
from .list_columns import Bounds, convert_column
from .pending_blocks import PendingBlock
from .rare_fields import merged_rest, rest_column
from .schema_book import is_rest

_UNBOUNDED = Bounds(depth=64, elements=2**31, fields=2**31, cells=2**31)


class SideRow(NamedTuple):
    """Row among those added of one schema."""

    digest: str
    row: int


@dataclass(frozen=True, slots=True)
class JoinedRecord:
    """Record to write: ``first`` is a row of ``side``; ``is_late``: the other side was given up before."""

    side: str
    first: SideRow
    second: SideRow | None = None
    is_partial: bool = False
    is_late: bool = False

    @property
    def places(self) -> tuple[SideRow, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)


class SidesBySchema:
    def __init__(self) -> None:
        self._tables: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}

    def add(self, digest: str, table: pa.RecordBatch) -> int:
        """Add a table; return the number of its first row among those of its digest."""
        self._tables.setdefault(digest, []).append(table)
        first = self._rows.get(digest, 0)
        self._rows[digest] = first + table.num_rows
        return first

    def blocks(
        self, made: Sequence[JoinedRecord], model: str, schema: pa.Schema, digest: str
    ) -> tuple[list[PendingBlock], int]:
        """Blocks of these records, and how many pairs did not fit together.

        Rows that cannot be brought to ``schema`` (a column was declared meanwhile) become partial records,
        each side by itself.
        """
        if not made:
            return [], 0
        used = {place.digest for one in made for place in one.places}
        fitted = {name: fit(self._table(name), schema) for name in used}
        whole = [one for one in made if all(fitted[place.digest] is not None for place in one.places)]
        blocks = _blocks(whole, {n: t for n, t in fitted.items() if t is not None}, model, schema, digest)
        apart = [one for one in made if any(fitted[place.digest] is None for place in one.places)]
        for single in [side for one in apart for side in _apart(one)]:
            own = single.first.digest
            table = self._table(own)
            blocks += _blocks([single], {own: table}, model, table.schema, own)
        return blocks, sum(one.second is not None for one in apart)

    def _table(self, digest: str) -> pa.Table:
        return pa.Table.from_batches(self._tables[digest])


def fit(table: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """Rows with the columns and types of ``schema``; None when values would be lost."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    if any(name not in schema.names and table[name].null_count < len(table) for name in table.column_names):
        table = _put_aside(table, schema)
        if table is None:
            return None
    arrays = []
    for column in schema:
        if column.name not in table.column_names:
            arrays.append(nulls(len(table), column.type))
            continue
        values = table[column.name].combine_chunks()
        if values.type != column.type:
            found = convert_column(values, column.type, declared=False, bounds=_UNBOUNDED)
            if found.array is None or found.bad or found.array.type != column.type:
                return None
            values = found.array
        arrays.append(values)
    return pa.Table.from_arrays(arrays, schema=schema)


def _put_aside(table: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """The rows with dropped columns as rare fields; None if these have no column."""
    gone = [name for name in table.column_names if name not in schema.names]
    members: dict[str, dict[int, dict[str, Any]]] = {}
    for name in gone:
        prefix, _, field_name = name.partition(".")
        for row, value in enumerate(table[name].to_pylist()):
            if value is not None:
                members.setdefault(prefix, {}).setdefault(row, {})[field_name] = value
    table = table.drop_columns(gone)
    for prefix, rows in members.items():
        rest = f"{prefix}.{REST}"
        if rest not in schema.names:
            return None
        sent = table[rest].combine_chunks() if rest in table.column_names else None
        try:
            column = rest_column(sent, rows, len(table))
        except (TypeError, ValueError):
            return None
        if sent is not None:
            table = table.drop_columns([rest])
        table = table.append_column(pa.field(rest, pa.string()), column)
    return table


def _apart(made: JoinedRecord) -> list[JoinedRecord]:
    if made.second is None:
        return [made]
    return [
        replace(made, second=None, is_partial=True),
        JoinedRecord("response", made.second, is_partial=True, is_late=True),
    ]


def _blocks(
    made: Sequence[JoinedRecord], tables: dict[str, pa.Table], model: str, schema: pa.Schema, digest: str
) -> list[PendingBlock]:
    if not made:
        return []
    starts, start = {}, 0
    for name, table in tables.items():
        starts[name], start = start, start + len(table)
    rows = pa.concat_tables(tables.values())

    def taken(places: Sequence[SideRow | None]) -> pa.Table:
        at = [None if place is None else starts[place.digest] + place.row for place in places]
        return rows.take(pa.array(at, pa.int64())).combine_chunks()

    sides = [taken([one.first for one in made])]
    if any(one.second is not None for one in made):
        sides.append(taken([one.second for one in made]))
    arrays = [_column(name, sides) for name in schema.names]
    table = pa.Table.from_arrays(arrays, schema=schema)
    late = pa.array([f":{one.side}" if one.is_late else "" for one in made])
    table = _with(table, "id", pc.binary_join_element_wise(table["id"], late, ""))
    partial = pa.array([one.is_partial for one in made])
    table = _with(table, "partial", pc.or_(table["partial"], partial))
    chunks = [table.slice(first, BLOCK_ROWS).combine_chunks() for first in range(0, len(table), BLOCK_ROWS)]
    return [PendingBlock("records", model, digest, chunk.to_batches()[0]) for chunk in chunks]


def _column(name: str, sides: Sequence[pa.Table]) -> pa.ChunkedArray:
    """Column of both sides: the request's value where both have one."""
    columns = [side[name] for side in sides]
    if is_rest(name) and len(columns) > 1:
        return pa.chunked_array([merged_rest(*columns)], pa.string())
    if name in ("received", "weight"):  # it is whole when the later side came
        plain = [column.cast(pa.int64()) if name == "received" else column for column in columns]
        return pc.max_element_wise(*plain).cast(columns[0].type)
    if name == "partial":
        both = [pc.fill_null(column, False) for column in columns]
        return pc.or_(*both) if len(both) > 1 else both[0]
    if len(columns) == 1 or not columns[0].null_count:
        return columns[0]
    present = [column for column in columns if column.null_count < len(column)]
    if not present:
        return columns[0]
    return present[0] if len(present) == 1 else _either(*present)


def _either(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of ``first``, else of ``second``; pyarrow's coalesce does not know tensors."""
    rows = np.arange(len(first))
    at = np.where(first.is_valid().to_numpy(), rows, rows + len(first))
    return pa.chunked_array([*first.chunks, *second.chunks], first.type).take(pa.array(at))


def _with(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), values)
