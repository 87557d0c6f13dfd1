"""Sentences about a change: old and new value, in the column's unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .counting import ColumnCounts
from .evidence import ChangeEvidence
from .reading import Values

Floats = NDArray[np.float64]
QUANTILES = (0.05, 0.5, 0.95)
FEW_CATEGORIES = 50
"""Maximum number of categories of a column that may explain missing values."""
_MOSTLY = 0.8
_NAMED = 2
"""Maximum number of categories that a sentence names."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Values at 5, 50 and 95 % of both windows."""

    before: tuple[float, float, float]
    after: tuple[float, float, float]

    @classmethod
    def of(
        cls,
        counts: ColumnCounts,
        values: tuple[NDArray[Any], NDArray[Any]],
        weights: tuple[Floats | None, Floats | None],
    ) -> "Quantiles":
        """Exact quantiles; only values of the cells that contain them are sorted."""
        cells = zip((counts.reference, counts.current), values, weights, strict=True)
        found = [
            tuple(_quantile(share, each, one, weight, counts) for share in QUANTILES)
            for each, one, weight in cells
        ]
        return cls(found[0], found[1])  # type: ignore[arg-type]  # three quantiles each


def _quantile(
    share: float, cells: Floats, values: NDArray[Any], weights: Floats | None, counts: ColumnCounts
) -> float:
    upto = np.cumsum(cells)
    goal = share * upto[-1]
    cell = int(np.searchsorted(upto, goal * (1 - 1e-12)))
    lower, upper = counts.lower[cell], counts.upper[cell]
    # Rounding may put a value beyond the computed end of its cell.
    slack = 1e-9 * (abs(lower) + abs(upper))
    chosen = (values >= lower - slack) & (values <= upper + slack)
    inside = values[chosen].astype(np.float64)
    order = np.argsort(inside, kind="stable")
    mass = np.cumsum(np.ones(len(inside)) if weights is None else weights[chosen][order])
    before = upto[cell] - cells[cell]
    place = int(np.searchsorted(mass, (goal - before) * (1 - 1e-12)))
    return float(inside[order][min(place, len(inside) - 1)])


def shape_words(counts: ColumnCounts, quantiles: Quantiles | None, unit: str) -> str:
    """Sentence about a change of a distribution.

    Examples
    --------
    >>> shape_words(_toy(), Quantiles((20.0, 41.0, 60.0), (30.0, 57.0, 80.0)), "years")
    'median 41 → 57 years'
    """
    if quantiles is None:
        return _category_words(counts)
    (low, middle, high), (low2, middle2, high2) = quantiles.before, quantiles.after
    moves = abs(low2 - low), abs(middle2 - middle), abs(high2 - high)
    after = f" {unit}" if unit else ""
    if not any(moves):
        return _below_words(counts, unit)
    if moves[1] >= 0.5 * max(moves):
        return f"median {_number(middle)} → {_number(middle2)}{after}"
    if min(moves[0], moves[2]) >= 0.5 * max(moves):
        return f"5 % to 95 %: {_number(low)} to {_number(high)} → {_number(low2)} to {_number(high2)}{after}"
    if moves[2] > moves[0]:
        return f"95 % quantile {_number(high)} → {_number(high2)}{after}"
    return f"5 % quantile {_number(low)} → {_number(low2)}{after}"


def _toy() -> ColumnCounts:
    none = np.zeros(0)
    return ColumnCounts(
        True, none, none, none, none, (), none, (0, 0), none, none, (0, 0), (0, 0), none
    )  # fmt: skip


def _below_words(counts: ColumnCounts, unit: str) -> str:
    """Share of values up to the point of the greatest distance, as text."""
    one, two = (np.cumsum(each) / each.sum() for each in (counts.reference, counts.current))
    at = int(np.abs(one - two).argmax())
    after = f" {unit}" if unit else ""
    limit = _number(counts.lower[at] if counts.upper[at] > 0 else counts.upper[at])
    return f"values up to {limit}{after}: {percent(one[at])} → {percent(two[at])}"


