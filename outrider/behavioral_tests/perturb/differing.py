"""Differing values of two columns, to tell a change from a no-op."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch.columns import is_tensor, row_hashes, to_tensor


def differs(before: pa.Array, after: pa.Array) -> NDArray[np.bool_]:
    """Rows in which two aligned columns differ, shape (rows,).

    Null equals null, NaN equals NaN.

    Examples
    --------
    >>> differs(pa.array([1.0, None, float("nan")]), pa.array([1.0, None, float("nan")]))
    array([False, False, False])
    >>> differs(pa.array(["a", None]), pa.array(["a", ""]))
    array([False,  True])
    """
    if after is before:
        return np.zeros(len(after), dtype=np.bool_)
    kind = after.type
    if not kind.equals(before.type):
        return _hashes_differ(before, after)
    if is_tensor(kind):
        differing = _tensors_differ(to_tensor(before, "", 0), to_tensor(after, "", 0))
    elif pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or pa.types.is_null(kind):
        differing = _hashes_differ(before, after)
    else:
        differing = pc.fill_null(pc.not_equal(before, after), False).to_numpy(zero_copy_only=False)
        if pa.types.is_floating(kind):
            same_nan = pc.and_(pc.is_nan(before), pc.is_nan(after))
            differing = differing & ~pc.fill_null(same_nan, False).to_numpy(zero_copy_only=False)
    if before.null_count or after.null_count:
        nulls = [column.is_null().to_numpy(zero_copy_only=False) for column in (before, after)]
        differing = np.where(nulls[0] | nulls[1], nulls[0] != nulls[1], differing)
    return np.asarray(differing, dtype=np.bool_)


def _hashes_differ(before: pa.Array, after: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = row_hashes(before, "") != row_hashes(after, "")
    return found


def _tensors_differ(before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.bool_]:
    axes = tuple(range(1, before.ndim))
    cells = before != after
    found: NDArray[np.bool_] = cells.any(axis=axes)
    if before.dtype.kind == "f" and found.any():  # NaN differs from itself
        rows = np.flatnonzero(found)
        cells = cells[rows] & ~(np.isnan(before[rows]) & np.isnan(after[rows]))
        found[rows] = cells.any(axis=axes)
    return found
