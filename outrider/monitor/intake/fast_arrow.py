"""Fast path of Arrow: columns of known types, taken unchanged.

Whole columns are checked: lengths of ids, finite numbers, weights. What is not plainly right goes to
`block_builder`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import SYSTEM, TIME
from outrider.assertions.batch.columns import is_tensor
from outrider.dataops.state.stored_texts import has_nul
from outrider.monitor.stream.event_time import are_within

from .column_types import nulls
from .uuid7 import uuid7s

_SCALARS = (pa.int64(), pa.float64(), pa.bool_(), pa.string())
_SHORT = ("id", "version", "entity")


def known_columns(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    received_us: int,
    *,
    needed: tuple[str, ...] = (),
    names_groups: Callable[[str], bool] = lambda _: False,
) -> pa.RecordBatch | None:
    """Columns of a validated batch in the schema's order; None: a value needs a look."""
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays.pop("received", None)
    if len(set(batch.schema.names)) < batch.num_columns or not any("." in name for name in arrays):
        return None
    for name, array in arrays.items():
        at = schema.get_field_index(name)
        if at < 0 or array.type != schema.field(at).type or not _fits(name, array):
            return None
        if array.type == pa.string() and names_groups(name) and has_nul(array):
            return None
    if needed and _may_lack(arrays, needed):
        return None
    _complete(arrays, batch.num_rows, received_us)
    columns = [arrays[f.name] if f.name in arrays else nulls(batch.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _may_lack(arrays: Mapping[str, pa.Array], needed: tuple[str, ...]) -> bool:
    """True if some record may have inputs and none of the needed ones."""
    given = [name for name in arrays if name.startswith("inputs.")]
    fed = [name for name in given if is_fed(name, needed)]
    return len(fed) < len(given) and all(arrays[name].null_count for name in fed)


def _complete(arrays: dict[str, pa.Array], rows: int, received_us: int) -> None:
    received = arrays["received"] = pa.repeat(pa.scalar(received_us, TIME), rows)
    ts = arrays.get("ts")
    arrays["ts"] = received if ts is None else ts.fill_null(received) if ts.null_count else ts
    for name, default in (("weight", 1.0), ("partial", False)):
        if name not in arrays:
            arrays[name] = pa.repeat(default, rows)
    if "id" not in arrays:
        arrays["id"] = pa.array(uuid7s(rows), pa.string())


def is_fed(name: str, needed: tuple[str, ...]) -> bool:
    """Test for a column of these inputs, or a member of one that is an object."""
    return name in needed or any(name.startswith(f"{one}.") for one in needed)


def _fits(name: str, array: pa.Array) -> bool:
    kind = array.type
    if name in _SHORT:
        # Bytes, not characters: never fewer. Only ids must be there.
        return _are_short(array) and not has_nul(array) and not (name == "id" and array.null_count)
    if name == "weight":
        weights = _numbers(array, np.float64)
        # A NaN is neither above nor below.
        return not array.null_count and bool(
            np.minimum.reduce(weights) > 0 and np.maximum.reduce(weights) <= 1e12
        )
    if name == "ts":
        return are_within(array)
    if name in SYSTEM:
        return name != "partial" or not array.null_count
    if kind == pa.float64():
        return _is_finite(array, np.float64)
    if is_tensor(kind):
        storage = array.storage
        return (
            storage.type.value_type == pa.float32()
            and not array.null_count
            and not storage.values.null_count
            and (_is_finite(storage.flatten(), np.float32))
        )
    return kind in _SCALARS


def _are_short(array: pa.Array) -> bool:
    """True if no text is empty or longer than 256 bytes."""
    if array.null_count == len(array):
        return True
    if array.null_count:
        span = pc.min_max(pc.binary_length(array)).as_py()
        return span["min"] is None or bool(span["min"] > 0 and span["max"] <= 256)
    ends: NDArray[Any] = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    lengths = ends[1:] - ends[:-1]
    return bool(np.minimum.reduce(lengths) > 0 and np.maximum.reduce(lengths) <= 256)


def _is_finite(array: pa.Array, kind: type) -> bool:
    """True if all numbers are finite, those below nulls too."""
    return bool(np.isfinite(_numbers(array, kind)).all())


def _numbers(array: pa.Array, kind: type) -> NDArray[Any]:
    """Values read in place: a call into Arrow gives up the interpreter's lock, which costs more."""
    return np.frombuffer(array.buffers()[1] or b"", kind, count=array.offset + len(array))[array.offset :]
