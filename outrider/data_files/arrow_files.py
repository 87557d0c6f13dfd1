"""Tables of Parquet, Arrow, Feather and NPZ files in plain types."""

import uuid
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from outrider.assertions.columns import from_values

from .left_out import LeftOut
from .opening import Parts, TableOptions, kept_columns

_NO_FORM = "values of type {} have no form in a record; cast them"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


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
        for start in range(0, batch.num_rows, rows):
            part = pa.table(batch.slice(start, rows).select(names))
            yield _plain_columns(part, left, texts), range(done + 1, done + len(part) + 1), share
            done += len(part)


def _batches(
    path: Path, ending: str, left: LeftOut, rows: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Batches as they lie in the file; only a Parquet file saves work by ``columns``."""
    if ending == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            table = pa.table({name: from_values(arrays[name]) for name in arrays.files})
        yield from ((batch, 1.0) for batch in table.to_batches())
    elif ending == ".parquet":
        with pa.parquet.ParquetFile(path) as file:
            leaves = map(file.schema.column, range(len(file.schema)))
            spans = {leaf.path for leaf in leaves if leaf.converted_type == "INTERVAL"}  # bytes in Arrow
            for name in spans.intersection(file.schema_arrow.names):
                left.column(name, _NO_FORM.format("INTERVAL"))
            done = 0
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                done += batch.num_rows
                yield batch.drop_columns([*spans]) if spans else batch, done / file.metadata.num_rows
    else:
        with pa.memory_map(str(path)) as source:
            is_file = source.read(6) == b"ARROW1"
            source.seek(0)
            if is_file:
                with pa.ipc.open_file(source) as reader:
                    for at in range(reader.num_record_batches):
                        yield reader.get_batch(at), (at + 1) / reader.num_record_batches
            else:
                with pa.ipc.open_stream(source) as reader:
                    for batch in reader:
                        yield batch, source.tell() / source.size()


def _is_beyond_int64(column: pa.Array) -> bool:
    most = pc.max(column).as_py()
    return most is not None and most > np.iinfo(np.int64).max


def _plain_columns(table: pa.Table, left: LeftOut, texts: Collection[str]) -> pa.Table:
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        try:
            columns[name] = column.cast(pa.string()) if name in texts else _plain(column)
        except (pa.ArrowException, TypeError, ValueError):
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
    target = _plain_type(kind)
    return column if target.equals(kind) else column.cast(target)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Type of records for an Arrow type; TypeError where there is none."""
    types = pa.types
    if types.is_decimal(kind) or types.is_float16(kind):
        return pa.float64()
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_uint64(kind):
        return pa.int64()
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(_plain_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    is_unknown = isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.FixedShapeTensorType)
    if is_unknown or types.is_interval(kind) or types.is_union(kind):
        raise TypeError(str(kind))
    return kind
