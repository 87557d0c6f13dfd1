"""Parquet files of datasets, and rows in the types of a version."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import repeat
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from outrider.assertions import Batch
from outrider.assertions.batch import REST
from outrider.assertions.batch.columns import as_type, null_column, wider_type
from outrider.errors import SchemaMismatch

from .validation import MOST_IDS

GROUP_ROWS = 262_144
_EXACT = 2**53
ASSERTION = "provenance.assertion"
"""Column of a sent table with the assertions that flagged a row."""


def to_parquet(table: pa.Table, parts: Sequence[str]) -> tuple[bytes, list[list[object]]]:
    """Parts are consecutive; row groups are given as part and rows."""
    buffer, groups = BytesIO(), []
    names, starts = np.unique(np.asarray(parts, dtype=str), return_index=True)
    ends = np.sort(np.append(starts, len(parts)))
    with writer_of(buffer, table.schema) as writer:
        for name, start in sorted(zip(names.tolist(), starts.tolist(), strict=True), key=lambda one: one[1]):
            end = int(ends[np.searchsorted(ends, start, side="right")])
            for at in range(start, end, GROUP_ROWS):
                rows = min(GROUP_ROWS, end - at)
                writer.write_table(table.slice(at, rows), row_group_size=rows)
                groups.append([name, rows])
    return buffer.getvalue(), groups


def writer_of(file: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=[field.name for field in schema if pa.types.is_string(field.type)],
        store_schema=True,
        use_compliant_nested_type=False,  # lists keep the type that they had
    )


def without_rows(data: memoryview | bytes, positions: Iterable[int]) -> bytes:
    """Some rows become null, all others keep their position."""
    file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
    schema = pa.schema([field.with_nullable(True) for field in file.schema_arrow], file.schema_arrow.metadata)
    gone = np.fromiter(positions, dtype=np.int64)
    buffer, start = BytesIO(), 0
    with writer_of(buffer, schema) as writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group).cast(schema)
            rows = np.arange(table.num_rows)
            is_gone = np.isin(rows + start, gone)
            if is_gone.any():
                table = _rebuilt(table.take(pa.array(rows, mask=is_gone)))
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            start += table.num_rows
    return buffer.getvalue()


def has_ids(data: memoryview | bytes, ids: Collection[str]) -> Iterator[bool]:
    """One truth value per row group."""
    file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
    wanted = pa.array(sorted(ids), pa.string())
    for group in range(file.num_row_groups if "id" in file.schema_arrow.names else 0):
        found = file.read_row_group(group, ["id"]).column("id").cast(pa.string())
        yield bool(pc.any(pc.is_in(found, wanted)).as_py())


def table_without(data: memoryview | bytes, is_gone: Callable[[str, str | None], bool]) -> bytes | None:
    """Arrow IPC stream without some rows; None if there are none."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    if "id" not in table.column_names:
        return None
    ids = map(str, table.column("id").to_pylist())
    tests = table.column(ASSERTION).to_pylist() if ASSERTION in table.column_names else repeat(None)
    gone = np.fromiter(map(is_gone, ids, tests), dtype=np.bool_, count=table.num_rows)
    if not gone.any():
        return None
    left = _rebuilt(table.filter(pa.array(~gone)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, left.schema) as writer:
        writer.write_table(left)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _rebuilt(table: pa.Table) -> pa.Table:
    """Drops dictionary values that no row has."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            values = table.column(place).cast(field.type.value_type).dictionary_encode()
            table = table.set_column(place, field, values.cast(field.type))
    return table


def empty_table(schema: pa.Schema) -> pa.Table:
    """Arrow's own cannot make tensors with a permutation."""
    return pa.Table.from_batches([], schema)


def schema_of_file(data: memoryview | bytes) -> pa.Schema:
    return pq.read_schema(pa.BufferReader(pa.py_buffer(data)))


def is_read(column: str) -> bool:
    """True for columns whose values a version may not lose."""
    return column.startswith(("inputs.", "label."))


def merged_schema(
    known: pa.Schema, given: pa.Schema, name: str, reads: Callable[[str], bool] = is_read
) -> tuple[pa.Schema, dict[str, str]]:
    """Schema of both, and columns of ``given`` that do not fit."""
    if given.equals(known):
        return known, {}
    fields, lost = [], {}
    for column in dict.fromkeys([*known.names, *given.names]):
        if column not in given.names:
            fields.append(known.field(column))
            continue
        if column not in known.names:
            fields.append(given.field(column))
            continue
        before, now = known.field(column).type, given.field(column).type
        common = wider_type(before, now)
        if common is None:
            reason = f"{before} in {name}, {now} in the rows to append"
            if reads(column):
                raise SchemaMismatch(column, reason)
            lost[column] = reason
        fields.append(pa.field(column, before if common is None else common))
    return pa.schema(fields, metadata=known.metadata), lost


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns become null if absent or unfit."""
    if table.schema.equals(schema):
        return table.replace_schema_metadata(schema.metadata)
    columns = []
    for field in schema:
        place = table.schema.get_field_index(field.name)
        kind = None if place < 0 else table.schema.field(place).type
        if kind is None or wider_type(field.type, kind) != field.type:
            columns.append(null_column(table.num_rows, field.type))
        elif kind == field.type:
            columns.append(table.column(place))
        else:
            columns.append(as_type(table.column(place).combine_chunks(), field.type))
    return pa.table(columns, schema=schema)


def inexact_columns(table: pa.Table, schema: pa.Schema, name: str) -> dict[str, str]:
    """Whole-number columns that the floats of ``schema`` cannot hold."""
    found = {}
    for field in table.schema:
        wider = schema.field(field.name).type
        if not pa.types.is_integer(field.type) or not pa.types.is_floating(wider):
            continue
        values = table.column(field.name).drop_null().to_numpy()
        if len(values) and (values.max() > _EXACT or values.min() < -_EXACT):
            found[field.name] = f"whole numbers beyond 2**53 in {name} do not fit {wider}"
    return found


# ---- rows of several blocks ---------------------------------------------------------------------------


class BlockRow(Protocol):
    @property
    def id(self) -> str: ...


P = TypeVar("P", bound=BlockRow)


@dataclasses.dataclass(slots=True)
class Fitting(Generic[P]):
    batches: list[Batch] = dataclasses.field(default_factory=list)
    places: list[P] = dataclasses.field(default_factory=list)
    rejected: dict[str, str] = dataclasses.field(default_factory=dict)
    warnings: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def one_schema(
    found: list[tuple[Batch, list[P]]], known: pa.Schema | None, name: str, inputs: Collection[str]
) -> Fitting[P]:
    """A column takes the dataset's type, else that of most rows.

    An unfit input is null if the model is not fed it, and refuses its rows if it is.
    """
    fitting: Fitting[P] = Fitting()
    found = [(_with_values(batch, inputs), members) for batch, members in found]
    expected = {} if known is None else _kinds(known)
    weights: dict[str, Counter[pa.DataType]] = defaultdict(Counter)
    for batch, members in found:
        for column, kind in _kinds(batch.to_arrow().schema).items():
            weights[column][kind] += len(members)
    expected = {column: kinds.most_common(1)[0][0] for column, kinds in weights.items()} | expected
    lost: dict[str, tuple[str, list[str]]] = {}
    for batch, members in found:
        kinds = _kinds(batch.to_arrow().schema)
        wider = {column: wider_type(expected[column], kind) for column, kind in kinds.items()}
        unfit = [column for column, kind in wider.items() if kind is None]
        why = {}
        for column in unfit:
            held = None if known is None or column not in known.names else known.field(column).type
            there = f"{held or expected[column]} in {name if held else 'other rows'}"
            why[column] = f"{column}: {kinds[column]}, but {there}"
        valued = [column for column in unfit if not bool(batch.is_null(column).all())]
        odd = next((column for column in valued if not inputs or column in inputs), None)
        if odd is not None:
            fitting.rejected |= {place.id: why[odd] for place in members}
            continue
        for column in valued:
            lost.setdefault(column, (why[column], []))[1].extend(place.id for place in members)
        expected |= {column: kind for column, kind in wider.items() if kind is not None}
        fitting.batches.append(_without(batch, unfit))
        fitting.places += members
    fitting.warnings = [_lost_warning(column, why, ids) for column, (why, ids) in lost.items()]
    return fitting


def _lost_warning(column: str, why: str, ids: Sequence[str]) -> dict[str, Any]:
    return {
        "rule": "column_type",
        "field": column,
        "severity": "warning",
        "text": f"{why}; null in {len(ids)} rows, as the model is not fed it",
        "rows": len(ids),
        "ids": list(ids[:MOST_IDS]),
    }


def _kinds(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {f.name: f.type for f in schema if f.name.startswith("inputs.")}


def _with_values(batch: Batch, inputs: Collection[str]) -> Batch:
    """Without rare inputs, and undeclared ones that are null throughout."""
    rare = f"inputs.{REST}"
    drop = [
        name
        for name in batch.names
        if name == rare
        or (name.startswith("inputs.") and name not in inputs and bool(batch.is_null(name).all()))
    ]
    return _without(batch, drop)


def _without(batch: Batch, columns: Sequence[str]) -> Batch:
    return Batch(batch.to_arrow().drop_columns(list(columns)), model=batch.model) if columns else batch


def with_inputs(batch: Batch, known: pa.Schema | None) -> Batch:
    """Inputs that the batch lacks become null."""
    lacking = {f.name: f.type for f in known or () if f.name.startswith("inputs.") and not batch.has(f.name)}
    return batch.with_columns({name: null_column(batch.rows, kind) for name, kind in lacking.items()})


def concat(batches: Sequence[Batch]) -> Batch:
    """Columns that some batches lack are null there."""
    tables = [pa.Table.from_batches([batch.to_arrow()]) for batch in batches]
    schema = tables[0].schema
    for table in tables[1:]:
        schema, _ = merged_schema(schema, table.schema, "other rows")
    return Batch.from_arrow(
        pa.concat_tables([conform(table, schema) for table in tables]), model=batches[0].model
    )
