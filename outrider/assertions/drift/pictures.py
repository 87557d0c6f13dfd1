"""Distributions of reference and current as a few bars, for charts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .counting import ColumnCounts

Floats = NDArray[np.float64]
BARS = 30
CATEGORIES = 12
"""Maximum number of categories with a bar of their own; the others share one."""
_TAIL = 0.005


@dataclass(frozen=True, slots=True)
class Picture:
    """Shares of both windows in the same bars.

    Attributes
    ----------
    names
        Categories; empty for numbers.
    edges
        Ends of the bars of numbers, in the column's unit; the first and last bars include all values beyond.
    reference, current
        Shares, in [0, 1].
    """

    names: tuple[str, ...]
    edges: tuple[float, ...]
    reference: tuple[float, ...]
    current: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        return {
            "names": list(self.names),
            "edges": list(self.edges),
            "reference": list(self.reference),
            "current": list(self.current),
        }


def picture_of(counts: ColumnCounts) -> Picture:
    """Bars of a column."""
    one, two = counts.reference / counts.reference.sum(), counts.current / counts.current.sum()
    with np.errstate(over="ignore", invalid="ignore"):  # numbers near the end of doubles
        return _of_numbers(counts, one, two) if counts.is_ordered else _of_categories(counts, one, two)


def _of_numbers(counts: ColumnCounts, one: Floats, two: Floats) -> Picture:
    ends = [_end(counts, each, share) for each in (one, two) for share in (_TAIL, 1 - _TAIL)]
    edges = 2 * np.linspace(min(ends) / 2, max(ends) / 2, BARS + 1)
    if edges[0] == edges[-1]:
        edges = edges[0] + np.linspace(-0.5, 0.5, BARS + 1)
    at = np.column_stack([counts.lower, counts.upper]).reshape(-1)
    bars = []
    for each in (one, two):
        upto = np.cumsum(each)
        reached = np.interp(edges[1:-1], at, np.column_stack([upto - each, upto]).reshape(-1))
        reached = np.maximum.accumulate(
            np.clip(np.nan_to_num(reached), 0.0, 1.0)
        )  # cells narrower than rounding
        bars.append(np.diff(np.concatenate([[0.0], reached, [1.0]])))
    return Picture((), _rounded(edges), _rounded(bars[0]), _rounded(bars[1]))


def _end(counts: ColumnCounts, shares: Floats, share: float) -> float:
    cell = int(np.searchsorted(np.cumsum(shares), share * (1 - 1e-9)))
    ends = counts.lower if share < 0.5 else counts.upper
    return float(ends[min(cell, len(ends) - 1)])


def _of_categories(counts: ColumnCounts, one: Floats, two: Floats) -> Picture:
    order = np.argsort(-np.maximum(one, two), kind="stable")
    shown, rest = order[:CATEGORIES], order[CATEGORIES:]
    names = [counts.labels[i] for i in shown]
    bars = [each[shown].tolist() for each in (one, two)]
    if len(rest):
        names.append(f"{len(rest):,} others")
        bars = [[*bar, float(each[rest].sum())] for bar, each in zip(bars, (one, two), strict=True)]
    return Picture(tuple(names), (), _rounded(bars[0]), _rounded(bars[1]))


def _rounded(values: Any) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
