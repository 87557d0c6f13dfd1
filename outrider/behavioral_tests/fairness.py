"""Group metrics with intervals: selection, correctness and confidence."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import entity_codes
from outrider.assertions.statistics.group_rates import Limits, Sums, differences, shares, too_few

from .expect.reading import answer, column, numbers
from .group_figures import LEAST_ROWS, METRICS, UNLABELLED, GroupGap, GroupMetrics, GroupRate, Metric
from .grouping import check_classes, equals, groups, present

__all__ = [
    "LEAST_ROWS",
    "METRICS",
    "UNLABELLED",
    "GroupGap",
    "GroupMetrics",
    "GroupRate",
    "Metric",
    "group_metrics",
    "metrics_of_sums",
]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
GroupFigure = tuple[Sums, Callable[[float], Limits]]
"""Sums of each group, and a function that gives the figure with its interval at a confidence."""


def group_metrics(
    batch: Batch,
    *,
    by: str | Sequence[str],
    prediction: str = "label",
    positive: object = 1,
    label: str = "label",
    score: str | None = None,
) -> GroupMetrics:
    """Metrics of each group of records, with intervals.

    Records count by their ``weight`` (1 / probability of having been captured). A record without a prediction
    is ignored, one without a label counts only in the selection rate.

    Parameters
    ----------
    batch
        Answered records; with ``label.*`` all metrics, without only ``selection_rate``.
    by
        One or more columns (each occurring combination is a group): ``sex`` means ``inputs.sex``, else
        ``attrs.sex``; or a full name. Missing values are a group of their own.
    prediction, label
        Fields of ``outputs`` and ``label`` that are compared.
    positive
        Class that counts as selected; all other classes count as not selected.
    score
        Output with the probability of ``positive``, such as ``"score"`` or ``"probs[1]"``; required for
        ``calibration``.

    Returns
    -------
    GroupMetrics
        ``selection_rate`` P(selected); ``tpr`` P(selected | positive); ``fpr`` P(selected | not positive);
        ``ppv`` P(positive | selected); ``accuracy`` P(prediction = label); ``calibration`` mean score less
        share of positives, in [-1, 1], 0.0 is perfect.

    Notes
    -----
    Rates have the intervals of :func:`~outrider.assertions.statistics.group_rates.shares` (Wilson's, with an
    effective number of records where weights differ). Records with the same ``entity`` are not treated as
    independent: the variance is that between entities, and a group of fewer than ten (effectively) has the
    interval [0, 1] and is left out of gaps.

    Calibration is the difference of a mean and a share as if the two were independent; useful scores rise
    with the outcome, so the interval is conservative. Unlike the expected calibration error, calibration is
    not binned: binning biases small groups upwards, so that they would look worse.

    Raises
    ------
    KeyError
        If a column is missing; the message names it.

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
    entities = _entities(batch)
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
    figures: dict[Metric, GroupFigure] = {}
    for metric, (hits, within) in parts.items():
        whose = None if entities is None else entities[within]
        sums = Sums.of(hits[within], weights[within], codes[within], len(named), entities=whose)
        figures[metric] = sums, partial(_shares, sums)
    if calibrated is not None:
        scores, hits, within = calibrated
        within = within & ~np.isnan(scores)
        whose = None if entities is None else entities[within]
        sums = Sums.of(hits[within], weights[within], codes[within], len(named), entities=whose)
        means = _means_of(scores[within], weights[within], codes[within], len(named), entities=whose)
        figures["calibration"] = sums, _calibration_of(sums, means)
    rows = dict(zip(named, np.bincount(codes, minlength=len(named)).tolist(), strict=True))
    return _metrics(names, rows, figures)


def metrics_of_sums(by: Sequence[str], rows: Mapping[str, int], sums: Mapping[Metric, Sums]) -> GroupMetrics:
    """Group metrics from sums over records.

    Parameters
    ----------
    rows
        Number of records by group, in the order of the sums.
    sums
        Sums by metric; each array has one entry per group.
    """
    return _metrics(tuple(by), rows, {metric: (one, partial(_shares, one)) for metric, one in sums.items()})


def _metrics(
    by: tuple[str, ...], rows: Mapping[str, int], figures: Mapping[Metric, GroupFigure]
) -> GroupMetrics:
    rates: list[GroupRate] = []
    for metric, (sums, limits) in figures.items():
        found = limits(0.95)
        columns = (found.value.tolist(), found.low.tolist(), found.high.tolist(), sums.rows.tolist())
        rates += [
            GroupRate(group, metric, value, low, high, int(n))
            for group, value, low, high, n in zip(rows, *columns, strict=True)
        ]
    gaps = {
        metric: (np.where(too_few(sums), 0, sums.rows).astype(np.intp), limits)
        for metric, (sums, limits) in figures.items()
    }
    return GroupMetrics(by, rows, tuple(rates), gaps)


def _shares(sums: Sums, confidence: float) -> Limits:
    return shares(sums, confidence=confidence)


def _calibration_of(sums: Sums, means: Callable[[float], Limits]) -> Callable[[float], Limits]:
    return lambda confidence: differences(means(confidence), shares(sums, confidence=confidence))


def _means_of(
    scores: Floats,
    weights: Floats,
    codes: NDArray[np.intp],
    groups: int,
    *,
    entities: NDArray[np.intp] | None,
) -> Callable[[float], Limits]:
    """Weighted mean of each group, with Student's interval of the linearised variance."""
    from scipy.stats import t

    rows = np.bincount(codes, minlength=groups)
    total = np.bincount(codes, weights=weights, minlength=groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(codes, weights=weights * scores, minlength=groups) / total
        apart = weights * (scores - mean[codes])
        if entities is not None:  # records of one entity are off together
            pairs, inverse = np.unique(np.stack([codes, entities], axis=1), axis=0, return_inverse=True)
            apart = np.bincount(inverse.ravel(), weights=apart, minlength=len(pairs)).astype(np.float64)
            codes = pairs[:, 0]
            rows = np.bincount(codes, minlength=groups)
        squares = np.bincount(codes, weights=apart**2, minlength=groups)
        error = np.sqrt(squares * rows / np.maximum(rows - 1, 1)) / total

    def limits(confidence: float) -> Limits:
        half = np.where(rows > 1, error * t.ppf(0.5 + confidence / 2, np.maximum(rows - 1, 1)), 1.0)
        return Limits(mean, np.clip(mean - half, 0.0, 1.0), np.clip(mean + half, 0.0, 1.0))

    return limits


def _entities(batch: Batch) -> NDArray[np.intp] | None:
    """Index of each record's entity; None if each record has a distinct entity, or none has any."""
    codes, named = entity_codes(batch.arrow("entity"))
    alone = np.flatnonzero(codes < 0)
    if len(named) + len(alone) == len(codes):
        return None
    codes[alone] = len(named) + np.arange(len(alone))
    return codes.astype(np.intp)


def _known(batch: Batch, full: str) -> str:
    if not batch.has(full):
        there = ", ".join(each for each in batch.names if each.startswith("outputs.")) or "none"
        raise KeyError(f"no {full!r} among the answers; there are: {there}")
    return full
