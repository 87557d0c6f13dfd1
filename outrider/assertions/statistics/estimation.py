"""Inverse-probability-weighted accuracy and precision, with intervals, from selected labels."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .loss_bounds import FloatOrNull
from .wilson import wilson_limits

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

Method = Literal["weighted", "none"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Share of a population, estimated from labels.

    Attributes
    ----------
    value
        In [0, 1]; ``nan`` without a label.
    low, high
        Confidence interval; 0 and 1 without a label.
    labels
        Number of labels used.
    effective
        Equivalent number of labels from uniform random draws.
    method
        ``weighted``: labels by their weights. ``none``: no label has a weight.
    """

    value: FloatOrNull
    low: float
    high: float
    labels: int
    effective: float
    method: Method


def selection_weights(
    probability: ArrayLike,
    population: ArrayLike,
    *,
    floor: ArrayLike | None = None,
    rounds: ArrayLike | None = None,
    open_to: ArrayLike | None = None,
) -> Floats:
    """Inverse-probability weights of picks, in order of their choice.

    Even draws give 1.0.

    Parameters
    ----------
    probability
        Probability of each pick among the records left, as :class:`~outrider.assertions.Selection` reports
        it.
    population
        Number of records left before each pick.
    floor
        Minimum probability of any record at each draw, times ``population``, as ``Selection`` reports it: a
        draw that could hardly have picked some records says little about all, and counts little. 0.0 for a
        draw that could not have picked some records. Default: all draws count equally.
    rounds
        Round of each pick, 0, 1 …, non-decreasing; default: a single round.
    open_to
        Shape (picks, rounds): rounds in which that record was available, unless it was picked before. Traffic
        arrives between rounds, so later records had fewer chances. Default: all rounds chose from the same
        records.

    Returns
    -------
    ndarray
        Shape (picks,), >= 0, with expectation 1 if all rounds chose from the same records; 0.0 if no draw
        could have picked every record.

    Notes
    -----
    Each draw m gives an unbiased estimate of a total: the labels known by then, plus y / q of its pick. Their
    mean by constants c_m is unbiased too (Des Raj 1956). The c_m are chosen such that a record with the floor
    probability in all draws weighs the reciprocal of its inclusion probability (Horvitz and Thompson 1952), 1
    / (1 - prod(1 - floor_m / left_m)), whenever it was picked. With a floor of 1 and one round this is
    R_LURE.

    References
    ----------
    Farquhar, Gal & Rainforth, "On Statistical Bias in Active Learning", ICLR 2021, eq. 6. Conditional on the
    past, so it holds for policies that learn from labels. Des Raj, "Some estimators in sampling with varying
    probabilities without replacement", JASA 51, 1956.
    """
    q = np.asarray(probability, dtype=np.float64)
    left = np.asarray(population, dtype=np.float64)
    if not len(q):
        return np.zeros(0)
    least = np.ones(len(q)) if floor is None else np.clip(np.asarray(floor, dtype=np.float64), 0.0, 1.0)
    least = np.where((q > 1.0 - 1e-12) & (left > 1.0), 0.0, least)  # nothing was left to chance
    number = np.zeros(len(q), dtype=np.intp) if rounds is None else np.asarray(rounds, dtype=np.intp)
    last = int(number[-1]) + 1
    stood = np.ones((len(q), last), dtype=np.bool_) if open_to is None else np.array(open_to, dtype=np.bool_)
    # Logarithm of the chance that a draw passes over a record which has the floor alone.
    passed = np.log1p(-np.minimum(least / left, 1.0 - 1e-12))
    by_round = np.bincount(number, weights=passed, minlength=last)
    so_far = np.cumsum(passed)
    rest = so_far[np.searchsorted(number, number, side="right") - 1] - so_far
    rest += (stood & (np.arange(last) > number[:, None])) @ by_round
    stood[np.arange(len(q)), number] = True
    known_later = -np.expm1(rest)
    weights = known_later + (1.0 - known_later) * least / (left * q)
    included = -np.expm1(stood @ by_round)
    scale = len(q) / left[0]
    found: Floats = np.divide(weights * scale, included, out=np.zeros(len(q)), where=included > 0)
    return found


