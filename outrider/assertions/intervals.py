"""Confidence intervals of proportions."""

import math


def wilson_interval(successes: int, trials: int, *, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a proportion.

    Parameters
    ----------
    successes, trials
        Counts, ``0 <= successes <= trials``.
    z
        Quantile of the normal distribution: 1.96 gives 95 %.

    Returns
    -------
    tuple
        Low and high, in [0, 1]; ``(0.0, 1.0)`` without trials.

    References
    ----------
    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 1927.

    Examples
    --------
    >>> low, high = wilson_interval(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"0 <= successes <= trials expected, got {successes} of {trials}")
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    centre = share + z * z / (2 * trials)
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
