"""Wilson's score interval of a rate, for counts and for weighted shares."""

from statistics import NormalDist
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.number[Any]]
Floats = NDArray[np.float64]


@overload
def wilson_interval(hits: float, trials: float, *, confidence: float = 0.95) -> tuple[float, float]: ...
@overload
def wilson_interval(
    hits: Numbers, trials: Numbers | float, *, confidence: float = 0.95
) -> tuple[Floats, Floats]: ...
def wilson_interval(
    hits: Numbers | float, trials: Numbers | float, *, confidence: float = 0.95
) -> tuple[Any, Any]:
    """Wilson score interval of a rate.

    Unlike the textbook ``p ± z·s`` it stays inside [0, 1] and is useful at 0 hits.

    Parameters
    ----------
    hits, trials
        Counts, ``0 <= hits <= trials``; numbers, or arrays of any one shape.
    confidence
        Coverage, in (0, 1). Each limit alone holds with probability ``(1 + confidence) / 2``: use 0.9 for a
        one-sided limit of 95 %.

    Returns
    -------
    tuple
        Lower and upper limit; 0.0 and 1.0 without trials.

    Raises
    ------
    ValueError
        If the counts or the confidence are out of range.

    References
    ----------
    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.

    Examples
    --------
    >>> low, high = wilson_interval(0, 100)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.037)
    """
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    if not ((k >= 0) & (k <= n)).all():
        raise ValueError(f"0 <= hits <= trials expected, got {hits} hits of {trials} trials")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    known = n > 0
    n = np.where(known, n, 1.0)
    low, high = wilson_limits(k / n, n, NormalDist().inv_cdf(0.5 + confidence / 2))
    return _alike(np.where(known, low, 0.0), np.where(known, high, 1.0))


@overload
def wilson_limits(share: float, n: float, quantile: float) -> tuple[float, float]: ...
@overload
def wilson_limits(share: Floats, n: Floats, quantile: Floats | float) -> tuple[Floats, Floats]: ...
def wilson_limits(share: Any, n: Any, quantile: Any) -> tuple[Any, Any]:
    """Wilson's limits of a share in [0, 1].

    ``n`` is the number of records, or the effective number; ``quantile`` is that of the normal distribution,
    or of Student's for estimated variances.
    """
    z2 = quantile * quantile
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = quantile * np.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At the ends one limit is exact; rounding must not push it past the share itself.
    low = np.where(np.less_equal(share, 0), 0.0, np.maximum(np.minimum(centre - half, share), 0.0))
    high = np.where(np.greater_equal(share, 1), 1.0, np.minimum(np.maximum(centre + half, share), 1.0))
    return _alike(low, high)


def _alike(low: Floats, high: Floats) -> tuple[Any, Any]:
    return (low, high) if low.ndim else (float(low), float(high))
