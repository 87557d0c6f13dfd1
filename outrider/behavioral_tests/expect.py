"""Expectations: what the new answer must look like, judged record by record over two aligned batches.

An expectation is a function of ``before`` (the cases; for INV and DIR with the answers to the unchanged
inputs) and ``after`` (the same records with the answers under test). It returns one value per record:
a bool (True = met), or a float severity (0.0 = met, above = violated by so much, NaN = not applicable).
Any function of that shape is an expectation. A field such as ``"probs[1]"`` picks one element of a vector.
"""

import re
from collections.abc import Collection
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.columns import is_tensor

Floats = NDArray[np.float64]
Direction = Literal["increasing", "decreasing"]


class Expectation(Protocol):
    """What :class:`MFT`, :class:`INV` and :class:`DIR` take as ``expect=``."""

    def __call__(self, before: Batch, after: Batch, /) -> NDArray[Any]:
        """Judge every record; shape (rows,)."""


def same(*fields: str, tolerance: float = 0.0) -> Expectation:
    """Answer unchanged: texts and classes equal, numbers within ``tolerance`` (vectors: every element).

    Examples
    --------
    >>> asked = Batch.from_records([{"outputs": {"score": 0.9}}, {"outputs": {"score": 0.9}}], model="m")
    >>> answered = asked.with_outputs({"score": np.array([0.88, 0.5])})
    >>> same("score", tolerance=0.05)(asked, answered).round(2)
    array([0.  , 0.35])
    """
    names = fields or ("label",)

    def judge(before: Batch, after: Batch) -> Floats:
        worst = np.zeros(before.rows)
        for field in names:
            gap = _distance(_answer(before, field), _answer(after, field), field)
            worst = np.maximum(worst, np.where(gap <= tolerance, 0.0, gap - tolerance))  # NaN stays NaN
        return worst

    return judge


def equal(field: str = "label", *, to: object = None) -> Expectation:
    """Answer equals ``to``, or the case's own ``label.<field>`` when ``to`` is None."""

    def judge(before: Batch, after: Batch) -> Floats:
        return _distance(_target(before, field, to), _answer(after, field), field, graded=False)

    return judge


def not_equal(field: str = "label", *, to: object = None) -> Expectation:
    """Answer differs from ``to``, or from the case's own ``label.<field>`` when ``to`` is None."""

    def judge(before: Batch, after: Batch) -> Floats:
        gap = _distance(_target(before, field, to), _answer(after, field), field, graded=False)
        return np.where(np.isnan(gap), np.nan, (gap == 0.0).astype(np.float64))

    return judge


def changed(field: str = "label") -> Expectation:
    """Answer differs from the answer to the unchanged input."""

    def judge(before: Batch, after: Batch) -> Floats:
        gap = _distance(_answer(before, field), _answer(after, field), field, graded=False)
        return np.where(np.isnan(gap), np.nan, (gap == 0.0).astype(np.float64))

    return judge


def in_set(values: Collection[object], *, field: str = "label") -> Expectation:
    """Answer is one of ``values``."""
    allowed = set(values)

    def judge(before: Batch, after: Batch) -> NDArray[np.bool_]:  # noqa: ARG001 - an expectation takes both
        return np.array([value in allowed for value in _answer(after, field).tolist()], dtype=np.bool_)

    return judge


def within(field: str = "score", *, low: float = -np.inf, high: float = np.inf) -> Expectation:
    """Answer lies in [low, high]; the severity is the distance to it, 1.0 for NaN."""

    def judge(before: Batch, after: Batch) -> Floats:  # noqa: ARG001 - an expectation takes both
        values = _numbers(_answer(after, field), field)
        outside = np.maximum(np.maximum(low - values, values - high), 0.0)
        return np.where(np.isnan(values), 1.0, outside)

    return judge


def monotone(field: str = "score", *, direction: Direction, tolerance: float = 0.0) -> Expectation:
    """Answer moves in ``direction``, or at least not against it by more than ``tolerance``.

    Examples
    --------
    >>> asked = Batch.from_records([{"outputs": {"price": 10.0}}, {"outputs": {"price": 10.0}}], model="m")
    >>> answered = asked.with_outputs({"price": np.array([11.0, 7.0])})
    >>> monotone("price", direction="increasing")(asked, answered)
    array([0., 3.])
    """
    if direction not in ("increasing", "decreasing"):
        raise ValueError(f"direction must be 'increasing' or 'decreasing', got {direction!r}")
    sign = 1.0 if direction == "increasing" else -1.0

    def judge(before: Batch, after: Batch) -> Floats:
        was, now = (_numbers(_answer(batch, field), field) for batch in (before, after))
        against = sign * (was - now)
        return np.where(against <= tolerance, 0.0, against - tolerance)

    return judge


def severities(verdict: NDArray[Any], rows: int) -> Floats:
    """Read what an expectation returned as severities: 0.0 met, above violated, NaN not applicable.

    Raises
    ------
    ValueError
        If there is not one bool or number >= 0 per record.
    """
    values = np.asarray(verdict)
    if values.shape != (rows,):
        raise ValueError(
            f"an expectation returns one value per record: shape ({rows},) expected, got {values.shape}"
        )
    if values.dtype == np.bool_:
        return np.where(values, 0.0, 1.0)
    numbers = values.astype(np.float64)
    if (numbers < 0).any() or np.isinf(numbers).any():
        raise ValueError(f"severities must be finite and >= 0 (0.0 = met), got {numbers.tolist()[:10]}")
    return numbers


_ELEMENT = re.compile(r"(.+)\[(\d+)\]")


def _answer(batch: Batch, field: str) -> NDArray[Any]:
    if not batch.has(f"outputs.{field}") and (match := _ELEMENT.fullmatch(field)):
        vector = batch.tensor(f"outputs.{match[1]}", null=np.nan)  # (rows, classes)
        element: NDArray[Any] = vector[:, int(match[2])]
        return element
    return _column(batch, f"outputs.{field}")


def _target(before: Batch, field: str, to: object) -> NDArray[Any]:
    if to is None:
        return _column(before, f"label.{field}")
    return np.full(before.rows, to, dtype=object if isinstance(to, str) else None)


def _column(batch: Batch, name: str) -> NDArray[Any]:
    kind = batch.to_arrow().schema.field(name).type if batch.has(name) else None
    if kind is None or is_tensor(kind) or not batch.is_null(name).any():
        return batch.column(name) if kind is None or not is_tensor(kind) else batch.tensor(name, null=np.nan)
    return np.array(batch.to_arrow().column(name).to_pylist(), dtype=object)


def _numbers(values: NDArray[Any], field: str) -> Floats:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"numbers expected in {field!r}, got {values[:3].tolist()}") from error


def _distance(before: NDArray[Any], after: NDArray[Any], field: str, *, graded: bool = True) -> Floats:
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
