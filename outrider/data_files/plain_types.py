"""Columns of any Arrow type in the types that records have."""

import uuid
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .left_out import LeftOut

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def plain_columns(table: pa.Table, left: LeftOut, *, as_text: Collection[str] = ()) -> pa.Table:
    """Columns as texts, numbers, truth values, times, bytes, tensors, lists and structs.

    Decimals are numbers, UUIDs text, times of day and durations seconds; what has no such form is left out.

    Parameters
    ----------
    as_text
        Columns of unsigned integers beyond 2^63: ids, which are text.
    """
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        try:
            columns[name] = _texts(column) if name in as_text else _plain(column)
        except (pa.ArrowException, TypeError, ValueError):
            left.column(name, f"values of type {column.type} have no form in a record; cast them")
        if name in as_text:
            left.note(f"column {name!r} is read as text: it holds integers beyond 2^63")
    return pa.table(columns) if columns else pa.table({})


def is_unsigned(kind: pa.DataType) -> bool:
    """Tell the one integer type that int64 does not hold."""
    return bool(pa.types.is_uint64(kind))


def _texts(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _of_extension(column)
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary).take(column.indices)
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(column))
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return _seconds(column)
    target = _plain_type(kind)
    return column if target.equals(kind) else column.cast(target)


def _of_extension(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return column
    if isinstance(kind, pa.UuidType):
        values = (
            None if value is None else str(uuid.UUID(bytes=value)) for value in column.storage.to_pylist()
        )
        return pa.array(values, pa.string())
    if isinstance(kind, pa.Bool8Type):
        return column.storage.cast(pa.bool_())
    if isinstance(kind, pa.JsonType):
        return _plain(column.storage)
    raise TypeError(str(kind))


def _seconds(column: pa.Array) -> pa.Array:
    whole = column.cast(pa.int32()) if pa.types.is_time32(column.type) else column.cast(pa.int64())
    numbers = whole.cast(pa.float64(), safe=False)
    return pc.divide(numbers, float(_PER_SECOND[column.type.unit]))


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
    if types.is_interval(kind) or types.is_union(kind):
        raise TypeError(str(kind))
    return kind


def beyond_int64(column: pa.Array) -> bool:
    """Tell a column of unsigned integers with one beyond 2^63."""
    most = pc.max(column).as_py()
    return most is not None and most > np.iinfo(np.int64).max
