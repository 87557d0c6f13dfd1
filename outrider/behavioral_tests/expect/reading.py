"""Readers of answers and severities as arrays."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor
from outrider.assertions.comparison.matching import number_of

Floats = NDArray[np.float64]
_ELEMENT = re.compile(r"(.+)\[(\d+|[A-Za-z_]\w*)\]")


def severities(verdict: NDArray[Any], rows: int) -> Floats:
    """Severities that an expectation returned, as floats.

    0.0 met, > 0 violated, NaN not applicable.

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
    """Answers of a field, or of one element of a vector.

    ``name[1]`` is one element, ``name[label]`` that of the predicted class in ``original``, aligned with
    ``batch``. If ``name`` holds one number per row, the confidence in the predicted class, ``name[label]`` is
    that, negated if the class differs from the original's (as in CheckList).
    """
    if batch.has(f"outputs.{field}") or not (match := _ELEMENT.fullmatch(field)):
        return column(batch, f"outputs.{field}")
    if not match[2].isdigit() and _is_confidence(batch, match[1]):
        return _signed_confidence(batch, match[1], match[2], original=original)
    vector = _vector(batch, match[1], field)  # (rows, classes)
    if match[2].isdigit():
        _check_element(int(match[2]), vector, field)
        element: NDArray[Any] = vector[:, int(match[2])]
        return element
    classes = column(original, f"outputs.{match[2]}")
    absent = missing(classes)
    if classes.dtype == object and not isinstance(next(iter(classes[~absent]), 0), int):
        raise TypeError(f"{field}: class numbers expected in {match[2]!r}, got {classes[:3].tolist()}")
    if classes.dtype.kind not in "iuO":
        raise TypeError(f"{field}: class numbers expected in {match[2]!r}, got {classes[:3].tolist()}")
    numbers = np.where(absent, 0, classes).astype(np.int64)
    if len(numbers):
        _check_element(int(numbers.min()), vector, field)
        _check_element(int(numbers.max()), vector, field)
    picked: NDArray[Any] = vector[np.arange(len(vector)), numbers]
    return np.where(absent, np.nan, picked) if absent.any() else picked


def _is_confidence(batch: Batch, name: str) -> bool:
    """True if a column holds one number per row."""
    kind = batch.arrow(f"outputs.{name}").type if batch.has(f"outputs.{name}") else pa.null()
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _signed_confidence(batch: Batch, name: str, classes: str, *, original: Batch) -> NDArray[Any]:
    confidence = numbers(column(batch, f"outputs.{name}"), name)
    was, now = (column(each, f"outputs.{classes}") for each in (original, batch))
    signed = np.where(np.asarray(was == now, dtype=np.bool_), confidence, -confidence)
    return np.where(missing(was) | missing(now), np.nan, signed)


def _vector(batch: Batch, name: str, field: str) -> NDArray[Any]:
    full = f"outputs.{name}"
    values = column(batch, full)
    if values.ndim != 2:
        raise TypeError(f"{field}: a vector per row expected in {full}, got {batch.arrow(full).type}")
    return values


def _check_element(element: int, vector: NDArray[Any], field: str) -> None:
    if not 0 <= element < vector.shape[1]:
        raise ValueError(f"{field}: there are {vector.shape[1]} elements, numbered from 0; got {element}")


def target(before: Batch, field: str, to: object) -> NDArray[Any]:
    """Target answer of every row: ``to``, or the case's label if None."""
    if to is None:
        if not any(name.startswith("label.") for name in before.names):
            raise KeyError(
                "the cases have no right answer: give labels=, or cases with a column or key 'label'"
            )
        return column(before, f"label.{field}")
    return np.full(before.rows, to, dtype=object if isinstance(to, str) else None)


