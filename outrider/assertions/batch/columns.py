"""Conversions of one column: Python or numpy values to Arrow, and back.

Tensors (images, vectors) are ``arrow.fixed_shape_tensor`` columns: one flat buffer, one shape per column.
"""

import base64
import hashlib
import math
from collections.abc import Sequence
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .pandas_types import is_pandas_null

if TYPE_CHECKING:
    import pandas as pd

ArrayLike: TypeAlias = NDArray[Any] | Sequence[Any] | Any  # Any: pyarrow publishes no types
UInts = NDArray[np.uint64]

_NUMBERS = frozenset(
    kind.id
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64()),
    )
)
_PLAIN = _NUMBERS | {pa.bool_().id, pa.string().id, pa.large_string().id}
_ODD = np.uint64(0x9E3779B97F4A7C15)


def is_tensor(kind: pa.DataType) -> bool:
    """True for Arrow's fixed-shape tensor type."""
    return isinstance(kind, pa.FixedShapeTensorType)


def tensor_type(shape: Sequence[int], value_type: pa.DataType | None = None) -> pa.FixedShapeTensorType:
    """Arrow type of a tensor column; float32 by default."""
    return pa.fixed_shape_tensor(value_type or pa.float32(), list(shape))


def tensor_array(values: NDArray[Any], null: NDArray[np.bool_] | None = None) -> pa.ExtensionArray:
    """Arrow tensor column from an array of shape (rows, …). ``null`` masks rows without a value."""
    values = np.ascontiguousarray(values)
    kind = tensor_type(values.shape[1:], pa.from_numpy_dtype(values.dtype))
    size = int(np.prod(values.shape[1:], dtype=np.int64))
    mask = None if null is None else pa.array(null)
    storage = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), size, mask=mask)
    return pa.ExtensionArray.from_storage(kind, storage)


def null_column(rows: int, kind: pa.DataType) -> pa.Array:
    """Column of nulls of any type, tensor types included."""
    if not is_tensor(kind):
        return pa.nulls(rows, kind)
    return pa.ExtensionArray.from_storage(kind, pa.nulls(rows, kind.storage_type))


def list_array(elements: pa.Array, lengths: NDArray[np.int64], null: NDArray[np.bool_]) -> pa.ListArray:
    """List column from flat ``elements``.

    ``lengths`` counts the elements of each row, ``null`` marks null rows.
    """
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"a column of lists holds at most 2147483647 elements, got {ends[-1]}")
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, elements, mask=pa.array(null) if null.any() else None)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Common type of two list columns; None if there is none.

    Integers widen to floats, structs get the fields of both, lists that are always empty fit any type.

    Examples
    --------
    >>> box = pa.list_(pa.struct({"left": pa.int64()}))
    >>> common_type(box, pa.list_(pa.struct({"left": pa.float64(), "kind": pa.string()})))
    ListType(list<item: struct<left: double, kind: string>>)
    >>> common_type(pa.list_(pa.null()), box) == box, common_type(box, pa.int64())
    (True, None)
    """
    if one.equals(other):
        return one
    if not (pa.types.is_list(one) and pa.types.is_list(other)):
        return None
    item = _common_item(one.value_type, other.value_type)
    return None if item is None else pa.list_(item)


def wider_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Common type of two columns of any kind, or None.

    Numbers widen, booleans become numbers if the other column holds numbers; tensors need equal shapes, and
    lists follow :func:`common_type`. A column of nulls fits any type.

    Examples
    --------
    >>> wider_type(pa.int64(), pa.float32()), wider_type(pa.float32(), pa.float64())
    (DataType(double), DataType(double))
    >>> wider_type(pa.null(), pa.string()), wider_type(pa.string(), pa.int64())
    (DataType(string), None)
    """
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if is_tensor(one) and is_tensor(other):
        values = wider_type(one.value_type, other.value_type)
        return tensor_type(one.shape, values) if one.shape == other.shape and values is not None else None
    if _is_number(one) and _is_number(other):
        return _wider_number(one, other)
    texts = [pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in (one, other)]
    return pa.large_string() if all(texts) else common_type(one, other)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _wider_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_boolean(one) or pa.types.is_boolean(other):
        return other if pa.types.is_boolean(one) else one
    wider = one if one.bit_width >= other.bit_width else other
    if pa.types.is_floating(one) == pa.types.is_floating(other):
        same = pa.types.is_signed_integer(one) == pa.types.is_signed_integer(other)
        return wider if same or pa.types.is_floating(one) else pa.int64()
    return pa.float64()


