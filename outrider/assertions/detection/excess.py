"""Evidence that a rate is above a limit."""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.bets import UNIT_BETS, mean_wealth

Floats = NDArray[np.float64]

FEWEST = 0.25
"""Share of the window that must have passed before dispersion is estimated."""
_LEFT_OUT, _MANY = 2, 200
STRETCHES = 8
"""Minimum number of blocks with observations, and of stretches of the widest width."""


def excess(hits: Floats, seen: Floats, *, limit: float, window: int, share: float) -> float:
    """Logarithm of the evidence that a rate exceeds a limit (an e-value).

    **Null**: given the past, no observation is a hit with a probability above ``limit``. **Guarantee**: an
    e-detector, the sum over start blocks of fortunes that bet on more hits: at any stopping time its
    expectation is at most the sum of the shares of the start blocks so far. So within the blocks whose shares
    sum to 1 it reaches log(1 / a + 1) with a probability of at most a. Counts are divided by their
    overdispersion (:func:`scatter`), since correlated observations prove less; this causes the + 1.

    Parameters
    ----------
    hits, seen
        Per block in order of time, the newest last, shape (blocks,); an observation in [0, 1] counts as that
        fraction of a hit.
    limit
        Rate. At 0 or below a single hit proves it, at 1 or above nothing does.
    window
        Number of newest blocks that may be the start.
    share
        Share of the evidence of each start block.

    Returns
    -------
    float
        -inf until a quarter of the window has passed since the first observation and eight blocks have any:
        before, dispersion is unknown.

    References
    ----------
    Shin, Ramdas and Rinaldo, "E-detectors", NEJSDS 2024, section 2 (the sum over starts, here with shares);
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2023.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> hits, seen = rng.binomial(200, 0.12, 48) * 1.0, np.full(48, 200.0)
    >>> [excess(hits, seen, limit=one, window=24, share=1 / 24) > math.log(1_001) for one in (0.08, 0.11)]
    [True, False]
    """
    if limit >= 1.0 or not seen.any() or len(seen) - int((seen > 0).argmax()) < FEWEST * window:
        return -math.inf
    ratio = scatter(hits, seen)
    if ratio == math.inf:
        return -math.inf
    if limit <= 0.0:
        return math.inf if hits[-window:].any() else -math.inf
    own, whole = (np.cumsum(side[-window:][::-1]) / ratio for side in (hits, seen))
    log = own[:, None] * np.log1p(UNIT_BETS * (1.0 / limit - 1.0))
    log = log + (whole - own)[:, None] * np.log1p(-UNIT_BETS)
    return float(np.logaddexp.reduce(mean_wealth(log))) + math.log(share)


def scatter(hits: Floats, seen: Floats) -> float:
    """Overdispersion: number of observations that count as one.

    The larger of two estimates: variance between neighbouring stretches over that of independent
    observations, for widths up to an eighth of the time; and, if neighbouring blocks differ less than wide
    stretches by a factor r (the same entities are seen repeatedly), (2 - r) / r, as for a first-order
    autoregression. The two largest differences are left out, so that a single change of level does not count.

    Parameters
    ----------
    hits, seen
        Per block in order of time, shape (blocks,).

    Returns
    -------
    float
        At least 1; inf for fewer than eight blocks with observations.

    References
    ----------
    von Neumann, "Distribution of the ratio of the mean square successive difference to the variance", Annals
    of Mathematical Statistics 1941; Sokal, "Monte Carlo methods in statistical mechanics", 1997, section 2
    (integrated autocorrelation time).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> alone, seen = rng.binomial(40, 0.1, 400) * 1.0, np.full(400, 40.0)
    >>> again = np.repeat(rng.binomial(40, 0.1, 20) * 1.0, 20)
    >>> bool(scatter(alone, seen) < 1.5), bool(scatter(again, seen) > 10)
    (True, True)
    """
    kept = seen > 0
    hits, seen = hits[kept], seen[kept]
    rarer = max(float(min(hits.sum(), seen.sum() - hits.sum())), 1.0)
    share = (hits.sum() + 0.5) / (seen.sum() + 1.0)
    found: list[float] = []
    """Variance ratio between neighbouring stretches, by rising width."""
    while (width := 2 ** len(found)) * STRETCHES <= len(seen):
        count = len(seen) // width
        own, whole = (side[-count * width :].reshape(count, width).sum(axis=1) for side in (hits, seen))
        size = whole[1:] * whole[:-1] / (whole[1:] + whole[:-1])
        found.append(_trimmed(np.diff(own / whole) ** 2 * size / (share * (1.0 - share))))
    if not found:
        return math.inf
    error = math.sqrt(2.0 / min(len(seen), rarer))
    alike = (found[0] * (1.0 + error) + error**2 / 2.0) / max(min(1.0, max(found)), 1e-9)
    return max(1.0, *found, 2.0 / min(alike, 1.0) - 1.0)


def _trimmed(squares: Floats) -> float:
    """Trimmed mean of squared deviations (without the two largest), relative to normal ones."""
    count = len(squares)
    if count > _MANY:
        return float(squares.mean())
    middle = (np.arange(count - _LEFT_OUT) + 0.5) / count
    usual = np.array([NormalDist().inv_cdf(0.5 + at / 2.0) for at in middle.tolist()]) ** 2
    return float(np.sort(squares)[:-_LEFT_OUT].mean() / usual.mean())
