"""Tables of Parquet, Arrow, Feather and NPZ files in plain types."""

import uuid
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from outrider.assertions.batch.columns import from_values
from outrider.errors import ConfigError

from .arrow_texts import NOT_UTF8, readable_column
from .left_out import LeftOut
from .opening import Parts, TableOptions, kept_columns

_NO_FORM = "values of type {} have no form in a record; cast them"
_NO_DATE = "a time of the years 1 to 9999 expected"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_YEARS = (-62_135_596_800, 253_402_300_800)
"""Seconds since 1970 of the years 1 and 10000."""
_END = b"\xff\xff\xff\xff\0\0\0\0"
_FLOAT = pa.float64()


def table_parts(path: Path, ending: str, how: TableOptions, left: LeftOut, *, rows: int) -> Parts:
    """Parts of a file with their rows."""
    done = 0
    texts: set[str] | None = None
    for batch, share in _batches(path, ending, left, rows):
        names = [batch.schema.names[at] for at in kept_columns(batch.schema.names, left, named=how.named)]
        if texts is None:
            wide = [name for name in names if pa.types.is_uint64(batch.schema.field(name).type)]
            parts = _batches(path, ending, left, rows, wide) if wide else ()
            texts = {name for part, _ in parts for name in wide if _is_beyond_int64(part.column(name))}
        places = np.arange(done + 1, done + batch.num_rows + 1)
        done += batch.num_rows
        usable, places = _usable_rows(batch.select(names), places, left)
        for start in range(0, usable.num_rows, rows):
            part = pa.table(usable.slice(start, rows))
            yield _plain_columns(part, left, texts), places[start : start + rows].tolist(), share


def _usable_rows(
    batch: pa.RecordBatch, places: NDArray[np.int64], left: LeftOut
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Rows with texts in UTF-8 and times that have a date; the others are named."""
    odd = np.zeros(batch.num_rows, np.bool_)

    def leave_out(rows: NDArray[np.int64], name: str, why: str) -> None:
        for row in rows[~odd[rows]]:
            left.row(int(places[row]), f"{name}: {why}")
        odd[rows] = True

    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        for at, field in enumerate(batch.schema):
            column, rows = readable_column(batch.column(at))
            batch = batch.set_column(at, field, column)
            leave_out(rows, field.name, NOT_UTF8)
        batch.validate(full=True)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type) and column.type.unit != "ns":  # all of these have a date
            at = column.cast(pa.int64()).fill_null(0).to_numpy()
            first, end = (seconds * _PER_SECOND[column.type.unit] for seconds in _YEARS)
            leave_out(np.flatnonzero((at < first) | (at >= end)), name, _NO_DATE)
    return (batch, places) if not odd.any() else (batch.filter(pa.array(~odd)), places[~odd])


def _batches(
    path: Path, ending: str, left: LeftOut, rows: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Batches as they lie in the file; only a Parquet file saves work by ``columns``."""
    if ending == ".npz":
        yield from ((batch, 1.0) for batch in _arrays(path, left).to_batches())
    elif ending == ".parquet":
        yield from _of_parquet(path, left, rows, columns)
    else:
        with pa.memory_map(str(path)) as source:
            is_file = source.read(6) == b"ARROW1"
            source.seek(0)
            yield from _of_arrow_file(source) if is_file else _of_stream(source, left)


def _arrays(path: Path, left: LeftOut) -> pa.Table:
    arrays = np.load(path, allow_pickle=False)
    if not isinstance(arrays, np.lib.npyio.NpzFile):
        raise ConfigError("an archive of arrays expected, got one array; write it with numpy.savez")
    found = {}
    with arrays:
        for name in arrays.files:
            try:
                found[name] = from_values(arrays[name])
            except (pa.ArrowException, TypeError, ValueError) as error:
                left.column(name, f"numbers or texts expected: {error}")
    return pa.table(found)


def _of_parquet(
    path: Path, left: LeftOut, rows: int, columns: Sequence[str] | None
) -> Iterator[tuple[pa.RecordBatch, float]]:
    with pa.parquet.ParquetFile(path) as file:
        leaves = map(file.schema.column, range(len(file.schema)))
        spans = {leaf.path for leaf in leaves if leaf.converted_type == "INTERVAL"}  # bytes in Arrow
        for name in spans.intersection(file.schema_arrow.names):
            left.column(name, _NO_FORM.format("INTERVAL"))
        done = 0
        for batch in file.iter_batches(batch_size=rows, columns=columns):
            done += batch.num_rows
            yield batch.drop_columns([*spans]) if spans else batch, done / file.metadata.num_rows


def _of_arrow_file(source: pa.MemoryMappedFile) -> Iterator[tuple[pa.RecordBatch, float]]:
    with pa.ipc.open_file(source) as reader:
        for at in range(reader.num_record_batches):
            yield reader.get_batch(at), (at + 1) / reader.num_record_batches


def _of_stream(source: pa.MemoryMappedFile, left: LeftOut) -> Iterator[tuple[pa.RecordBatch, float]]:
    with pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield batch, source.tell() / source.size()
    source.seek(max(0, source.size() - len(_END)))
    if source.read() != _END:
        left.note("the stream has no end: batches may be missing")


def _is_beyond_int64(column: pa.Array) -> bool:
    most = pc.max(column).as_py()
    return most is not None and most > np.iinfo(np.int64).max


def _plain_columns(table: pa.Table, left: LeftOut, texts: Collection[str]) -> pa.Table:
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        try:
            columns[name] = column.cast(pa.string()) if name in texts else _plain(column)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            left.column(name, _NO_FORM.format(column.type))
        if name in texts:
            left.note(f"column {name!r} is read as text: it holds integers beyond 2^63")
    return pa.table(columns)


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(kind, pa.UuidType):
        return pa.array([v and str(uuid.UUID(bytes=v)) for v in column.storage.to_pylist()], pa.string())
    if isinstance(kind, pa.Bool8Type):
        return column.storage.cast(pa.bool_())
    if isinstance(kind, pa.JsonType):
        return _plain(column.storage)
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary).take(column.indices)
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(column))
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        whole = column.cast(pa.int32()) if pa.types.is_time32(kind) else column.cast(pa.int64())
        return pc.divide(whole.cast(pa.float64(), safe=False), float(_PER_SECOND[kind.unit]))
    target, exact = _plain_type(kind), _plain_type(kind, pa.string())
    if "list_view<" in str(kind):
        return pa.array(column.to_pylist(), target)  # the cast of Arrow loses an offset
    if not exact.equals(target):
        column = column.cast(exact)  # by its digits: the cast of Arrow to floats misses by a bit
    return column if target.equals(column.type) else column.cast(target)


