"""Metrics by group, and a metric's gap between groups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.group_rates import Limits, differences, ratios

if TYPE_CHECKING:
    import pandas as pd

Metric = Literal["selection_rate", "tpr", "fpr", "ppv", "accuracy", "calibration"]
METRICS: tuple[Metric, ...] = get_args(Metric)
UNLABELLED: tuple[Metric, ...] = ("selection_rate",)
"""Metrics that need no labels."""
LEAST_ROWS = 30
"""Minimum number of records behind a group's metric; smaller groups are shown, but do not count in a gap."""


@dataclass(frozen=True, slots=True)
class GroupRate:
    """One metric of one group with its 95 % interval."""

    group: str
    """Group name such as ``sex=Male``; several columns are separated by a comma, a missing value is
    ``sex=(missing)``."""
    metric: Metric
    value: float
    """NaN without records; ``low`` and ``high`` are then the limits of the metric's range."""
    low: float
    high: float
    rows: int
    """Number of records behind the metric: for ``tpr`` the positive ones of the group, for ``ppv`` the
    selected ones."""


@dataclass(frozen=True, slots=True)
class GroupGap:
    """Difference and ratio between a metric's highest and lowest group.

    The intervals are simultaneous: 95 % for all pairs of groups together (Bonferroni), because the highest
    group is chosen from the same records.
    """

    metric: Metric
    value: float
    """Highest less lowest, in [0, 1]; NaN with fewer than two groups of sufficient size."""
    low: float
    high: float
    ratio: float
    """Lowest over highest, in [0, 1]; the "four-fifths rule" requires 0.8. NaN if the highest is 0."""
    ratio_low: float
    ratio_high: float
    highest: str
    lowest: str
    """Names of the lowest and highest group; empty with fewer than two groups of sufficient size."""
    left_out: tuple[str, ...] = ()
    """Groups with too few records."""


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """Metrics by group. ``rates`` has one entry per metric and group, groups in alphabetical order."""

    by: tuple[str, ...]
    rows: Mapping[str, int]
    rates: tuple[GroupRate, ...]
    _gaps: Mapping[Metric, tuple[NDArray[np.intp], Callable[[float], Limits]]]

    def of(self, metric: Metric) -> tuple[GroupRate, ...]:
        """One metric of all groups.

        Raises
        ------
        KeyError
            If the metric was not computed, for lack of labels or a score.
        """
        if metric not in self._gaps:
            raise KeyError(
                f"unknown metric {metric}, there are {', '.join(self._gaps)}; {metric} needs {_needs(metric)}"
            )
        return tuple(rate for rate in self.rates if rate.metric == metric)

    def gap(self, metric: Metric, *, least_rows: int = LEAST_ROWS) -> GroupGap:
        """Gap of one metric over groups of at least ``least_rows`` records."""
        rates = self.of(metric)
        rows, limits = self._gaps[metric]
        counted = np.flatnonzero(rows >= max(least_rows, 1))
        left_out = tuple(
            rate.group for rate, of_group in zip(rates, rows, strict=True) if of_group < max(least_rows, 1)
        )
        if len(counted) < 2:
            return GroupGap(metric, np.nan, 0.0, 1.0, np.nan, 0.0, 1.0, "", "", left_out)
        pairs = np.array(list(combinations(counted, 2)), dtype=np.intp)
        wide = limits(1.0 - 0.05 / len(pairs))
        one, other = _taken(wide, pairs[:, 0]), _taken(wide, pairs[:, 1])
        both = [differences(one, other), differences(other, one)]
        value = np.asarray(wide.value)
        top, bottom = counted[value[counted].argmax()], counted[value[counted].argmin()]
        if top == bottom:  # all are the same; a gap still has two ends
            bottom = counted[-1]
        ratio = (np.nan, 0.0, 1.0)
        if metric != "calibration":
            ratio = _ratio(ratios(one, other), ratios(other, one), float(value[bottom]), float(value[top]))
        return GroupGap(
            metric,
            float(value[top] - value[bottom]),
            max(0.0, max(float(each.low.max()) for each in both)),
            max(float(each.high.max()) for each in both),
            *ratio,
            rates[top].group,
            rates[bottom].group,
            left_out,
        )

    def without(self, metrics: Sequence[Metric]) -> "GroupMetrics":
        """Metrics without some of them."""
        kept = {name: gap for name, gap in self._gaps.items() if name not in metrics}
        return replace(
            self, rates=tuple(rate for rate in self.rates if rate.metric not in metrics), _gaps=kept
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per group: each metric's value, ``_low``, ``_high`` and ``_rows``."""
        import pandas as pd

        table: dict[str, dict[str, Any]] = {group: {"rows": rows} for group, rows in self.rows.items()}
        for rate in self.rates:
            name = rate.metric
            table[rate.group] |= {
                name: rate.value,
                f"{name}_low": rate.low,
                f"{name}_high": rate.high,
                f"{name}_rows": rate.rows,
            }
        return pd.DataFrame.from_dict(table, orient="index").rename_axis("group")


def _taken(limits: Limits, at: NDArray[np.intp]) -> Limits:
    return Limits(limits.value[at], limits.low[at], limits.high[at])


def _ratio(one: Limits, other: Limits, lowest: float, highest: float) -> tuple[float, float, float]:
    """Lowest over highest, with the simultaneous interval of the smallest ratio over all pairs."""
    low = min(float(np.fmin(one.low, 1.0).min()), float(np.fmin(other.low, 1.0).min()))
    high = min(float(one.high.min()), float(other.high.min()), 1.0)
    return (lowest / highest if highest > 0 else np.nan), low, high


def _needs(metric: Metric) -> str:
    if metric in UNLABELLED:
        return "predictions"
    return "labels and score=" if metric == "calibration" else "labels"
