"""Tensor columns as nested lists, for readers that know no tensors."""

import numpy as np
import pyarrow as pa

from outrider.assertions.batch.columns import is_tensor, list_array, to_tensor


def nested_type(kind: pa.DataType) -> pa.DataType:
    if not is_tensor(kind):
        return kind
    nested = kind.value_type
    for _ in kind.shape:
        nested = pa.list_(nested)
    return nested


def nested_lists(column: pa.Array) -> pa.Array:
    if not is_tensor(column.type):
        return column
    values = to_tensor(column, "a tensor", 0)
    null = column.is_null().to_numpy(zero_copy_only=False)
    nested = pa.array(values.reshape(-1))
    for axis in range(values.ndim - 1, 0, -1):
        lists = int(np.prod(values.shape[:axis], dtype=np.int64))
        absent = null if axis == 1 else np.zeros(lists, dtype=np.bool_)
        nested = list_array(nested, np.full(lists, values.shape[axis]), absent)
    return nested
