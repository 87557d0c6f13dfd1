"""Tensor and list columns of series as arrays (rows, time, channels)."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor, list_array
from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, column, input_column

Floats: TypeAlias = NDArray[np.float64]
SeriesChange: TypeAlias = Callable[[Floats, Rng], Floats]
"""Function of (series of equal length, shape (rows, time, channels), rng) that keeps the shape; NaN is a
missing sample."""


def series(name: str, change: SeriesChange, *, shortest: int = 2) -> Perturbation:
    """Perturbation of a column of time series.

    Series with fewer than ``shortest`` samples are not applicable. Columns are tensors of shape (time,) or
    (time, channels), or lists of numbers of any length. Results for integers are rounded and clipped to their
    type.
    """

    def quietly(x: Floats, rng: Rng) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):  # series may hold infinity
            return change(x, rng)

    def perturb_tensors(values: NDArray[Any], rng: Rng) -> NDArray[Any]:
        if values.ndim not in (2, 3) or values.dtype.kind not in "fiu":
            raise TypeError(_expected(name, f"{values.dtype} of shape {values.shape[1:]}"))
        if values.shape[1] < shortest:
            return values
        return _like(quietly(values.reshape(*values.shape[:2], -1).astype(np.float64), rng), values)

    tensors = column(name, perturb_tensors)

    def perturb(batch: Batch, rng: Rng) -> Batch:
        array = input_column(batch, name)
        if is_tensor(array.type) or array.null_count == len(array):
            return tensors(batch, rng)
        kind = array.type
        if not pa.types.is_list(kind) or not _is_number(kind.value_type):
            raise TypeError(_expected(name, str(kind)))
        return batch.with_columns({f"inputs.{name}": _lists(array, quietly, rng, shortest)})

    return perturb


def _lists(array: pa.ListArray, change: SeriesChange, rng: Rng, shortest: int) -> pa.ListArray:
    flat, null = array.flatten(), array.is_null().to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    missing = flat.is_null().to_numpy(zero_copy_only=False)
    given = pc.fill_null(flat, 0).to_numpy(zero_copy_only=False)
    values = np.where(missing, np.nan, given.astype(np.float64))
    for length in np.unique(lengths[lengths >= shortest]):
        places = starts[lengths == length][:, None] + np.arange(length)  # (rows, time)
        values[places] = change(values[places][:, :, None], rng)[:, :, 0]
    absent = np.isnan(values) if missing.any() or given.dtype.kind != "f" else np.zeros(len(values), bool)
    elements = pa.array(_like(np.where(absent, 0.0, values), given), array.type.value_type, mask=absent)
    return list_array(elements, lengths, null).cast(array.type)


def _like(changed: Floats, values: NDArray[Any]) -> NDArray[Any]:
    """Floats converted to the shape and type of ``values``."""
    if values.dtype.kind in "iu":
        limits = np.iinfo(values.dtype)
        whole = np.rint(np.where(np.isnan(changed), 0.0, changed))
        changed = np.clip(whole, float(limits.min), np.nextafter(float(limits.max), 0.0, dtype=np.float64))
    return changed.reshape(values.shape).astype(values.dtype)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _expected(name: str, got: str) -> str:
    return (
        f"inputs.{name}: time series expected, numbers of shape (time,) or (time, channels) or lists of "
        f"numbers, got {got}"
    )
