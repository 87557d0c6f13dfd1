"""Column readers of library assertions.

A null or absent value never fires by itself.

The columns of a block depend on its records, so an absent column is read as all null;
:func:`~outrider.assertions.library.required` detects missing columns.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import is_tensor, to_tensor

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
BLOCK = 64
FEW = 256
"""Number of values up to which a dictionary is faster than an Arrow call."""
DOUBLE = pa.float64()


def short(column: str) -> str:
    """Last part of a full column name, used in assertion names."""
    return column.rpartition(".")[2].replace("-", "_").replace(" ", "_")


def arrow(batch: Batch, column: str) -> Any:
    """Arrow values of a column, dictionaries decoded. Nulls if the batch lacks the column."""
    if not batch.has(column):
        return pa.nulls(batch.rows)
    found = batch.arrow(column)
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def numbers(batch: Batch, column: str) -> Floats:
    """Values of a numeric column, NaN for null or absent, shape (rows,).

    Raises
    ------
    TypeError
        If the column holds other values than numbers.
    """
    found = arrow(batch, column)
    if found.type == DOUBLE and not found.null_count:
        plain: Floats = found.to_numpy()
        return plain
    if pa.types.is_null(found.type):
        return np.full(batch.rows, np.nan)
    if not _is_number(found.type):
        raise TypeError(f"{column} is {found.type}: numbers expected")
    # Casts show nulls as NaN; 2**53 and beyond lose their last digits, which no limit here depends on.
    wide = pc.cast(found, DOUBLE, safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(wide, dtype=np.float64)


def values(batch: Batch, column: str) -> NDArray[np.object_]:
    """Python values of a column, None for null or absent, shape (rows,)."""
    found = np.empty(batch.rows, dtype=object)
    found[:] = arrow(batch, column).to_pylist()
    return found


def vectors(batch: Batch, column: str, slot: str | None = None) -> Floats:
    """Rows of a tensor (or list) column, shape (rows, width).

    NaN where null. ``slot`` reads the answers of another slot; without answers or column, width is 0.
    """
    source = batch if slot is None else batch.answers(slot)
    if source is None or not source.has(column):
        return np.zeros((batch.rows, 0))
    found = source.arrow(column)
    if is_tensor(found.type):
        if not found.null_count:
            tensor = to_tensor(found, column)
            return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])).astype(np.float64)
        mask = found.is_null().to_numpy(zero_copy_only=False)
        tensor = to_tensor(found, column, 0)
        dense = tensor.reshape(len(tensor), math.prod(tensor.shape[1:])).astype(np.float64)
        dense[mask] = np.nan
        return dense
    flat, lengths = lists(source, column)
    width = int(lengths.max(initial=0))
    matrix = np.full((batch.rows, width), np.nan)
    # A shorter list is not a vector of this model: its row stays NaN.
    whole = lengths == width
    starts = np.cumsum(lengths) - lengths
    index = starts[whole, None] + np.arange(width)
    numeric = np.asarray(pc.cast(flat, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    matrix[whole] = numeric[index]
    return matrix


def lists(batch: Batch, column: str) -> tuple[Any, Ints]:
    """Flat elements of a list column, and their count per row. A null list has none."""
    found = arrow(batch, column)
    if pa.types.is_null(found.type):
        return pa.nulls(0), np.zeros(batch.rows, dtype=np.int64)
    if is_tensor(found.type):
        found = found.storage
    if not (
        pa.types.is_list(found.type)
        or pa.types.is_large_list(found.type)
        or pa.types.is_fixed_size_list(found.type)
    ):
        raise TypeError(f"{column} is {found.type}: a list per record expected")
    lengths = pc.fill_null(pc.list_value_length(found), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found.flatten(), lengths


def parents(lengths: Ints) -> Ints:
    """Row of each element, shape (elements,)."""
    return np.repeat(np.arange(len(lengths)), lengths)


def valid(column: Any) -> Bools:
    """Mask of the values that are not null, shape (rows,)."""
    if not column.null_count:
        return np.ones(len(column), dtype=np.bool_)
    known: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return known


def codes(column: Any, wanted: Sequence[Any]) -> Ints:
    """Position of each value in ``wanted``, -1 for others.

    None in ``wanted`` matches null.
    """
    if len(column) <= FEW and len(wanted) <= FEW:
        return _codes_of_few(column, wanted)
    known = [value for value in wanted if value is not None]
    if len({type(value) for value in known}) > 1:
        return _codes_of_few(column, wanted)
    positions = np.array([index for index, value in enumerate(wanted) if value is not None], dtype=np.int64)
    result = np.full(len(column), -1, dtype=np.int64)
    null = ~valid(column)
    pair = _comparable(column, pa.array(known)) if known and not null.all() else None
    if pair is not None:
        index = pc.fill_null(pc.index_in(pair[0], value_set=pair[1]), -1).to_numpy(zero_copy_only=False)
        hit = (index >= 0) & ~null
        result[hit] = positions[index[hit]]
    result[null] = list(wanted).index(None) if None in wanted else -1
    return result


def _codes_of_few(column: Any, wanted: Sequence[Any]) -> Ints:
    place = {value: index for index, value in reversed(list(enumerate(wanted)))}.get
    return np.fromiter((place(value, -1) for value in column.to_pylist()), np.int64, len(column))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _comparable(column: Any, known: Any) -> tuple[Any, Any] | None:
    """Both in a common type; None if no value of one can equal a value of the other."""
    if column.type == known.type:
        return column, known
    if _is_number(column.type) and _is_number(known.type):
        return pc.cast(column, DOUBLE, safe=False), pc.cast(known, DOUBLE, safe=False)
    if not (_is_text(column.type) and _is_text(known.type)):
        return None
    return column, known.cast(column.type)


def earlier(batch: Batch, by: str, steps: int) -> Ints:
    """Row numbers of the entity's previous records, shape (rows, steps).

    The nearest comes first; -1 if there is none. The view must have each entity's rows together and in order.
    """
    rows = batch.rows
    if not rows:
        return np.zeros((0, steps), dtype=np.int64)
    entity = values(batch, by)
    same = (entity[1:] == entity[:-1]) & (entity[1:] != np.array(None, dtype=object))
    starts = np.concatenate([[True], ~same.astype(np.bool_)])
    position = np.arange(rows) - np.maximum.accumulate(np.where(starts, np.arange(rows), 0))
    lag = np.arange(1, steps + 1)
    index: Ints = np.where(position[:, None] >= lag, np.arange(rows)[:, None] - lag, -1)
    return index


def before(column: NDArray[Any], index: Ints, null: Any = np.nan) -> NDArray[Any]:
    """Values at the row numbers of :func:`earlier`, shape (rows, steps). ``null`` if there is no such row."""
    if not len(column):
        return np.full(index.shape, null)
    found: NDArray[Any] = np.where(index >= 0, column[np.maximum(index, 0)], null)
    return found


def product(points: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Matrix product whose rows do not depend on the batch.

    BLAS sums in an order that depends on the number of rows; here blocks have a fixed size, so each row is
    bitwise equal in any batch.
    """
    rows = len(points)
    padded = np.zeros((-(-rows // BLOCK) * BLOCK, points.shape[1]), dtype=points.dtype)
    padded[:rows] = points
    pieces = [padded[start : start + BLOCK] @ other for start in range(0, len(padded), BLOCK)]
    return np.concatenate([*pieces, np.zeros((0, other.shape[1]), dtype=points.dtype)])[:rows]


def fired(mask: Any) -> Floats:
    """Severity 1.0 where ``mask`` is True, else 0.0."""
    return np.asarray(mask, dtype=np.float64)


def graded(mask: Bools, distance: Floats) -> Floats:
    """Severity of fired records: their distance, made finite and > 0."""
    severity = np.zeros(len(mask))
    rows = np.flatnonzero(mask)
    if len(rows):
        severity[rows] = np.fmin(np.fmax(distance[rows], 1e-9), 1e9)  # fmax and fmin pass over NaN
    return severity