def _common_item(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            kind = _common_item(fields.get(field.name, pa.null()), field.type)
            if kind is None:
                return None
            fields[field.name] = kind
        return pa.struct(list(fields.items()))
    kinds = {one, other}
    return pa.float64() if kinds == {pa.int64(), pa.float64()} else common_type(one, other)


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column to its :func:`common_type` or :func:`wider_type`."""
    if column.type.equals(kind):
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if pa.types.is_list(kind):
        null = column.is_null().to_numpy(zero_copy_only=False)
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        return list_array(as_type(column.flatten(), kind.value_type), lengths.astype(np.int64), null)
    if pa.types.is_struct(kind):
        names = [field.name for field in column.type]
        given = dict(zip(names, column.flatten(), strict=True))
        parts = [
            as_type(given[f.name], f.type) if f.name in given else pa.nulls(len(column), f.type) for f in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if is_tensor(kind):
        null = column.is_null().to_numpy(zero_copy_only=False)
        values = to_tensor(column, "a tensor", 0).astype(kind.value_type.to_pandas_dtype())
        return tensor_array(values, null if null.any() else None)
    return column.cast(kind, safe=False)


def from_values(values: ArrayLike) -> pa.Array:
    """Arrow column of numpy or Python values; rectangular numeric nests become tensors.

    Raises ValueError, TypeError or ArrowInvalid if the values have no common type.
    """
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray):
        if values.ndim > 1:
            return tensor_array(values)
        if values.dtype != object:
            return pa.array(values)
    values = list(values)
    first = next((value for value in values if value is not None), None)
    if isinstance(first, list | tuple | np.ndarray) and len(first) and not isinstance(first[0], str | dict):
        tensor = _rectangular(values, np.shape(first))
        if tensor is not None:
            return tensor
    return pa.array(values)


def series_values(series: "pd.Series[Any]", *, text: bool = False) -> Any:
    """Values of a pandas series for :func:`from_values`. Missing values of any kind become null."""
    import pandas as pd

    if text:
        return [None if pd.isna(value) else str(value) for value in series]
    if series.dtype == object:
        return [None if is_pandas_null(value) or _is_nan(value) else value for value in series]
    return pa.Array.from_pandas(series)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and value != value


def plain(column: pa.Array, name: str) -> list[Any]:
    """Column values that JSON can carry.

    None for null, NaN and infinities, base64 text for bytes, text for other types.
    """
    if is_tensor(column.type):
        null = column.is_null().to_numpy(zero_copy_only=False)
        rows = to_tensor(column, name, 0).tolist()
        return [None if absent else _plain(row) for row, absent in zip(rows, null, strict=True)]
    if pa.types.is_timestamp(column.type):
        times = values_of(column)
        return [t.isoformat().replace("+00:00", "Z") if isinstance(t, datetime) else t for t in times]
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, None)
    values = values_of(column)
    return values if column.type.id in _PLAIN else [_plain(value) for value in values]


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Column as Python values. Times outside Python's range become text."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_value_of(scalar) for scalar in column]
    return values


def _value_of(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        pass
    if isinstance(scalar, pa.TimestampScalar):
        return _time_text(scalar)
    if isinstance(scalar, pa.StructScalar):
        return {name: _value_of(scalar[name]) for name in scalar}
    if isinstance(scalar, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return [_value_of(item) for item in scalar.values]
    return str(scalar)


def _time_text(scalar: pa.TimestampScalar) -> str:
    kind = scalar.type
    zone = "" if kind.tz is None else "Z"
    return f"{np.datetime64(scalar.value, kind.unit)}{zone}"


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _rectangular(values: list[Any], shape: tuple[int, ...]) -> pa.ExtensionArray | None:
    null = np.array([value is None for value in values])
    zero = np.zeros(shape, dtype=np.float32)
    try:
        with np.errstate(over="raise"):  # a number beyond single precision would become an infinity
            stacked = np.array([zero if value is None else value for value in values], dtype=np.float32)
    except (ValueError, TypeError, FloatingPointError):
        return None
    if stacked.shape[1:] != shape:
        return None
    return tensor_array(stacked, null if null.any() else None)


def to_numpy(column: pa.Array, name: str, null: object = ...) -> NDArray[Any]:
    """Read-only numpy array of a column.

    No copy, unless Arrow's layout differs from numpy's. Float columns show nulls as NaN, text columns as
    None; integer and boolean columns with nulls raise unless ``null`` gives a replacement.
    """
    kind = column.type
    if kind.id in _NUMBERS and not column.null_count:
        values: NDArray[Any] = column.to_numpy()
        return values  # a view of memory that cannot be written to
    if is_tensor(kind):
        return to_tensor(column, name, null)
    if pa.types.is_null(kind) and null is not ...:  # the type is not known yet
        return _frozen(np.full(len(column), null))
    if column.null_count and null is not ...:
        if (pa.types.is_integer(kind) or pa.types.is_boolean(kind)) and isinstance(null, float):
            column = pc.cast(column, pa.float64(), safe=False)
        column = pc.fill_null(column, pa.scalar(null, column.type))
    elif column.null_count and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise ValueError(
            f"{name} has {column.null_count} nulls of {len(column)}; pass null= (for example null=np.nan) "
            "or test is_null() first: nulls are never silent"
        )
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp(kind.unit))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return _frozen(np.asarray(column.to_numpy(zero_copy_only=False), dtype=object))
    return _frozen(column.to_numpy(zero_copy_only=False))


def to_tensor(column: pa.Array, name: str, null: object = ...) -> NDArray[Any]:
    """View of a tensor column, shape (rows, …).

    Null rows raise ValueError unless ``null`` gives a replacement.
    """
    if not is_tensor(column.type):
        raise TypeError(f"{name} is {column.type}, not a tensor column; read it with column()")
    shape = tuple(column.type.shape)
    storage = column.storage
    if column.null_count and null is ...:
        raise ValueError(f"{name} has {column.null_count} null tensors of {len(column)}; pass null=")
    flat = storage.values.to_numpy(zero_copy_only=False)
    width = int(np.prod(shape, dtype=np.int64))
    view = flat[storage.offset * width : (storage.offset + len(column)) * width].reshape(-1, *shape)
    if column.null_count:
        view = view.copy()
        view[column.is_null().to_numpy(zero_copy_only=False)] = null
    return _frozen(view)


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


def entity_codes(column: pa.Array) -> tuple[NDArray[np.int64], list[Any]]:
    """Index of each row's distinct value, and the distinct values.

    Indices follow the order of appearance; -1 for null and NaN.
    """
    if pa.types.is_null(column.type):
        return np.full(len(column), -1), []
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_floating(column.type):
        column = pc.add(column, 0.0)  # -0.0 is 0.0
        column = pc.if_else(pc.is_nan(column), None, column)
    encoded = column.dictionary_encode()
    local = encoded.indices
    if local.null_count:
        local = local.fill_null(-1)
    return local.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def row_hashes(column: pa.Array, name: str) -> UInts:
    """Hash of each row of a column.

    Equal values of any integer or float type hash alike; nulls hash to 0, so a column of nulls leaves a
    record's hash unchanged.
    """
    salt = np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))
    kind = column.type
    hashes: UInts
    if is_tensor(kind):
        hashes = _tensor_hashes(to_tensor(column, name, 0))
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        numbers = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0)
        # + 0.0 turns -0.0 into 0.0: equal values, equal bits.
        hashes = (numbers.to_numpy(zero_copy_only=False) + 0.0).view(np.uint64)
        if pa.types.is_integer(kind):
            # Beyond 2**53 neighbours share one float, and ids of other systems are such numbers.
            whole = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
            with np.errstate(invalid="ignore"):
                exact = whole.astype(np.float64).astype(whole.dtype) == whole
            hashes = np.where(exact, hashes, whole.astype(np.uint64))
    elif pa.types.is_timestamp(kind):
        hashes = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        hashes = _text_hashes(column)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        hashes = _list_hashes(column)
    elif pa.types.is_struct(kind):
        names = [field.name for field in kind]
        hashes = np.zeros(len(column), dtype=np.uint64)
        for field, values in zip(names, column.flatten(), strict=True):
            hashes += row_hashes(values, field)
    else:
        is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        values = pc.fill_null(column, b"").to_pylist() if is_bytes else map(repr, column.to_pylist())
        hashes = _object_hashes(np.array([*values], dtype=object), categorize=False)
    mixed = mix(hashes ^ salt)
    if column.null_count:
        mixed[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return mixed


def _text_hashes(column: pa.Array) -> UInts:
    if column.null_count == len(column):
        return np.zeros(len(column), dtype=np.uint64)
    text = np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
    return _object_hashes(text, categorize=len(text) > 64)


def _object_hashes(values: NDArray[np.object_], *, categorize: bool) -> UInts:
    import pandas as pd  # a process that hashes no text never loads it

    hashes: UInts = pd.util.hash_array(values, categorize=categorize)
    return hashes


def _list_hashes(column: pa.Array) -> UInts:
    """Hash of each list, from its elements, their positions and its length."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    positions = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
    elements = row_hashes(column.flatten(), "")
    with np.errstate(over="ignore"):
        cells = mix(elements + _ODD) * (mix(positions.astype(np.uint64) + np.uint64(1)) | np.uint64(1))
        sums: UInts = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(cells, dtype=np.uint64)])
        total: UInts = sums[ends] - sums[ends - lengths] + lengths.astype(np.uint64) * _ODD
    return total


def _tensor_hashes(values: NDArray[Any]) -> UInts:
    flat = np.ascontiguousarray(values.reshape(len(values), int(np.prod(values.shape[1:]))))
    weights = mix(np.arange(1, flat.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    with np.errstate(over="ignore"):
        single = flat.astype(np.float32, copy=False) + np.float32(0.0)
    cells: UInts = mix(single.view(np.uint32).astype(np.uint64) + _ODD)
    if flat.dtype != np.float32:
        # What single precision leaves out counts too; nothing is left out of values that it can hold.
        with np.errstate(invalid="ignore"):
            rest = np.nan_to_num(flat.astype(np.float64) - single, posinf=0.0, neginf=0.0) + 0.0
        cells += mix(rest.view(np.uint64))
    total: UInts = (cells * weights).sum(axis=1, dtype=np.uint64)
    return total


def mix(values: UInts) -> UInts:
    """SplitMix64 finaliser (Steele et al., OOPSLA 2014): input bits spread evenly."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
