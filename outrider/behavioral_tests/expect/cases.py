"""Expectations of whole cases.

All answers to the examples of a case are judged together, the original's first. A case whose first answer is
missing is not applicable; if another answer is missing, it failed.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .reading import Floats, answer, difference, distance, excess, judged, missing, numbers
from .rows import Direction, sign_of
from .rule import Rule, named

Ints = NDArray[np.intp]


@named
def agree(field: str = "label") -> Rule:
    """Expect equal answers within a case.

    The severity is the share of the other answers that differ from the first.

    Examples
    --------
    >>> answered = Batch.from_records([{"outputs": {"label": label}} for label in "aaabac"], model="m")
    >>> agree()(answered, np.array([0, 0, 1, 1, 1, 1])).round(2)
    array([0.  , 0.67])
    """

    def judge(examples: Batch, case: Ints) -> Floats:
        values = answer(examples, field, original=examples)
        first = _first(case)
        differs = judged(
            distance(values[first[case]], values, field, graded=False), values[first[case]], values
        )
        others = np.bincount(case) - 1
        return np.where(np.isnan(differs[first]), np.nan, _sum(differs, first) / np.maximum(others, 1))

    return Rule(judge, "case")


@named
def spread(field: str = "score", *, at_most: float) -> Rule:
    """Expect answers of a case within ``at_most`` of each other. Compared are the largest and the smallest.

    Examples
    --------
    >>> answered = Batch.from_records([{"outputs": {"score": score}} for score in (0.5, 0.9, 0.4)], model="m")
    >>> spread(at_most=0.1)(answered, np.array([0, 0, 0])).round(2)
    array([0.4])
    """
    if at_most < 0:
        raise ValueError(f"at_most must be >= 0, got {at_most}")

    def judge(examples: Batch, case: Ints) -> Floats:
        values = numbers(answer(examples, field, original=examples), field)
        first = _first(case)
        gap = difference(np.fmin.reduceat(values, first), np.fmax.reduceat(values, first))
        return _of_cases(excess(gap, at_most), values, first)

    return Rule(judge, "case")


@named
def ordered(field: str = "score", *, direction: Direction, tolerance: float = 0.0) -> Rule:
    """Expect a case's answers to move in ``direction`` only.

    Examples are compared in their written order; a step against ``direction`` by up to ``tolerance`` is
    allowed. Useful for cases of increasing strength: ``["I like it", "I like it a lot", "I love it"]``.

    Examples
    --------
    >>> records = [{"outputs": {"score": score}} for score in (0.5, 0.75, 0.5)]
    >>> answered = Batch.from_records(records, model="m")
    >>> ordered(direction="increasing")(answered, np.array([0, 0, 0]))
    array([0.25])
    """
    sign = sign_of(direction)

    def judge(examples: Batch, case: Ints) -> Floats:
        values = numbers(answer(examples, field, original=examples), field)
        first = _first(case)
        against = np.zeros(len(values))
        against[1:] = -sign * difference(values[:-1], values[1:])
        against[first] = 0.0  # the step into a case is none of it
        worst = np.fmax.reduceat(excess(against, tolerance), first)
        return _of_cases(worst, values, first)

    return Rule(judge, "case")


def _first(case: Ints) -> Ints:
    """Row of each case's first example."""
    return np.flatnonzero(np.diff(case, prepend=-1)).astype(np.intp)


def _sum(values: Floats, first: Ints) -> Floats:
    total: Floats = np.add.reduceat(np.nan_to_num(values), first)
    return total


def _of_cases(severity: Floats, values: NDArray[Any], first: Ints) -> Floats:
    """Severities of cases: 1.0 if an answer is missing, NaN if it is the first one."""
    absent = missing(values)
    lacking = np.logical_or.reduceat(absent, first)
    return np.where(absent[first], np.nan, np.where(lacking, 1.0, severity))
