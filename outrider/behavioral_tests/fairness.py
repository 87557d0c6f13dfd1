"""Group metrics: how often a model selects, is right and is sure, group by group, with intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.group_rates import Limits, Sums, differences, ratios, shares

from .expect.reading import answer, column, numbers
from .grouping import check_classes, equals, groups, present

Metric = Literal["selection_rate", "tpr", "fpr", "ppv", "accuracy", "calibration"]
METRICS: tuple[Metric, ...] = get_args(Metric)
UNLABELLED: tuple[Metric, ...] = ("selection_rate",)
"""Metrics that need no label."""
LEAST_ROWS = 30
"""Groups on whose metric fewer records rest are shown, and do not count in a gap."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class GroupRate:
    """One metric of one group with its 95 % interval.

    Attributes
    ----------
    group
        ``sex=Male``; several columns are separated by a comma, a missing value is ``sex=(missing)``.
    value
        NaN where no record counts; ``low`` and ``high`` are then the ends of what is possible.
    rows
        Records that it rests on: for ``tpr`` the positive ones of the group, for ``ppv`` those selected.
    """

    group: str
    metric: Metric
    value: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Difference and ratio between the highest and the lowest group of a metric.

    The intervals are simultaneous: 95 % for all pairs of groups together (Bonferroni), because which group is
    highest was found in the same records.

    Attributes
    ----------
    value
        Highest less lowest, in [0, 1]; NaN with fewer than two groups that count.
    ratio
        Lowest over highest, in [0, 1]; the "four-fifths rule" asks for 0.8. NaN where the highest is 0.
    highest, lowest
        Groups; empty with fewer than two that count.
    left_out
        Groups that do not count because too few records of theirs are known.
    """

    metric: Metric
    value: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    highest: str
    lowest: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """Metrics by group; ``rates`` has one entry per metric and group, groups in alphabetical order."""

    by: tuple[str, ...]
    rows: Mapping[str, int]
    rates: tuple[GroupRate, ...]
    _gaps: Mapping[Metric, tuple[NDArray[np.intp], Callable[[float], Limits]]]

    def of(self, metric: Metric) -> tuple[GroupRate, ...]:
        """One metric of all groups.

        Raises
        ------
        KeyError
            If it was not computed: there were no labels or no score.
        """
        if metric not in self._gaps:
            raise KeyError(f"{metric} is not known: {', '.join(self._gaps)} are; it needs {_needs(metric)}")
        return tuple(rate for rate in self.rates if rate.metric == metric)

    def gap(self, metric: Metric, *, least_rows: int = LEAST_ROWS) -> Gap:
        """Gap of one metric over the groups on which it rests on ``least_rows`` records at least."""
        rates = self.of(metric)
        rows, limits = self._gaps[metric]
        counted = np.flatnonzero(rows >= max(least_rows, 1))
        left_out = tuple(
            rate.group for rate, of_group in zip(rates, rows, strict=True) if of_group < max(least_rows, 1)
        )
        if len(counted) < 2:
            return Gap(metric, np.nan, 0.0, 1.0, np.nan, 0.0, 1.0, "", "", left_out)
        pairs = np.array(list(combinations(counted, 2)), dtype=np.intp)
        wide = limits(1.0 - 0.05 / len(pairs))
        one, other = _taken(wide, pairs[:, 0]), _taken(wide, pairs[:, 1])
        both = [differences(one, other), differences(other, one)]
        value = np.asarray(wide.value)
        top, bottom = counted[value[counted].argmax()], counted[value[counted].argmin()]
        ratio = (np.nan, 0.0, 1.0)
        if metric != "calibration":
            ratio = _ratio(ratios(one, other), ratios(other, one), float(value[bottom]), float(value[top]))
        return Gap(
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
        """The same, but for some metrics."""
        kept = {name: gap for name, gap in self._gaps.items() if name not in metrics}
        return replace(
            self, rates=tuple(rate for rate in self.rates if rate.metric not in metrics), _gaps=kept
        )

    def to_pandas(self) -> pd.DataFrame:
        """One row per group; for every metric its value, ``_low``, ``_high`` and ``_rows``."""
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


def group_metrics(
    batch: Batch,
    *,
    by: str | Sequence[str],
    prediction: str = "label",
    positive: object = 1,
    label: str = "label",
    score: str | None = None,
) -> GroupMetrics:
    """Metrics of every group of records.

    Records count by their ``weight`` (1 / probability of having been captured). A record without a
    prediction counts nowhere, one without a label only in the selection rate.

    Parameters
    ----------
    batch
        Answered records; with ``label.*`` all metrics, without only ``selection_rate``.
    by
        One column or several (every combination that occurs is a group): ``sex`` is ``inputs.sex``, else
        ``attrs.sex``; or a full name. Missing values are a group of their own.
    prediction, label
        Fields of ``outputs`` and ``label`` that are compared.
    positive
        The class that is a selection; all others are not, however many classes there are.
    score
        Output that is the probability of ``positive``, such as ``"score"`` or ``"probs[1]"``: for
        ``calibration``.

    Returns
    -------
    GroupMetrics
        ``selection_rate`` P(selected); ``tpr`` P(selected | positive); ``fpr`` P(selected | not positive);
        ``ppv`` P(positive | selected); ``accuracy`` P(prediction = label); ``calibration`` mean score less
        share of positives, in [-1, 1], 0.0 is perfect.

    Notes
    -----
    Rates have the intervals of :func:`~outrider.assertions.group_rates.shares` (Wilson's, with an effective
    number of records where weights differ). Calibration is the difference of a mean and a share as if the two
    were independent; scores that are worth anything rise with the outcome, so the interval is wider than it
    need be, never too narrow. Calibration is not binned, as the expected calibration error is: that is biased
    upwards the more, the smaller a group is, so that small groups would look worse than they are.

    Raises
    ------
    KeyError
        Naming a column that is not there.

    Examples
    --------
    >>> batch = Batch.from_columns(
    ...     {"inputs.sex": ["f", "f", "m", "m"], "outputs.label": [0, 1, 1, 1], "label.label": [0, 1, 0, 1]},
    ...     model="m")
    >>> found = group_metrics(batch, by="sex")
    >>> [(rate.group, rate.value) for rate in found.of("selection_rate")]
    [('sex=f', 0.5), ('sex=m', 1.0)]
    >>> found.gap("accuracy", least_rows=1).value
    0.5
    """
    names = (by,) if isinstance(by, str) else tuple(by)
    named, codes = groups(batch, names)
    weights = batch.column("weight", null=1.0)
    predicted = column(batch, _known(batch, f"outputs.{prediction}"))
    answered = present(predicted)
    selected = equals(predicted, positive) & answered
    parts: dict[Metric, tuple[Bools, Bools]] = {"selection_rate": (selected, answered)}
    calibrated = None
    truth = column(batch, f"label.{label}") if batch.has(f"label.{label}") else None
    check_classes(predicted[answered], truth, positive, found=bool(selected.any()))
    if truth is not None:
        known = answered & present(truth)
        is_positive = equals(truth, positive) & known
        right = equals(predicted, truth)
        parts |= {
            "tpr": (selected, is_positive),
            "fpr": (selected, known & ~is_positive),
            "ppv": (is_positive, selected & known),
            "accuracy": (right, known),
        }
        if score is not None:
            calibrated = (numbers(answer(batch, score, original=batch), score), is_positive, known)
    gaps: dict[Metric, tuple[NDArray[np.intp], Callable[[float], Limits]]] = {}
    for metric, (hits, within) in parts.items():
        sums = Sums.of(hits[within], weights[within], codes[within], len(named))
        gaps[metric] = (sums.rows.astype(np.intp), _shares_of(sums))
    if calibrated is not None:
        scores, hits, within = calibrated
        within = within & ~np.isnan(scores)
        sums = Sums.of(hits[within], weights[within], codes[within], len(named))
        means = _means_of(scores[within], weights[within], codes[within], len(named))
        gaps["calibration"] = (sums.rows.astype(np.intp), _calibration_of(sums, means))
    rows = dict(zip(named, np.bincount(codes, minlength=len(named)).tolist(), strict=True))
    rates = tuple(
        GroupRate(
            group, metric, float(found.value[at]), float(found.low[at]), float(found.high[at]), int(of[at])
        )
        for metric, (of, limits) in gaps.items()
        for found in (limits(0.95),)
        for at, group in enumerate(named)
    )
    return GroupMetrics(names, rows, rates, gaps)


def _shares_of(sums: Sums) -> Callable[[float], Limits]:
    return lambda confidence: shares(sums, confidence=confidence)


def _calibration_of(sums: Sums, means: Callable[[float], Limits]) -> Callable[[float], Limits]:
    return lambda confidence: differences(means(confidence), shares(sums, confidence=confidence))


def _means_of(
    scores: Floats, weights: Floats, codes: NDArray[np.intp], groups: int
) -> Callable[[float], Limits]:
    """Weighted mean of each group with Student's interval of the linearised variance."""
    from scipy.stats import t

    rows = np.bincount(codes, minlength=groups)
    total = np.bincount(codes, weights=weights, minlength=groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(codes, weights=weights * scores, minlength=groups) / total
        squares = np.bincount(codes, weights=(weights * (scores - mean[codes])) ** 2, minlength=groups)
        error = np.sqrt(squares * rows / np.maximum(rows - 1, 1)) / total

    def limits(confidence: float) -> Limits:
        half = np.where(rows > 1, error * t.ppf(0.5 + confidence / 2, np.maximum(rows - 1, 1)), 1.0)
        return Limits(mean, np.clip(mean - half, 0.0, 1.0), np.clip(mean + half, 0.0, 1.0))

    return limits


def _known(batch: Batch, full: str) -> str:
    if not batch.has(full):
        there = ", ".join(each for each in batch.names if each.startswith("outputs.")) or "none"
        raise KeyError(f"no {full!r} among the answers; there are: {there}")
    return full


def _taken(limits: Limits, at: NDArray[np.intp]) -> Limits:
    return Limits(limits.value[at], limits.low[at], limits.high[at])


def _ratio(one: Limits, other: Limits, lowest: float, highest: float) -> tuple[float, float, float]:
    """Lowest over highest; the simultaneous interval of the smallest ratio of all pairs."""
    low = min(float(np.fmin(one.low, 1.0).min()), float(np.fmin(other.low, 1.0).min()))
    high = min(float(one.high.min()), float(other.high.min()), 1.0)
    return (lowest / highest if highest > 0 else np.nan), low, high


def _needs(metric: Metric) -> str:
    if metric in UNLABELLED:
        return "predictions"
    return "labels and score=" if metric == "calibration" else "labels"