def certain_picks(probability: ArrayLike, population: ArrayLike) -> Bools:
    """Mask of the picks that were almost certain.

    Such a record's label is known, but represents no other record.
    """
    q = np.asarray(probability, dtype=np.float64)
    return np.asarray((q > 0.5) & (np.asarray(population) * q > 2.0))


def estimate_share(
    hits: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    within: ArrayLike | None = None,
    certain: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Share of a population with a property, estimated from weighted labels.

    Accuracy, or the precision of an assertion.

    Parameters
    ----------
    hits
        Whether each label has the property, shape (labels,).
    weights
        Weights from :func:`selection_weights`; None is a uniform sample.
    within
        Mask of the labels in the subpopulation, for example those on which an assertion fired; None is all.
    certain
        Mask from :func:`certain_picks`: such labels count as known records and represent no others. A
        subpopulation without any other label is not estimated.

    Notes
    -----
    Hájek's ratio estimator. The interval is Wilson's with an effective sample size: the smaller of Kish's
    (weights alone) and that of the linearised variance (weights where the misses are), with Student's
    quantile because the variance is itself estimated. Each limit adds one label of the largest weight, a hit
    for the upper and a miss for the lower: records that a policy rarely picks have the largest weights.
    """
    y = np.asarray(hits, dtype=np.float64)
    w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    if len(w) != len(y):
        raise ValueError(f"weights must have one value per label, {len(y)}, got {len(w)}")
    inside = np.ones(len(y), dtype=np.bool_) if within is None else np.asarray(within, dtype=np.bool_)
    sure = np.zeros(len(y), dtype=np.bool_) if certain is None else np.asarray(certain, dtype=np.bool_)
    drawn, known = inside & ~sure, inside & sure
    heaviest = 0.0 if weights is None else float(w[drawn].max(initial=0.0))
    found = _share(y[drawn], w[drawn], heaviest, confidence)
    mass = float(w[known].sum())
    if not mass > 0 or found.method == "none":
        return found
    share, by_chance = _mean(y[known], w[known]), float(w[drawn].sum()) / float(w[inside].sum())
    value, low, high = (
        by_chance * end + (1.0 - by_chance) * share for end in (found.value, found.low, found.high)
    )
    return Estimate(value, low, high, int(inside.sum()), found.effective, "weighted")


def _mean(y: Floats, w: Floats) -> float:
    counted = y[w > 0]
    if (counted == counted[0]).all():  # exactly, and not 1 - 1e-16
        return float(counted[0])
    return float(w @ y) / float(w.sum())


def _share(y: Floats, w: Floats, extra: float, confidence: float) -> Estimate:
    total = float(w.sum())
    if not total > 0:
        return Estimate(float("nan"), 0.0, 1.0, 0, 0.0, "none")
    low, _ = _limits(np.append(y, 0.0), np.append(w, extra), confidence)
    _, high = _limits(np.append(y, 1.0), np.append(w, extra), confidence)
    value = _mean(y, w)
    # At the ends rounding must not push a limit past the share itself.
    return Estimate(value, min(low, value), max(high, value), len(y), _effective(y, w), "weighted")


def _effective(y: Floats, w: Floats) -> float:
    kish = _kish(w)
    counted = y[w > 0]
    if (counted == counted[0]).all():  # exactly: a rounded share of 1 + 1e-16 has a variance of nonsense
        return kish
    value = float(w @ y) / float(w.sum())
    n = int((w > 0).sum())
    spread = float((w * w) @ (y - value) ** 2) / float(w.sum()) ** 2 * n / max(n - 1, 1)
    return min(kish, value * (1.0 - value) / spread) if spread > 0 else kish


def _kish(w: Floats) -> float:
    squares = float(w @ w)
    return float(w.sum()) ** 2 / squares if squares > 0 else 0.0


def _limits(y: Floats, w: Floats, confidence: float) -> tuple[float, float]:
    from scipy.stats import t

    value, n = min(float(w @ y) / float(w.sum()), 1.0), _effective(y, w)
    return wilson_limits(value, n, float(t.ppf(0.5 + confidence / 2, max(n - 1.0, 1.0))))
