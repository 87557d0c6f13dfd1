"""Answers and severities as arrays."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.columns import is_tensor

Floats = NDArray[np.float64]
_ELEMENT = re.compile(r"(.+)\[(\d+|[A-Za-z_]\w*)\]")


def severities(verdict: NDArray[Any], rows: int) -> Floats:
    """Read what an expectation returned as severities: 0.0 met, above violated, NaN not applicable.

    Raises
    ------
    ValueError
        If there is not one bool or number >= 0 per row.
    """
    values = np.asarray(verdict)
    if values.shape != (rows,):
        raise ValueError(
            f"one value per record expected of an expectation: shape ({rows},), got {values.shape}"
        )
    if values.dtype == np.bool_:
        return np.where(values, 0.0, 1.0)
    numbers = values.astype(np.float64)
    if (numbers < 0).any() or np.isinf(numbers).any():
        raise ValueError(f"severities must be finite and >= 0 (0.0 = met), got {numbers.tolist()[:10]}")
    return numbers


def answer(batch: Batch, field: str, *, original: Batch) -> NDArray[Any]:
    """Answers of a field; ``name[1]`` is one element of a vector, ``name[label]`` of the original's class.

    Parameters
    ----------
    original
        Where the class in ``name[label]`` is looked up, aligned with ``batch``.
    """
    if batch.has(f"outputs.{field}") or not (match := _ELEMENT.fullmatch(field)):
        return column(batch, f"outputs.{field}")
    vector = batch.tensor(f"outputs.{match[1]}", null=np.nan)  # (rows, classes)
    if match[2].isdigit():
        element: NDArray[Any] = vector[:, int(match[2])]
        return element
    classes = column(original, f"outputs.{match[2]}")
    if classes.dtype.kind not in "iu":
        raise TypeError(f"{field}: class numbers expected in {match[2]!r}, got {classes[:3].tolist()}")
    picked: NDArray[Any] = vector[np.arange(len(vector)), classes]
    return picked


def target(before: Batch, field: str, to: object) -> NDArray[Any]:
    """``to`` for every row, or the case's own label when ``to`` is None."""
    if to is None:
        return column(before, f"label.{field}")
    return np.full(before.rows, to, dtype=object if isinstance(to, str) else None)


def column(batch: Batch, name: str) -> NDArray[Any]:
    """A column as numpy; with nulls, as objects."""
    kind = batch.to_arrow().schema.field(name).type if batch.has(name) else None
    if kind is None or is_tensor(kind) or not batch.is_null(name).any():
        return batch.column(name) if kind is None or not is_tensor(kind) else batch.tensor(name, null=np.nan)
    return np.array(batch.to_arrow().column(name).to_pylist(), dtype=object)


def numbers(values: NDArray[Any], field: str) -> Floats:
    """The values as floats."""
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"numbers expected in {field!r}, got {values[:3].tolist()}") from error


def distance(before: NDArray[Any], after: NDArray[Any], field: str, *, graded: bool = True) -> Floats:
    """Zero where equal, else how far apart: 1.0 for classes, the largest element gap for numbers."""
    if before.dtype == object or after.dtype == object:
        return _distance_of_objects(before, after, field)
    if before.shape != after.shape:
        raise ValueError(f"{field}: shapes {before.shape} and {after.shape} cannot be compared")
    if before.dtype.kind in "fc" or after.dtype.kind in "fc":
        gap: Floats = np.abs(before.astype(np.float64) - after.astype(np.float64))
    else:
        gap = (before != after).astype(np.float64)
    if gap.ndim > 1:
        gap = np.max(gap.reshape(len(gap), -1), axis=1, initial=0.0)
    return gap if graded else np.sign(gap)  # the sign of NaN is NaN


def _distance_of_objects(before: NDArray[Any], after: NDArray[Any], field: str) -> Floats:
    kinds = [
        {"text" if isinstance(value, str) else "number" for value in values.tolist() if value is not None}
        for values in (before, after)
    ]
    if kinds[0] and kinds[1] and kinds[0].isdisjoint(kinds[1]):
        raise TypeError(
            f"{field}: {kinds[0].pop()} expected, {kinds[1].pop()} came "
            f"({before[:1].tolist()} and {after[:1].tolist()}); they could never be equal"
        )
    unknown = np.array([a is None or b is None for a, b in zip(before.tolist(), after.tolist(), strict=True)])
    differs = np.array(
        [a != b for a, b in zip(before.tolist(), after.tolist(), strict=True)], dtype=np.float64
    )
    return np.where(unknown, np.nan, differs) if len(differs) else differs
