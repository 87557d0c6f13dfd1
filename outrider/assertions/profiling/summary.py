"""Figures of one profiled column for display."""

import math
from dataclasses import dataclass, replace

import numpy as np

from .cells import Floats
from .distinct import distinct
from .layout import ABSENT, MISTYPED, NULL, OTHER, ColumnLayout, Kind
from .profile import ColumnEstimates, Profile

RANKS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, slots=True)
class Category:
    """Category with its weight. ``is_new`` marks names outside the layout."""

    name: str
    weight: float
    is_new: bool


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """Figures of a column over some records.

    Shares refer to the weighted records whose schema has the column. Figures of fewer than ten entities are
    None or left out.
    """

    name: str
    kind: Kind
    rows: int
    weight: float
    nulls: float
    non_finite: float
    mistyped: float
    absent: float
    """Shares of nulls, non-finite numbers, values of another type, and (of all records) records without the
    column."""
    distinct: float | None
    """Estimated number of distinct values, standard error 3.3 %."""
    mean: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    """Approximate minimum and maximum: values around which the lowest and highest ten entities lie."""
    quantiles: tuple[float, ...] | None = None
    """Quantiles at ``RANKS``."""
    edges: tuple[float, ...] = ()
    """Smallest value of each bin of ``counts`` but the first."""
    counts: tuple[float, ...] = ()
    """Weight of each bin of a numeric column."""
    categories: tuple[Category, ...] = ()
    other: float = 0.0
    """Weight of all categories that are not named."""


def summaries(profile: Profile) -> tuple[ColumnSummary, ...]:
    """Figures of every column, in the order of the layout."""
    return tuple(_summary(profile, at) for at in range(len(profile.layout.columns)))


def _summary(profile: Profile, at: int) -> ColumnSummary:
    column, estimates = profile.layout.columns[at], profile.estimates[at]
    rows, weights = profile.counts_at(at)
    rest = weights[column.bins :]
    known = int(rows[: column.bins + 1].sum())
    there = float(weights.sum() - rest[ABSENT])
    is_number = column.kind == "numeric"
    found = ColumnSummary(
        column.name,
        column.kind,
        int(rows.sum() - rows[column.bins + ABSENT]),
        there,
        nulls=_share(rest[NULL], there),
        non_finite=_share(rest[OTHER], there) if is_number else 0.0,
        mistyped=_share(rest[MISTYPED], there),
        absent=_share(rest[ABSENT], there + rest[ABSENT]),
        distinct=min(distinct(estimates.registers), float(known)) if known else None,
    )
    bins = weights[: column.bins]
    return (
        _of_numbers(found, column, estimates, bins)
        if is_number
        else _of_categories(found, column, estimates, weights)
    )


def _of_numbers(
    found: ColumnSummary, column: ColumnLayout, estimates: ColumnEstimates, bins: Floats
) -> ColumnSummary:
    counted = replace(found, edges=tuple(column.edge_values().tolist()), counts=tuple(bins.tolist()))
    weight, first, second = estimates.sums.tolist()
    if not weight or not len(estimates.points.cells):
        return counted
    mean = first / weight
    values = estimates.points.quantiles(np.array([0.0, *RANKS, 1.0]), column.centre).tolist()
    return replace(
        counted,
        mean=column.centre + mean,
        deviation=math.sqrt(max(0.0, second / weight - mean * mean)),
        low=values[0],
        high=values[-1],
        quantiles=tuple(values[1:-1]),
    )


def _of_categories(
    found: ColumnSummary, column: ColumnLayout, estimates: ColumnEstimates, weights: Floats
) -> ColumnSummary:
    known = zip(column.categories, weights[: column.bins].tolist(), strict=True)
    named = [Category(name, weight, False) for name, weight in known if weight]
    named += [Category(name, weight, True) for name, weight in estimates.new.items()]
    other = float(weights[column.bins + OTHER]) - sum(estimates.new.values())
    return replace(found, categories=tuple(sorted(named, key=lambda one: -one.weight)), other=max(0.0, other))


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
