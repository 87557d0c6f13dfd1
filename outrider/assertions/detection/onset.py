"""Onset of a rate change, with an interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.97
"""Probability of the onset interval. Larger than 95 %, since stopping at an alarm costs some coverage."""


@dataclass(frozen=True, slots=True)
class Onset:
    """Most likely first block of a change, and an interval."""

    block: int
    first: int
    last: int


def onset_interval(hits: Floats, seen: Floats, *, confidence: float = CONFIDENCE) -> Onset:
    """Onset of a proven rise, with the interval of possible blocks.

    Posterior of a change point with a uniform prior on its position and Jeffreys' prior on the rates before
    and after it, restricted to a risen rate. The interval spans the most likely blocks with total probability
    ``confidence``. **Guarantee**: none; in simulations that stop at the alarm it contains the true onset in
    at least 93 % (``benchmarks.monitoring.false_alarms``).

    Parameters
    ----------
    hits, seen
        Per block in order of time, shape (blocks,).

    Raises
    ------
    ValueError
        If there are fewer than two blocks.

    References
    ----------
    Smith, "A Bayesian approach to inference about a change-point in a sequence of random variables",
    Biometrika 1975.

    Examples
    --------
    >>> hits = np.array([2, 1, 3, 2, 0, 2, 14, 17, 12], dtype=float)
    >>> onset_interval(hits, np.full(9, 60.0))
    Onset(block=6, first=6, last=6)
    """
    from scipy.special import betaln

    if hits.shape != seen.shape or len(hits) < 2:
        raise ValueError(f"two blocks or more expected, got {hits.shape} hits of {seen.shape} observations")
    before, total = np.cumsum(hits)[:-1], np.cumsum(seen)[:-1]
    after, rest = hits.sum() - before, seen.sum() - total
    log = betaln(before + 0.5, total - before + 0.5) + betaln(after + 0.5, rest - after + 0.5)
    has_risen = after * np.maximum(total, 1.0) > before * np.maximum(rest, 1.0)
    log = np.where(has_risen | ~has_risen.any(), log, -np.inf)
    chance = np.exp(log - log.max())
    chance /= chance.sum()
    order = np.argsort(-chance, kind="stable")
    held = order[: int(np.searchsorted(np.cumsum(chance[order]), confidence)) + 1]
    return Onset(int(order[0]) + 1, int(held.min()) + 1, int(held.max()) + 1)