_OTHERS = (
    (pa.types.is_float16, _FLOAT),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_uint64, pa.int64()),
)


def _plain_type(
    kind: pa.DataType, of_decimals: pa.DataType = _FLOAT, *, is_inner: bool = False
) -> pa.DataType:
    """Type of records for an Arrow type; TypeError where there is none, as for times in lists."""
    types = pa.types
    if types.is_decimal(kind):
        return of_decimals
    if (other := next((plain for is_it, plain in _OTHERS if is_it(kind)), None)) is not None:
        return other
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type, of_decimals, is_inner=is_inner)
    if types.is_nested(kind):
        return _nested_type(kind, of_decimals, is_inner)
    is_unknown = isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.FixedShapeTensorType)
    is_date = types.is_timestamp(kind) or types.is_date(kind)
    if is_unknown or types.is_interval(kind) or (types.is_temporal(kind) and (is_inner or not is_date)):
        raise TypeError(str(kind))
    return kind


def _nested_type(kind: pa.DataType, of_decimals: pa.DataType, is_inner: bool) -> pa.DataType:
    types = pa.types
    is_struct = types.is_struct(kind)
    fields = [kind.field(at) for at in range(kind.num_fields)]
    inner = [_plain_type(field.type, of_decimals, is_inner=is_inner or not is_struct) for field in fields]
    if is_struct:
        return pa.struct([(field.name, plain) for field, plain in zip(fields, inner, strict=True)])
    if types.is_map(kind):
        keys = _plain_type(kind.key_type, of_decimals, is_inner=True)
        return pa.map_(keys, _plain_type(kind.item_type, of_decimals, is_inner=True))
    if types.is_fixed_size_list(kind):
        return pa.list_(inner[0], kind.list_size)
    if types.is_union(kind) or types.is_run_end_encoded(kind):
        raise TypeError(str(kind))
    return pa.list_(inner[0])
