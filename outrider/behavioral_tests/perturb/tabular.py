"""Changes of numbers and categories of tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch

from .perturbation import Perturbation, Rng, column


def jitter(name: str, *, noise: float | None = None, by: float = 1.0) -> Perturbation:
    """Move a number by up to ``by`` times its noise, never by nothing.

    Parameters
    ----------
    name
        Input field of numbers; integers move by at least 1.
    noise
        Standard deviation of the field's measurement, in its unit. None takes 1 % of its spread
        (interquartile range) within the batch; a batch without spread is then not applicable.
    by
        Size of the largest step, in units of ``noise``; steps are uniform in ±[by / 2, by].
    """
    if by <= 0 or (noise is not None and noise <= 0):
        raise ValueError(f"by and noise must be > 0, got by={by}, noise={noise}; a step of 0 changes nothing")

    def change(values: NDArray[Any], rng: Rng) -> NDArray[Any]:
        unit = noise if noise is not None else 0.01 * _spread(values)
        steps = rng.uniform(0.5, 1.0, len(values)) * rng.choice([-1.0, 1.0], len(values)) * by * unit
        if values.dtype.kind in "iu":
            whole = np.sign(steps) * np.maximum(1.0, np.rint(np.abs(steps)))
            limits = np.iinfo(values.dtype)
            bounded = np.clip(values + (whole if unit else 0.0), limits.min, limits.max)
            return bounded.astype(values.dtype)
        moved: NDArray[Any] = (values + steps).astype(values.dtype, copy=False)
        return moved

    return column(name, change)


def _spread(values: NDArray[Any]) -> float:
    numbers = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    low, high = np.quantile(numbers, [0.25, 0.75]) if len(numbers) else (0.0, 0.0)
    return float(high - low)


def swap(name: str, *, values: Sequence[object] | Mapping[Any, Any]) -> Perturbation:
    """Replace a category by another one.

    Parameters
    ----------
    name
        Input field of categories.
    values
        Categories to draw from (each record gets one that it does not have), or a mapping from category to
        category, such as ``{"female": "male", "male": "female"}``; categories not in it are left alone.
    """
    if not isinstance(values, Mapping) and len(set(values)) < 2:
        raise ValueError(f"at least two categories expected, got {list(values)!r}; there is nothing to swap")

    def change(old: NDArray[Any], rng: Rng) -> NDArray[Any]:
        new = old.copy()
        if isinstance(values, Mapping):
            new[:] = [values.get(value, value) for value in old.tolist()]
            return new
        draws = rng.random(len(old)).tolist()
        for row, (value, draw) in enumerate(zip(old.tolist(), draws, strict=True)):
            others = [other for other in values if other != value]
            new[row] = others[int(draw * len(others))]
        return new

    return column(name, change)


def missing(*names: str) -> Perturbation:
    """Leave out values: every named field becomes null (None, NaN)."""
    if not names:
        raise ValueError("missing needs at least one field name")

    def perturb(batch: Batch, rng: Rng) -> Batch:  # noqa: ARG001 - a perturbation takes both
        table = batch.to_arrow()
        return batch.with_columns(
            {
                f"inputs.{name}": pa.nulls(batch.rows, table.schema.field(f"inputs.{name}").type)
                for name in names
            }
        )

    return perturb
