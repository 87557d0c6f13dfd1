"""Intervals of a failure rate over a fixed number of cases."""

import math
from statistics import NormalDist


def wilson_interval(failures: int, cases: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a rate.

    Unlike the textbook ``p ± z·s`` it stays inside [0, 1] and is useful at 0 failures.

    Parameters
    ----------
    failures, cases
        Counts, ``0 <= failures <= cases``.
    confidence
        Coverage, in (0, 1).

    Returns
    -------
    tuple of float
        Lower and upper bound; (0.0, 1.0) when there are no cases.

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
    if not 0 <= failures <= cases:
        raise ValueError(f"0 <= failures <= cases expected, got {failures} failures of {cases} cases")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if cases == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = failures / cases
    shrink = 1 + z * z / cases
    centre = (rate + z * z / (2 * cases)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / cases + z * z / (4 * cases * cases))
    # At the ends one bound is exact; rounding must not push it past the rate itself.
    low = 0.0 if failures == 0 else max(0.0, centre - half)
    high = 1.0 if failures == cases else min(1.0, centre + half)
    return low, high