def column(batch: Batch, name: str) -> NDArray[Any]:
    """Column as numpy.

    Nulls become NaN in float columns, None in others.
    """
    if not batch.has(name):
        part = name.partition(".")[0]
        there = [other for other in batch.names if other.startswith(f"{part}.")]
        raise KeyError(f"no {name}: there is {', '.join(there) or f'nothing of {part}'}")
    kind = batch.arrow(name).type
    nulls = batch.arrow(name).null_count > 0
    if is_tensor(kind):
        return batch.tensor(name, null=np.nan) if nulls else batch.tensor(name)
    if pa.types.is_nested(kind) or (nulls and not pa.types.is_floating(kind)):
        values = np.empty(batch.rows, dtype=object)
        values[:] = batch.arrow(name).to_pylist()
        return values
    return batch.column(name)


def numbers(values: NDArray[Any], field: str) -> Floats:
    """Values as floats, NaN if missing."""
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"numbers expected in {field!r}, got {values[:3].tolist()}") from error


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask (rows,) of missing values: None, or NaN anywhere in a vector."""
    if values.dtype.kind not in "fcO":
        return np.zeros(len(values), dtype=np.bool_)
    if values.dtype.kind != "O":
        return np.asarray(np.isnan(values).reshape(len(values), -1).any(axis=1), dtype=np.bool_)
    import pandas as pd

    absent: NDArray[np.bool_] = np.asarray(pd.isna(values)).reshape(len(values), -1)
    return np.asarray(absent.any(axis=1), dtype=np.bool_)


def judged(severity: Floats, was: NDArray[Any], now: NDArray[Any]) -> Floats:
    """Severities with the rule for missing answers applied, shape (rows,).

    NaN (not applicable) if the original answer or the label is missing; 1.0 if only the answer under test is.
    """
    return np.where(missing(was), np.nan, np.where(missing(now), 1.0, severity))


def excess(gap: Floats, tolerance: float = 0.0) -> Floats:
    """Excess of a gap over the tolerance, at least 0.0. 1.0 for an infinite gap, NaN for NaN."""
    return np.where(gap <= tolerance, 0.0, np.where(np.isinf(gap), 1.0, gap - tolerance))


def difference(was: Floats, now: Floats) -> Floats:
    """Difference ``now - was``, 0.0 between equal infinities."""
    with np.errstate(invalid="ignore"):
        return np.where(was == now, 0.0, now - was)


def distance(before: NDArray[Any], after: NDArray[Any], field: str, *, graded: bool = True) -> Floats:
    """Distance of two answers, 0.0 where equal.

    1.0 between different classes, the largest element difference between numbers. Missing values are left to
    :func:`judged`.
    """
    check_kinds(before, after, field)
    if before.dtype == object or after.dtype == object:
        return np.asarray(before != after, dtype=np.bool_).astype(np.float64)
    if before.shape != after.shape:
        raise ValueError(f"{field}: shapes {before.shape} and {after.shape} cannot be compared")
    if before.dtype.kind in "fc" or after.dtype.kind in "fc":
        gap = np.abs(difference(before.astype(np.float64), after.astype(np.float64)))
    else:
        gap = (before != after).astype(np.float64)
    if gap.ndim > 1:
        gap = np.max(gap.reshape(len(gap), -1), axis=1, initial=0.0)
    return gap if graded else np.sign(gap)


def check_kinds(expected: NDArray[Any], given: NDArray[Any], field: str, *, spelled: bool = False) -> None:
    """Raise TypeError for a comparison of texts with numbers.

    Such values are never equal. With ``spelled`` a text that spells a number is allowed.
    """
    kinds = [_kinds(values, spelled=spelled) for values in (expected, given)]
    if kinds[0] and kinds[1] and kinds[0].isdisjoint(kinds[1]):
        raise TypeError(
            f"{field}: {kinds[0].pop()} expected, {kinds[1].pop()} came "
            f"({expected[:1].tolist()} and {given[:1].tolist()}); they could never be equal"
        )


def _kinds(values: NDArray[Any], *, spelled: bool) -> set[str]:
    if values.dtype != object:
        return {"number"} if len(values) else set()
    present = values[~missing(values)].tolist()
    types = set(map(type, present))
    if spelled and any(isinstance(value, str) and number_of(value) is not None for value in present):
        types.add(int)
    return {
        "text" if issubclass(kind, str) else "list" if issubclass(kind, list | dict) else "number"
        for kind in types
    }
