"""Typed frames of records for Great Expectations, tensors as figures."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch

if TYPE_CHECKING:
    import pandas as pd

EXTREMES: Mapping[str, Callable[..., Any]] = {"min": np.min, "max": np.max, "mean": np.mean}
"""Figures that replace a tensor."""
BLOCK_ROWS = 4096
ONLY_NULLS = "expect_column_values_to_not_be_null"
"""Expectation that reads nothing but nulls."""


def offered(batch: Batch) -> list[str]:
    """Columns that expectations may name."""
    names: list[str] = []
    for f in batch.to_arrow().schema:
        is_tensor = isinstance(f.type, pa.FixedShapeTensorType)
        names += [f"{f.name}.{extreme}" for extreme in EXTREMES] if is_tensor else [f.name]
    return names


def columns_read(suite: Sequence[Mapping[str, Any]]) -> dict[str, bool] | None:
    """True for more than nulls; None if any column may be read."""
    read: dict[str, bool] = {}
    for item in suite:
        kind, kwargs = str(item["type"]), item["kwargs"]
        if not kind.startswith("expect_column_") or "row_condition" in kwargs:
            return None
        named = [kwargs[name] for name in ("column", "column_A", "column_B") if name in kwargs]
        for name in (*named, *kwargs.get("column_list", ())):
            read[name] = read.get(name, False) or kind != ONLY_NULLS
    return read


def frame_of(batch: Batch, read: Mapping[str, bool] | None) -> "pd.DataFrame":
    """Columns read for nulls alone hold zeros: the library copies frames often."""
    import pandas as pd

    return pd.DataFrame(dict(_columns(batch, read)), index=pd.RangeIndex(batch.rows))


def numbers_of(batch: Batch, also: Iterable[str]) -> "Iterator[tuple[str, pd.Series[Any]]]":
    """Numeric inputs and labels, and the columns ``also``."""
    import pandas as pd

    also = set(also)
    wanted = dict.fromkeys(also, True)
    for f in batch.to_arrow().schema:
        if is_number(f.type) and f.name.startswith(("inputs.", "label.")):
            wanted[f.name] = True
    for name, values in _columns(batch, wanted):
        if name in wanted:
            yield name, pd.Series(values)


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def counts(schema: pa.Schema, item: Mapping[str, Any]) -> bool:
    """True if aggregates can judge the column."""
    name = item["kwargs"].get("column")
    if name is None or name not in schema.names:  # the table, or a figure of a tensor
        return True
    kind = schema.field(name).type
    if "value_set" in item["kwargs"] or "partition_object" in item["kwargs"]:
        return not pa.types.is_nested(kind)
    return is_number(kind)


def values_by_name(batch: Batch, names: Iterable[str]) -> "Iterator[tuple[str, pd.Series[Any]]]":
    import pandas as pd

    wanted = set(names)
    read = {name: True for name in offered(batch) if name in wanted or name.rpartition(".")[0] in wanted}
    for name, values in _columns(batch, read):
        yield name, pd.Series(values)


def _columns(batch: Batch, read: Mapping[str, bool] | None) -> Iterator[tuple[str, Any]]:
    table = batch.to_arrow()
    for f in table.schema:
        is_tensor = isinstance(f.type, pa.FixedShapeTensorType)
        names = [f"{f.name}.{extreme}" for extreme in EXTREMES] if is_tensor else [f.name]
        if read is not None and read.keys().isdisjoint(names):
            continue
        if is_tensor:
            yield from _extremes(batch, f.name).items()
        elif read is None or read[f.name]:
            yield f.name, _values(table.column(f.name))
        else:
            yield f.name, np.where(batch.is_null(f.name), np.float32(np.nan), np.float32(0.0))


def _extremes(batch: Batch, name: str) -> dict[str, NDArray[np.float64]]:
    found: dict[str, list[NDArray[np.float64]]] = {f"{name}.{extreme}": [] for extreme in EXTREMES}
    for start in range(0, batch.rows, BLOCK_ROWS):
        block = batch.slice(start, BLOCK_ROWS)
        values = block.tensor(name, null=np.nan).reshape(block.rows, -1)
        for extreme, reduce in EXTREMES.items():
            found[f"{name}.{extreme}"].append(reduce(values, axis=1).astype(np.float64))
    nothing = [np.zeros(0)] if not batch.rows else []
    return {extreme: np.concatenate(blocks + nothing) for extreme, blocks in found.items()}


def _values(column: pa.Array) -> Any:
    """Python objects only for types that pandas lacks."""
    import pandas as pd

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        if not column.null_count:
            return column.to_numpy(zero_copy_only=False)
        values = column.fill_null(0 if pa.types.is_integer(kind) else False).to_numpy(zero_copy_only=False)
        null = column.is_null().to_numpy(zero_copy_only=False)
        return (pd.arrays.IntegerArray if values.dtype.kind in "iu" else pd.arrays.BooleanArray)(values, null)
    if pa.types.is_floating(kind):
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(kind):  # suites write times with their zone
        return (column if kind.tz else column.cast(pa.timestamp(kind.unit, tz="UTC"))).to_pandas()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_temporal(kind):
        return column.to_pandas()
    return pd.Series(column.to_pylist(), dtype=object).infer_objects()
