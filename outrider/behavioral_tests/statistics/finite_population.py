"""Inference on all cases of a test from some of them.

The cases of a test are a finite population, drawn in random order without replacement, and checked after each
block: an ordinary interval errs more often the more often it is checked. The bounds here hold for any number
of checks.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_PRIOR = 0.5  # Jeffreys: failure rates of tests lie near 0 more often than in the middle
_EDGE = 1e-9


def decided(
    failures: int, judged: int, possible: int, *, tolerance: float, confidence: float = 0.95
) -> bool | None:
    """Verdict on all cases from a random part; None while undecided.

    True if the failure rate over all applicable cases is at most ``tolerance``. Their number need not be
    known: all numbers from ``judged`` to ``possible`` are considered, and a verdict is given only if true for
    each. For any stopping rule and number of checks, the verdict is wrong with probability at most ``1 -
    confidence``; certain results (already too many failures, or too few cases left) are always decided.

    Parameters
    ----------
    failures, judged
        Number of failures and of judged cases so far; applicable cases only, in random order.
    possible
        Maximum number of applicable cases: planned ones less those found not applicable.
    tolerance
        Largest failure rate that passes, in [0, 1].

    Notes
    -----
    Let ``L(F)`` be the probability of the observations if ``F`` of all cases fail, and ``Q`` any fixed
    mixture of failure rates. Under the true ``F`` the ratio ``Q / L(F)`` is a martingale that starts at 1, so
    it ever exceeds ``1 / (1 - confidence)`` with at most that probability (Ville). ``F`` is then excluded.
    ``Q`` is half the beta-binomial of the paper, half the same over the rates at the other side of the
    tolerance from ``F``, which decides sooner: by about a quarter where a test passes.

    References
    ----------
    Waudby-Smith and Ramdas, "Confidence sequences for sampling without replacement", NeurIPS 2020, section 2.

    Examples
    --------
    >>> decided(0, 64, 1000, tolerance=0.05) is None, decided(0, 100, 1000, tolerance=0.05)
    (True, True)
    >>> decided(12, 64, 1000, tolerance=0.05)
    False
    """
    _check(failures, judged, possible, tolerance, confidence)
    if possible == 0:
        return None
    total, allowed = _populations(judged, possible, tolerance)
    many, few = _thresholds(failures, judged, tolerance, confidence)
    likeliest = _likeliest(failures, judged, total)
    at_most = (allowed >= total) | (
        (likeliest <= allowed) & (_log_likelihood(allowed + 1, failures, judged, total) <= many)
    )
    if at_most.all():
        return True
    beyond = (likeliest > allowed) & (_log_likelihood(allowed, failures, judged, total) <= few)
    return False if beyond.all() else None


def rate_bounds(
    failures: int, judged: int, possible: int, *, tolerance: float, confidence: float = 0.95
) -> tuple[float, float]:
    """Failure rate's bounds over applicable cases, consistent with :func:`decided`.

    The bounds hold at all times together with probability ``confidence``, unlike a Wilson interval, and refer
    to the cases of the test, not to a population of similar cases.

    Examples
    --------
    >>> [round(bound, 3) for bound in rate_bounds(12, 64, 1000, tolerance=0.05)]
    [0.05, 0.382]
    >>> rate_bounds(0, 0, 0, tolerance=0.05)
    (0.0, 1.0)
    """
    _check(failures, judged, possible, tolerance, confidence)
    if possible == 0:
        return 0.0, 1.0
    total, allowed = _populations(judged, possible, tolerance)
    many, few = _thresholds(failures, judged, tolerance, confidence)
    likeliest = _likeliest(failures, judged, total)
    passing = likeliest <= allowed

    def is_in(number: Ints, threshold: float) -> NDArray[np.bool_]:
        return _log_likelihood(number, failures, judged, total) > threshold

    lowest = np.full(len(total), failures)
    highest = total - judged + failures
    low = _first(lambda number: is_in(number, few), lowest, likeliest)
    high = _first(lambda number: ~is_in(number, many), likeliest, highest + 1) - 1
    low = np.where(passing, low, np.minimum(low, allowed + 1))
    high = np.where(passing, np.maximum(high, allowed), high)
    return float(np.min(np.maximum(low, lowest) / total)), float(np.max(np.minimum(high, highest) / total))


def _check(failures: int, judged: int, possible: int, tolerance: float, confidence: float) -> None:
    if not 0 <= failures <= judged <= possible:
        raise ValueError(
            f"0 <= failures <= judged <= possible expected, got {failures}, {judged} and {possible}"
        )
    if not (0.0 <= tolerance <= 1.0 and 0.0 < confidence < 1.0):
        raise ValueError(
            f"a tolerance in [0, 1] and a confidence in (0, 1) expected, got {tolerance} and {confidence}"
        )


def _populations(judged: int, possible: int, tolerance: float) -> tuple[Ints, Ints]:
    """All possible numbers of applicable cases, and the largest number of failures that passes for each."""
    total = np.arange(max(judged, 1), possible + 1)
    allowed = np.floor(tolerance * total).astype(np.int64)
    allowed += (allowed < total) & ((allowed + 1) / total <= tolerance)  # as Outcome.status compares
    allowed -= allowed / total > tolerance
    return total, allowed


def _thresholds(failures: int, judged: int, tolerance: float, confidence: float) -> tuple[float, float]:
    """Log likelihood below which a number of failures is excluded: above the tolerance, and below it."""
    from scipy.special import (  # half a second, which a run that asks all does not need
        betainc,
        betaincc,
        betaln,
    )

    a, b = _PRIOR + failures, _PRIOR + judged - failures
    everything = betaln(a, b) - betaln(_PRIOR, _PRIOR)
    edge = min(max(tolerance, _EDGE), 1 - _EDGE)
    with np.errstate(divide="ignore"):  # nothing left at that side: no evidence, -inf
        low = everything + np.log(betainc(a, b, edge)) - np.log(betainc(_PRIOR, _PRIOR, edge))
        high = everything + np.log(betaincc(a, b, edge)) - np.log(betaincc(_PRIOR, _PRIOR, edge))
    shift = math.log(1 - confidence) - math.log(2)
    return (
        float(np.logaddexp(everything, low)) + shift,
        float(np.logaddexp(everything, high)) + shift,
    )


def _likeliest(failures: int, judged: int, total: Ints) -> Ints:
    """Number of failures with the largest likelihood, which decreases on both sides of it."""
    if judged == 0:
        return np.zeros(len(total), dtype=np.int64)
    return np.minimum(failures * (total + 1) // judged, total - judged + failures)


def _log_likelihood(number: Ints, failures: int, judged: int, total: Ints) -> Floats:
    """Log probability of the judged cases in order, if ``number`` of ``total`` fail; -inf if impossible."""
    rest, left = total - judged, number - failures
    possible = (left >= 0) & (left <= rest) & (number <= total)
    left, number = np.where(possible, left, 0), np.where(possible, number, 0)
    return np.where(possible, _log_choose(rest, left) - _log_choose(total, number), -np.inf)


def _log_choose(n: Ints, k: Ints) -> Floats:
    from scipy.special import gammaln

    ways: Floats = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return ways


def _first(holds: Callable[[Ints], NDArray[np.bool_]], low: Ints, high: Ints) -> Ints:
    """Smallest number in [low, high] from which a monotone condition holds; ``high`` if it never does."""
    low, high = low.copy(), high.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        found = holds(middle)
        high = np.where(open_ & found, middle, high)
        low = np.where(open_ & ~found, middle + 1, low)
    return high