def _category_words(counts: ColumnCounts) -> str:
    one, two = counts.reference / counts.reference.sum(), counts.current / counts.current.sum()
    moved = np.argsort(-np.abs(two - one), kind="stable")[:_NAMED]
    return ", ".join(f"`{counts.labels[i]}` {percent(one[i])} → {percent(two[i])}" for i in moved)


def missing_words(found: ChangeEvidence, where: str) -> str:
    """Change of the share of missing values, and their place."""
    words = f"nulls {percent(found.before)} → {percent(found.after)}"
    return f"{words}; {where}" if where else words


def in_order_of_words(drifting: Sequence[ChangeEvidence], *, is_number: bool) -> list[ChangeEvidence]:
    """Changes in the order in which a sentence names them.

    Largest excess over its floor first; for numbers the shape comes first.
    """
    return sorted(drifting, key=lambda one: (is_number and one.change != "shape", -one.distance / one.floor))


def unseen_words(counts: ColumnCounts, found: ChangeEvidence, ends: tuple[float, float], unit: str) -> str:
    """Change of the share of values that the reference never had.

    Parameters
    ----------
    ends
        Smallest and largest number of the reference.
    """
    if counts.is_ordered:
        after = f" {unit}" if unit else ""
        known_ends = f"{_number(ends[0])} to {_number(ends[1])}"
        return f"beyond the reference's {known_ends}{after}: {percent(found.before)} → {percent(found.after)}"
    new = {name for name, _ in counts.new}
    known = {_plain(label): label for label in counts.labels if label not in new}
    total = counts.current.sum()
    named = [
        f"`{name}` {percent(count / total)}"
        + (f" (`{known[_plain(name)]}` in other letters)" if _plain(name) in known else "")
        for name, count in counts.new[:_NAMED]
    ]
    more = counts.new_categories - len(named)
    return f"new categories {', '.join(named)}" + (f" and {more:,} more" if more else "")


def _plain(label: str) -> str:
    return "".join(label.casefold().split())


def missing_place(
    missing: tuple[NDArray[np.bool_], NDArray[np.bool_]], categories: Mapping[str, tuple[Values, Values]]
) -> str:
    """Category whose records lack the column's value more often than before.

    Empty if no single category accounts for most of them. ``missing`` holds the masks of records without a
    value, and ``categories`` the other columns, each of reference and current.
    """
    best, words = _MOSTLY, ""
    gone, rows_now = np.flatnonzero(missing[1]), len(missing[1])
    more = max(1.0, len(gone) - missing[0].mean() * rows_now)  # records beyond the former share
    for name, (one, two) in categories.items():
        holes = np.bincount(two.codes[gone], minlength=len(two.categories) + 1)[:-1]
        # Of a category with fewer holes than that, the excess is smaller still.
        if len(one.categories) > FEW_CATEGORIES or not len(holes) or holes.max() < best * more:
            continue
        labels, now = one.categories.to_pylist(), two.categories.to_pylist()
        rows = np.bincount(two.codes, minlength=len(now) + 1)
        at = int(holes.argmax())
        if now[at] not in labels:
            continue
        is_there = one.codes == labels.index(now[at])
        before = float(missing[0][is_there].mean()) if is_there.any() else 0.0
        own = (holes[at] - before * rows[at]) / more
        if own > best and rows[at] < _MOSTLY * rows_now:
            best, share = own, holes[at] / rows[at]
            words = f"`{name} = {now[at]}`: nulls {percent(before)} → {percent(share)}"
    return words


def percent(share: float) -> str:
    """Share in per cent, with two digits if small.

    Examples
    --------
    >>> percent(0.48), percent(0.0123), percent(0.00004), percent(0.0)
    ('48 %', '1.2 %', '0.004 %', '0 %')
    """
    value = 100 * share
    if value == 0 or abs(value) >= 10:
        return f"{value:.0f} %"
    return f"{float(f'{value:.2g}'):g} %" if abs(value) >= 1e-4 else f"{value:.1g} %"


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e4 or abs(value) >= 1e15 else f"{value:,.0f}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names of columns, at most ``most`` of them.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
