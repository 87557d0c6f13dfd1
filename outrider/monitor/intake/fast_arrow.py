"""Fast path of Arrow for columns of known types.

Such columns are taken unchanged.

Checked in whole columns: lengths of ids, finite numbers, weights in their bounds. Anything that is not
plainly right goes the general way (`block_builder`), which looks at every value.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import SYSTEM, TIME
from outrider.assertions.columns import is_tensor
from outrider.monitor.stream.event_time import are_within

from .column_types import nulls
from .uuid7 import uuid7s

_SCALARS = (pa.int64(), pa.float64(), pa.bool_(), pa.string())
_SHORT = ("id", "version", "entity")


@dataclass(frozen=True, slots=True)
class KnownColumns:
    """Columns of one batch that fit a model's schema.

    Parameters
    ----------
    schema, digest
        Schema of the model's records, and its digest.
    arrays
        What came, by full column name.
    rows
        Length of each.
    """

    schema: pa.Schema
    digest: str
    arrays: dict[str, pa.Array]
    rows: int

    def pieces(self, received_us: int, most: int) -> list[pa.RecordBatch]:
        """Tables of at most ``most`` rows, in the order of the schema."""
        received = pa.repeat(pa.scalar(received_us, TIME), self.rows)
        arrays = self.arrays | {"received": received}
        ts = arrays.get("ts")
        arrays["ts"] = received if ts is None else ts.fill_null(received) if ts.null_count else ts
        for name, default in (("weight", 1.0), ("partial", False)):
            if name not in arrays:
                arrays[name] = pa.repeat(default, self.rows)
        if "id" not in arrays:
            arrays["id"] = pa.array(uuid7s(self.rows), pa.string())
        columns = [
            arrays[field.name] if field.name in arrays else nulls(self.rows, field.type)
            for field in self.schema
        ]
        table = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return [table.slice(start, most) for start in range(0, self.rows, most)]


def known_columns(
    batch: pa.RecordBatch, schema: pa.Schema, digest: str, *, needed: tuple[str, ...] = ()
) -> KnownColumns | None:
    """Columns of a validated batch, or None.

    None when any column needs a look at its values.

    Parameters
    ----------
    needed
        Inputs of which a record with inputs needs at least one.
    """
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays.pop("received", None)
    if len(set(batch.schema.names)) < batch.num_columns or not any("." in name for name in arrays):
        return None
    for name, array in arrays.items():
        at = schema.get_field_index(name)
        if at < 0 or array.type != schema.field(at).type or not _fits(name, array):
            return None
    if needed:
        given = [name for name in arrays if name.startswith("inputs.")]
        fed = [name for name in given if is_fed(name, needed)]
        if len(fed) < len(given) and all(arrays[name].null_count for name in fed):
            return None
    return KnownColumns(schema, digest, arrays, batch.num_rows)


def is_fed(name: str, needed: tuple[str, ...]) -> bool:
    """Test for a column of these inputs.

    Or a member of one that is an object.
    """
    return name in needed or any(name.startswith(f"{one}.") for one in needed)


def _fits(name: str, array: pa.Array) -> bool:
    kind = array.type
    if name in _SHORT:
        # Bytes, not characters: never fewer. Only ids must be there.
        span = pc.min_max(pc.binary_length(array)).as_py()
        short = span["min"] is None or (span["min"] > 0 and span["max"] <= 256)
        return short and not (name == "id" and array.null_count)
    if name == "weight":
        span = pc.min_max(array).as_py()
        return (
            not array.null_count and _is_finite(array, np.float64) and span["min"] > 0 and span["max"] <= 1e12
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


def _is_finite(array: pa.Array, kind: type) -> bool:
    """True where all numbers are finite, those below nulls too: a doubt about them is not worth more."""
    numbers: NDArray[Any] = np.frombuffer(
        array.buffers()[1] or b"", dtype=kind, count=array.offset + len(array)
    )
    return bool(np.isfinite(numbers[array.offset :]).all())
