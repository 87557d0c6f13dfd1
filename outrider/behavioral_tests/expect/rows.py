"""Expectations of single answers and of pairs of answers."""

from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.matching import class_numbers, matches

from .reading import (
    Floats,
    answer,
    check_kinds,
    column,
    difference,
    distance,
    excess,
    judged,
    missing,
    numbers,
    target,
)
from .rule import Rule, named

Direction = Literal["increasing", "decreasing"]


@named
def same(*fields: str, tolerance: float = 0.0) -> Rule:
    """Expect an unchanged answer.

    Texts and classes must be equal, numbers equal within ``tolerance`` (for vectors each element).

    Examples
    --------
    >>> asked = Batch.from_records([{"outputs": {"score": 0.9}}, {"outputs": {"score": 0.9}}], model="m")
    >>> answered = asked.with_outputs({"score": np.array([0.88, 0.5])})
    >>> same("score", tolerance=0.05)(asked, answered).round(2)
    array([0.  , 0.35])
    """
    names = fields or ("label",)

    def judge(before: Batch, after: Batch) -> Floats:
        worst = np.full(before.rows, np.nan)
        for field in names:
            was, now = _answers(before, after, field)
            worst = np.fmax(worst, judged(excess(distance(was, now, field), tolerance), was, now))
        return worst

    return Rule(judge)


def _answers(before: Batch, after: Batch, field: str) -> tuple[NDArray[Any], NDArray[Any]]:
    return answer(before, field, original=before), answer(after, field, original=before)


@named
def invariant(field: str = "label", *, scores: str, tolerance: float = 0.0) -> Rule:
    """Expect an unchanged class, or its score within ``tolerance``.

    The score is that of the original class. As in CheckList's ``INV``, a flip between two almost equally
    likely classes is not a failure.

    Parameters
    ----------
    field
        Output with the class number.
    scores
        Output with one score per class, shape (rows, classes).
    """

    def judge(before: Batch, after: Batch) -> Floats:
        was, now = _answers(before, after, field)
        flipped = distance(was, now, field, graded=False)
        name = f"{scores}[{field}]"
        moved = difference(*(numbers(each, name) for each in _answers(before, after, name)))
        slack = np.where(np.isnan(moved), 1.0, excess(np.abs(moved), tolerance))  # no score excuses nothing
        return judged(np.where(flipped == 0.0, 0.0, slack), was, now)

    return Rule(judge)


@named
def equal(field: str = "label", *, to: object = None) -> Rule:
    """Expect the answer ``to``, or the case's ``label.<field>`` if None."""
    return _against(field, to, is_wanted=True)


@named
def not_equal(field: str = "label", *, to: object = None) -> Rule:
    """Expect an answer other than ``to`` or the case's label.

    ``label.<field>`` is used if ``to`` is None.
    """
    return _against(field, to, is_wanted=False)


def _against(field: str, to: object, *, is_wanted: bool) -> Rule:
    def judge(before: Batch, after: Batch) -> Floats:
        known, given = target(before, field, to), column(after, f"outputs.{field}")
        check_kinds(known, given, field, spelled=True)
        return judged((matches(given, known) != is_wanted).astype(np.float64), known, given)

    return Rule(judge)


@named
def changed(field: str = "label") -> Rule:
    """Expect an answer that differs from that to the unchanged input."""

    def judge(before: Batch, after: Batch) -> Floats:
        was, now = _answers(before, after, field)
        return judged((distance(was, now, field) == 0.0).astype(np.float64), was, now)

    return Rule(judge)


@named
def in_set(values: Collection[object], *, field: str = "label") -> Rule:
    """Expect one of ``values`` as the answer. A missing answer is allowed only if None is among them."""
    allowed = set(values)
    listed = np.array(sorted(allowed, key=repr), dtype=object)
    known = [value for value in listed if value is not None]

    def judge(before: Batch, after: Batch) -> NDArray[np.bool_]:
        given = answer(after, field, original=before)
        check_kinds(listed, given, field, spelled=True)
        absent = missing(given)
        found = class_numbers(given, known) >= 0
        return np.where(absent, None in allowed, found)

    return Rule(judge)


@named
def within(field: str = "score", *, low: float | None = None, high: float | None = None) -> Rule:
    """Expect a number in [low, high]. The severity is the distance from that range, 1.0 for NaN."""
    lowest, highest = (-np.inf if low is None else low), (np.inf if high is None else high)

    def judge(before: Batch, after: Batch) -> Floats:
        values = numbers(answer(after, field, original=before), field)
        outside = np.maximum(lowest - values, values - highest)
        return np.where(np.isnan(values), 1.0, excess(outside))

    return Rule(judge)


@named
def monotone(
    field: str = "score",
    *,
    direction: Direction,
    tolerance: float = 0.0,
    bounds: tuple[float, float] | None = None,
) -> Rule:
    """Expect an answer that moves in ``direction``.

    A change against it by up to ``tolerance`` is allowed.

    Parameters
    ----------
    field
        Output, such as ``"price"``, ``"probs[1]"`` or ``"probs[label]"`` (the original's class).
    bounds
        Minimum and maximum possible value, such as (0, 1). A row whose original is too close to a bound to
        change against ``direction`` by more than ``tolerance`` is not applicable, as in CheckList's
        ``monotonic``.

    Examples
    --------
    >>> asked = Batch.from_records([{"outputs": {"price": 10.0}}, {"outputs": {"price": 10.0}}], model="m")
    >>> answered = asked.with_outputs({"price": np.array([11.0, 7.0])})
    >>> monotone("price", direction="increasing")(asked, answered)
    array([0., 3.])
    """
    sign = sign_of(direction)

    def judge(before: Batch, after: Batch) -> Floats:
        was, now = (numbers(each, field) for each in _answers(before, after, field))
        severity = excess(-sign * difference(was, now), tolerance)
        if bounds is not None:
            low, high = bounds
            cannot = was <= low + tolerance if sign > 0 else was >= high - tolerance
            severity = np.where(cannot, np.nan, severity)
        return judged(severity, was, now)

    return Rule(judge)


@named
def shift(weights: Mapping[str, float], *, direction: Direction, tolerance: float = 0.0) -> Rule:
    """Expect a weighted sum of answers to move in ``direction``.

    A change against it by up to ``tolerance`` is allowed.

    Parameters
    ----------
    weights
        Weight by field, such as ``{"probs[2]": 1, "probs[0]": -1}`` for "more positive".
    """
    sign = sign_of(direction)
    if not weights:
        raise ValueError("shift needs at least one field with its weight, got none")

    def judge(before: Batch, after: Batch) -> Floats:
        moved, all_was, all_now = np.zeros((3, before.rows))
        for field, weight in weights.items():
            was, now = (numbers(each, field) for each in _answers(before, after, field))
            moved = moved + weight * difference(was, now)
            all_was = np.where(np.isnan(was), np.nan, all_was)
            all_now = np.where(np.isnan(now), np.nan, all_now)
        return judged(excess(-sign * moved, tolerance), all_was, all_now)

    return Rule(judge)


def sign_of(direction: Direction) -> float:
    """Sign of a direction: 1.0 for increasing, -1.0 for decreasing."""
    if direction not in ("increasing", "decreasing"):
        raise ValueError(f"direction must be 'increasing' or 'decreasing', got {direction!r}")
    return 1.0 if direction == "increasing" else -1.0
