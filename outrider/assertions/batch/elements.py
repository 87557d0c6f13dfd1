"""Elements of a list column (boxes, passages, tokens) as a batch."""

from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from .columns import is_tensor, tensor_type

How = Literal["max", "sum", "mean", "any"]
HOWS: tuple[How, ...] = get_args(How)


def is_list(kind: pa.DataType) -> bool:
    """True for types whose values hold several elements."""
    return bool(
        is_tensor(kind)
        or pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_null(kind)
    )


def flattened(column: pa.Array, name: str) -> tuple[pa.Array, NDArray[np.int64]]:
    """Elements of a list column in order, and their count per record.

    A null list has none; raises TypeError if the column holds no lists.
    """
    kind = column.type
    if not is_list(kind):
        raise TypeError(
            f"{name} is {kind}, not a column of lists; explode what holds several elements a record"
        )
    if pa.types.is_null(kind):  # the type is not known yet
        return pa.nulls(0), np.zeros(len(column), dtype=np.int64)
    if is_tensor(kind):
        return _tensor_elements(column)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return column.flatten(), lengths.astype(np.int64)


def _tensor_elements(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    size, *inner = column.type.shape
    present = column.is_valid().to_numpy(zero_copy_only=False)
    flat = column.storage.flatten()  # leaves null rows out
    counts = np.where(present, size, 0).astype(np.int64)
    if not inner:
        return flat, counts
    kind = tensor_type(inner, column.type.value_type)
    storage = pa.FixedSizeListArray.from_arrays(flat, int(np.prod(inner)))
    return pa.ExtensionArray.from_storage(kind, storage), counts


def fields(name: str, values: pa.Array) -> dict[str, pa.Array]:
    """Columns of elements by name: ``name``, or one per field of structs."""
    if not pa.types.is_struct(values.type):
        return {name: values}
    names = [values.type.field(index).name for index in range(values.type.num_fields)]
    return {f"{name}.{field}": column for field, column in zip(names, values.flatten(), strict=True)}


def reduced(values: ArrayLike, how: How, parent: NDArray[np.intp], parents: int) -> NDArray[Any]:
    """One value per record from one value per element.

    ``parent`` is the record's row number of each element.
    """
    if how not in HOWS:
        raise ValueError(f"how must be one of {', '.join(HOWS)}, got {how!r}")
    given = np.asarray(values)
    if given.shape != (len(parent),):
        raise ValueError(f"one value per element expected, shape ({len(parent)},), got {given.shape}")
    counts = np.bincount(parent, minlength=parents)
    if how == "any":
        return np.bincount(parent[given.astype(np.bool_)], minlength=parents) > 0
    weights = given.astype(np.float64)
    if how == "max":
        top = np.zeros(parents)
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        if len(filled):
            top[filled] = np.maximum.reduceat(weights, starts)
        return top
    total = np.bincount(parent, weights=weights, minlength=parents)
    return total if how == "sum" else total / np.maximum(counts, 1)
