"""Texts that every database can store.

Without NUL, and without half of a surrogate pair.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NUL = "holds a NUL character, which not every database can store"
SURROGATE = "holds an unpaired surrogate, which is not text"

has_surrogate = re.compile("[\ud800-\udfff]").search
"""Test for half of a surrogate pair, without the price of an exception."""


def text_fault(text: str) -> str | None:
    r"""Fault of a text; None for one that can be stored.

    Examples
    --------
    >>> text_fault("a"), text_fault("a\0")
    (None, 'holds a NUL character, which not every database can store')
    """
    if "\0" in text:
        return NUL
    return SURROGATE if has_surrogate(text) else None


def may_have_nul(body: bytes) -> bool:
    """True where JSON may hold a NUL.

    Which stands there as an escape alone: without any, this is nearly free.
    """
    return b"\\" in body and rb"\u0000" in body


def has_nul(array: pa.Array) -> bool:
    """True where texts of a column have a NUL.

    Also those in its lists and objects, and those below nulls.
    """
    kind = array.type
    if pa.types.is_string(kind):
        return _bytes_have_nul(array)
    if pa.types.is_list(kind):
        return has_nul(array.values)
    if pa.types.is_struct(kind):
        return any(has_nul(array.field(at)) for at in range(kind.num_fields))
    return False


def rows_with_nul(array: pa.Array) -> NDArray[np.int64]:
    """Rows of a column whose texts have a NUL."""
    return np.flatnonzero(_mask(array)) if has_nul(array) else np.zeros(0, np.int64)


def _bytes_have_nul(array: pa.Array) -> bool:
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return False
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    return b"\0" in data.slice(ends[0], ends[-1] - ends[0]).to_pybytes()


def _mask(array: pa.Array) -> NDArray[np.bool_]:
    kind = array.type
    if pa.types.is_string(kind):
        found = pc.fill_null(pc.match_substring(array, "\0"), False)
        mask: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
        return mask
    if pa.types.is_list(kind):
        mask = np.zeros(len(array), np.bool_)
        parents = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)
        mask[parents[_mask(array.flatten())]] = True
        return mask
    mask = np.zeros(len(array), np.bool_)
    if pa.types.is_struct(kind):
        for values in array.flatten():
            mask |= _mask(values)
    return mask
