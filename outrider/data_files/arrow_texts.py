"""Texts of Arrow columns that are no UTF-8, nested ones too."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NOT_UTF8 = "is no UTF-8: text expected; an unpaired surrogate is none"


def readable_column(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Column with nulls for values whose texts are none, and their rows.

    Raises
    ------
    ArrowInvalid
        If its buffers do not fit together.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        words, bad = readable_column(column.dictionary)
        is_bad = pc.is_in(column.indices.cast(pa.int64()), pa.array(bad))
        found = pa.DictionaryArray.from_arrays(column.indices, words, ordered=kind.ordered)
        return found, np.flatnonzero(is_bad.to_numpy(zero_copy_only=False))
    if (raw_kind := _as_bytes(kind)) == kind:
        return column, np.zeros(0, np.int64)
    raw = column.view(raw_kind)
    raw.validate(full=True)  # its offsets, before anything is read by them
    is_bad = np.array([not _is_utf8(value, kind) for value in raw.to_pylist()], np.bool_)
    return raw.take(pa.array(np.arange(len(raw)), mask=is_bad)).view(kind), np.flatnonzero(is_bad)


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Type whose texts are bytes, also inside lists, maps and structs."""
    types = pa.types
    if types.is_string(kind):
        return pa.binary()
    if types.is_large_string(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_as_bytes(kind.key_type), _as_bytes(kind.item_type), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(_as_bytes(kind.value_type), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_as_bytes(kind.value_type))
    return pa.large_list(_as_bytes(kind.value_type)) if types.is_large_list(kind) else kind


def _is_utf8(value: Any, kind: pa.DataType) -> bool:
    """Test the bytes where a type has texts."""
    types = pa.types
    if value is None:
        return True
    if types.is_struct(kind):
        return all(_is_utf8(value[field.name], field.type) for field in kind)
    if types.is_map(kind):
        return all(_is_utf8(one, kind.key_type) and _is_utf8(two, kind.item_type) for one, two in value)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return all(_is_utf8(each, kind.value_type) for each in value)
    if not (types.is_string(kind) or types.is_large_string(kind)):
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
