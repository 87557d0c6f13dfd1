"""Expectations of single answers and of pairs of answers."""

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .reading import Floats, answer, column, distance, numbers, target
from .rule import Rule, named

Direction = Literal["increasing", "decreasing"]


@named
def same(*fields: str, tolerance: float = 0.0) -> Rule:
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
            gap = distance(
                answer(before, field, original=before), answer(after, field, original=before), field
            )
            worst = np.maximum(worst, np.where(gap <= tolerance, 0.0, gap - tolerance))  # NaN stays NaN
        return worst

    return Rule(judge)


@named
def invariant(field: str = "label", *, scores: str, tolerance: float = 0.0) -> Rule:
    """Class unchanged, or the score of the original class within ``tolerance`` of what it was.

    CheckList's ``INV``: a class that flips on the edge between two equally likely ones is no failure.

    Parameters
    ----------
    field
        Output with the class number.
    scores
        Output with one score per class, shape (rows, classes).
    """

    def judge(before: Batch, after: Batch) -> Floats:
        flipped = distance(
            answer(before, field, original=before), answer(after, field, original=before), field, graded=False
        )
        name = f"{scores}[{field}]"
        was, now = (numbers(answer(each, name, original=before), name) for each in (before, after))
        gap = np.abs(now - was)
        return np.where(flipped == 0.0, 0.0, np.where(gap <= tolerance, 0.0, gap - tolerance))

    return Rule(judge)


@named
def equal(field: str = "label", *, to: object = None) -> Rule:
    """Answer equals ``to``, or the case's own ``label.<field>`` when ``to`` is None."""

    def judge(before: Batch, after: Batch) -> Floats:
        return distance(target(before, field, to), column(after, f"outputs.{field}"), field, graded=False)

    return Rule(judge)


@named
def not_equal(field: str = "label", *, to: object = None) -> Rule:
    """Answer differs from ``to``, or from the case's own ``label.<field>`` when ``to`` is None."""

    def judge(before: Batch, after: Batch) -> Floats:
        gap = distance(target(before, field, to), column(after, f"outputs.{field}"), field, graded=False)
        return np.where(np.isnan(gap), np.nan, (gap == 0.0).astype(np.float64))

    return Rule(judge)


@named
def changed(field: str = "label") -> Rule:
    """Answer differs from the answer to the unchanged input."""

    def judge(before: Batch, after: Batch) -> Floats:
        gap = distance(
            answer(before, field, original=before), answer(after, field, original=before), field, graded=False
        )
        return np.where(np.isnan(gap), np.nan, (gap == 0.0).astype(np.float64))

    return Rule(judge)


@named
def in_set(values: Collection[object], *, field: str = "label") -> Rule:
    """Answer is one of ``values``."""
    allowed = set(values)

    def judge(before: Batch, after: Batch) -> NDArray[np.bool_]:
        given = answer(after, field, original=before).tolist()
        return np.array([value in allowed for value in given], dtype=np.bool_)

    return Rule(judge)


@named
def within(field: str = "score", *, low: float | None = None, high: float | None = None) -> Rule:
    """Answer lies in [low, high]; the severity is the distance to it, 1.0 for NaN."""
    lowest, highest = (-np.inf if low is None else low), (np.inf if high is None else high)

    def judge(before: Batch, after: Batch) -> Floats:
        values = numbers(answer(after, field, original=before), field)
        outside = np.maximum(np.maximum(lowest - values, values - highest), 0.0)
        return np.where(np.isnan(values), 1.0, outside)

    return Rule(judge)


@named
def monotone(
    field: str = "score",
    *,
    direction: Direction,
    tolerance: float = 0.0,
    bounds: tuple[float, float] | None = None,
) -> Rule:
    """Answer moves in ``direction``, or at least not against it by more than ``tolerance``.

    Parameters
    ----------
    field
        Output, such as ``"price"``, ``"probs[1]"`` or ``"probs[label]"`` (the original's class).
    bounds
        Lowest and highest value there is, such as (0, 1). A row whose original lies so near to the bound that
        it could not move against ``direction`` by more than ``tolerance`` is then not applicable, as in
        CheckList's ``monotonic``.

    Examples
    --------
    >>> asked = Batch.from_records([{"outputs": {"price": 10.0}}, {"outputs": {"price": 10.0}}], model="m")
    >>> answered = asked.with_outputs({"price": np.array([11.0, 7.0])})
    >>> monotone("price", direction="increasing")(asked, answered)
    array([0., 3.])
    """
    sign = _sign(direction)

    def judge(before: Batch, after: Batch) -> Floats:
        was, now = (numbers(answer(each, field, original=before), field) for each in (before, after))
        against = sign * (was - now)
        severity = np.where(against <= tolerance, 0.0, against - tolerance)
        if bounds is None:
            return severity
        low, high = bounds
        cannot = was <= low + tolerance if sign > 0 else was >= high - tolerance
        return np.where(cannot, np.nan, severity)

    return Rule(judge)


@named
def shift(weights: Mapping[str, float], *, direction: Direction, tolerance: float = 0.0) -> Rule:
    """A weighted sum of answers moves in ``direction``, or not against it by more than ``tolerance``.

    Parameters
    ----------
    weights
        Weight by field, such as ``{"probs[2]": 1, "probs[0]": -1}`` for "more positive".
    """
    sign = _sign(direction)
    if not weights:
        raise ValueError("shift needs at least one field with its weight, got none")

    def judge(before: Batch, after: Batch) -> Floats:
        moved = np.zeros(before.rows)
        for field, weight in weights.items():
            was, now = (numbers(answer(each, field, original=before), field) for each in (before, after))
            moved = moved + weight * (now - was)
        against = -sign * moved
        return np.where(against <= tolerance, 0.0, against - tolerance)

    return Rule(judge)


def _sign(direction: Direction) -> float:
    if direction not in ("increasing", "decreasing"):
        raise ValueError(f"direction must be 'increasing' or 'decreasing', got {direction!r}")
    return 1.0 if direction == "increasing" else -1.0
