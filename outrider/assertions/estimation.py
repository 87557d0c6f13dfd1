"""Accuracy and precision from labels that a policy chose: inverse-probability weights, with intervals."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

Method = Literal["weighted", "audit", "none"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share of a population, estimated from labels.

    Attributes
    ----------
    value
        In [0, 1]; ``nan`` without a label.
    low, high
        Confidence interval; 0 and 1 without a label.
    labels
        Labels used.
    effective
        As many labels drawn at random would be as informative.
    method
        ``weighted``: all labels by their weights. ``audit``: the uniform sample alone, because weights differ
        so much that the others would add nothing. ``none``: there is no label.
    """

    value: float
    low: float
    high: float
    labels: int
    effective: float
    method: Method


def selection_weights(probability: ArrayLike, population: ArrayLike) -> Floats:
    """Weights that undo a policy's preferences, for labels in order of their choice; uniform draws give 1.0.

    Parameters
    ----------
    probability
        Of each pick among the records left, as :class:`~outrider.assertions.Selection` reports it.
    population
        Records left at each pick.

    Returns
    -------
    ndarray
        Shape (picks,), >= 0, of expectation 1. A pick that was all but certain (``uncertainty`` leaves
        nothing to chance) is no sample of anything: it weighs 0.0, and estimates are of the other records.

    References
    ----------
    Farquhar, Gal & Rainforth, "On Statistical Bias in Active Learning", ICLR 2021, eq. 6 (R_LURE): unlike
    1 / (N q) it also counts that records picked earlier are known, so it stays unbiased when labels are a
    large share of the population. Conditional on the past, so it holds for policies that learn from labels.
    """
    q = np.asarray(probability, dtype=np.float64)
    left = np.asarray(population, dtype=np.float64)
    later = np.arange(len(q) - 1, -1, -1)
    unknown = np.clip(1.0 - later / np.maximum(left - 1.0, 1.0), 0.0, 1.0)
    weights = np.maximum(1.0 + unknown * (1.0 / (left * q) - 1.0), 0.0)
    certain = (q > 0.5) & (left * q > 2.0)
    return np.where(certain, 0.0, weights)


def estimate_share(
    hits: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    within: ArrayLike | None = None,
    audit: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Share of a population for which something holds: accuracy, or the precision of an assertion.

    Parameters
    ----------
    hits
        Whether it holds, per label, shape (labels,).
    weights
        As from :func:`selection_weights`; None is a uniform sample.
    within
        Labels of the part in question, for example those on which an assertion fired; None is all.
    audit
        Which labels are of the uniform audit sample.

    Notes
    -----
    Hájek's ratio estimator. The interval is Wilson's with an effective sample size: the smaller of Kish's
    (weights alone) and that of the linearised variance (weights where the misses are), with Student's
    quantile because the variance is itself estimated. Each limit allows for one label more of the largest
    weight, a hit for the upper and a miss for the lower: records that a policy does not like are rare in a
    sample and weigh most.
    """
    y = np.asarray(hits, dtype=np.float64)
    w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    if len(w) != len(y):
        raise ValueError(f"weights must have one value per label, {len(y)}, got {len(w)}")
    inside = np.ones(len(y), dtype=np.bool_) if within is None else np.asarray(within, dtype=np.bool_)
    heaviest = 0.0 if weights is None else float(w[inside].max(initial=0.0))
    found = _share(y[inside], w[inside], heaviest, confidence, "weighted")
    if audit is None:
        return found
    drawn = inside & np.asarray(audit, dtype=np.bool_)
    # Chosen by weights alone: the narrower of two intervals would be the luckier one.
    if drawn.sum() > _kish(np.append(w[inside], heaviest)):
        return _share(y[drawn], np.ones(int(drawn.sum())), 0.0, confidence, "audit")
    return found


def _share(y: Floats, w: Floats, extra: float, confidence: float, method: Method) -> Estimate:
    total = float(w.sum())
    if not total > 0:
        return Estimate(float("nan"), 0.0, 1.0, 0, 0.0, "none")
    low, _ = _limits(np.append(y, 0.0), np.append(w, extra), confidence)
    _, high = _limits(np.append(y, 1.0), np.append(w, extra), confidence)
    value = min(float(w @ y) / total, 1.0)
    # At the ends rounding must not push a limit past the share itself.
    return Estimate(value, min(low, value), max(high, value), len(y), _effective(y, w), method)


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
    z = float(t.ppf(0.5 + confidence / 2, max(n - 1.0, 1.0)))
    centre = (value + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(value * (1 - value) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))
