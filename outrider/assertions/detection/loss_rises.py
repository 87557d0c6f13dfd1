"""Evidence that a loss has risen since an unknown time."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.bets import mean_wealth

from .rises import largest_ratio

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BETS: Floats = 0.5 * np.exp2(-np.arange(7, dtype=np.float64))
"""Bets on a larger loss after the onset, in multiples of (weight / weight of the first block)."""
_ERRORS: Floats = np.array([1.0, 2.5])
"""Standard errors of the loss before the onset, for bets that it was smaller."""
_KEPT_BEFORE, _KEPT_AFTER = 0.2, 0.1
"""Shares of the fortunes that are not bet; they limit the loss if the usual loss is a different one."""
_GRID = 200
"""Number of candidate values of the usual loss."""
_MOST_ONSETS = 48
"""Maximum number of onsets evaluated, the most likely ones: leaving some out costs power only."""
_LEAST = 10
"""Minimum number of observations per block, and of pairs of blocks, for a variance estimate."""
DAYS = 14
"""Number of days from which their estimated scatter is used without a prior."""
_SCATTER = 0.3
"""Prior standard deviation of a day's log odds while fewer days are known."""
_PRIOR = 2.2
"""Upper bound of the sum of 1 / (k ln² k) from k = 2."""


@dataclass(frozen=True, slots=True)
class LossBlocks:
    """Lost and seen observations per block and weight, in order of time.

    Attributes
    ----------
    lost, seen
        Shape (blocks, weights); a loss in [0, 1] counts as that fraction of a lost observation.
    weight
        Weight of the observations of each column, > 0, shape (weights,).
    """

    lost: Floats
    seen: Floats
    weight: Floats

    @property
    def effective(self) -> tuple[Floats, Floats]:
        """Equivalent counts of equally weighted lost and seen observations. Each of shape (blocks,)."""
        mass, squares = self.seen @ self.weight, self.seen @ self.weight**2
        scale = mass.sum() / max(float(squares.sum()), 1e-300)
        return scale * (self.lost @ self.weight), scale * mass


def onset_shares(begun_s: Floats, numbers: Integers, *, horizon_s: float) -> Floats:
    r"""Share of the evidence for an onset at each block.

    Half depends on the time since the previous block, half on the block's number, as :math:`1 / (k \ln^2 k)`;
    both are known before the outcomes of the block. Shares of the first horizon sum to at most 1, those of
    each later one to slightly above 1 / 2.

    Parameters
    ----------
    begun_s
        Time of each block's first observation in s, ascending, shape (blocks,).
    numbers
        Number of each block, from 0, ascending, shape (blocks,).
    horizon_s
        Horizon in seconds, > 0.

    Returns
    -------
    ndarray
        Shape (blocks,); 0.0 for the first block. After missing blocks the next one has the share of its
        number only.

    Examples
    --------
    >>> onset_shares(np.array([0.0, 60, 120]), np.arange(3), horizon_s=600).round(3).tolist()
    [0.0, 0.287, 0.113]
    """
    by_time = np.clip(np.diff(begun_s, prepend=begun_s[:1]) / horizon_s, 0.0, 1.0)
    by_time[1:][np.diff(numbers) != 1] = 0.0  # the block before is not there: its time is not known
    place = np.maximum(numbers, 1) + 1.0
    by_number = np.minimum(1.0 / (_PRIOR * place * np.log(place) ** 2), 1.0)
    share = 0.5 * by_time + 0.5 * by_number
    share[:1] = 0.0
    return np.asarray(share)


def loss_rise(
    blocks: LossBlocks,
    share: Floats,
    *,
    needed: float,
    known: tuple[Floats, Floats] | None = None,
    day: Integers | None = None,
) -> float:
    """Logarithm of the evidence (e-value) that a loss has risen.

    **Null**: given the past, each observation, drawn by its weight, has one unknown mean loss m, or a smaller
    one after some block. **Guarantee**: an e-detector: at any stopping time its expectation is at most the
    sum of the shares of the onsets so far. So within the time in which shares sum to 1 it reaches log(1 / a +
    1) with a probability of at most a, and no more often on average later. For each m and onset it is a lower
    bound of the product of an e-value that the earlier loss was smaller and a fortune that bets on a larger
    loss since. Bets are proportional to the weights relative to those of the first block, which serves for
    nothing else; a bet scaled to lighter weights than a later one is lost. The log evidence of an onset is
    divided by the :func:`dispersion` of the blocks, or of the days before it if that is larger.

    Parameters
    ----------
    blocks
        Blocks of one stream; the last may be incomplete.
    share
        Share of each onset, fixed before its block, shape (blocks,); see :func:`onset_shares`.
    needed
        Evidence of interest: -inf is returned if a cheap upper bound is below it.
    known
        Equally weighted lost and seen counts, shape (blocks,) each, that replace the observations before each
        onset.
    day
        Day of each block, ascending, shape (blocks,); None if unknown.

    Returns
    -------
    float
        -inf if fewer than three blocks have observations.

    References
    ----------
    Shin, Ramdas and Rinaldo, "E-detectors", NEJSDS 2024, section 2, here with shares of the onsets;
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2023.

    Examples
    --------
    >>> seen = np.full((60, 1), 50.0)
    >>> lost = np.concatenate([np.full((40, 1), 5.0), np.full((20, 1), 9.0)])
    >>> share = onset_shares(np.arange(60.0), np.arange(60), horizon_s=60.0)
    >>> loss_rise(LossBlocks(lost, seen, np.ones(1)), share, needed=4.6) > math.log(100)
    True
    """
    some = np.flatnonzero(blocks.seen.any(axis=1))[:1]
    onsets = _likely(blocks, share, needed, known)
    onsets = onsets[onsets > (some[0] + 1 if len(some) else len(share))]
    if not len(onsets):
        return -math.inf
    first = blocks.seen[some[0]]
    scale = float(first @ blocks.weight**2 / (first @ blocks.weight))
    weight, even = blocks.weight / scale, float((first @ blocks.weight) / (first.sum() * scale))
    lost, seen = (np.cumsum(side[some[0] + 1 :], axis=0) for side in (blocks.lost, blocks.seen))
    before = tuple(side[onsets - some[0] - 2] for side in (lost, seen))
    after = tuple(side[-1] - past for side, past in zip((lost, seen), before, strict=True))
    if known is not None:
        before = tuple(side[onsets, None] for side in known)
        evidence = _evidence((*before, np.ones(1), 1.0), (*after, weight))
    else:
        evidence = _evidence((*before, weight, even), (*after, weight))
    factor = np.full(len(onsets), dispersion(*blocks.effective))
    if day is not None:
        factor = np.maximum(factor, dispersion_of_days(*blocks.effective, day, onsets))
    evidence = evidence / factor
    return float(np.logaddexp.reduce(evidence + np.log(share[onsets])))


def dispersion(lost: Floats, seen: Floats) -> float:
    """Proven ratio (>= 1) of the blocks' variance to independent observations'.

    Correlated observations prove less by that factor. An e-value to the power of 1 / factor is at most the
    e-value plus 1, however the factor was estimated.

    Parameters
    ----------
    lost, seen
        Counts of equal weight, shape (blocks,).

    Examples
    --------
    >>> dispersion(np.array([0.0, 30] * 20), np.full(40, 30.0)) > 10
    True
    """
    large = seen >= _LEAST
    lost, seen = lost[large], seen[large]
    pairs = len(seen) - 1
    if pairs < _LEAST:
        return 1.0
    mean = float(lost.sum() / seen.sum())
    usual = mean * (1.0 - mean) * float((1.0 / seen[1:] + 1.0 / seen[:-1]).sum())
    found = float((np.diff(lost / seen) ** 2).sum()) / max(usual, 1e-12)
    return max(1.0, found * (1.0 - math.sqrt(3.0 / pairs)))


def dispersion_of_days(lost: Floats, seen: Floats, day: Integers, onsets: Integers) -> Floats:
    """Overdispersion after each onset, from the scatter between days.

    A day is one observation of how days differ, however many labels it has. The scatter is Pearson's
    statistic of the days before and after that of the onset, corrected for few days; until ``DAYS`` are known
    it is at least a scatter of 0.3 in the log odds, decreasing with each day. It counts for an onset in
    proportion to the part of a day seen after it. In units of the variance of independent observations.

    Parameters
    ----------
    lost, seen
        Counts of equal weight, shape (blocks,).
    day
        Day of each block, ascending, shape (blocks,).
    onsets
        Block numbers, shape (onsets,).

    Returns
    -------
    ndarray
        Shape (onsets,), >= 1.0.

    Examples
    --------
    >>> lost, seen = np.tile([3.0, 3, 9, 9], 10), np.full(40, 50.0)
    >>> dispersion_of_days(lost, seen, np.arange(40) // 2, np.array([20, 39])).round(1).tolist()
    [4.0, 2.5]
    """
    begins = np.flatnonzero(np.diff(day, prepend=day[:1] - 1))
    hits, whole = (np.add.reduceat(side, begins) for side in (lost, seen))
    at = np.searchsorted(begins, onsets, side="right") - 1  # the day of the onset is on neither side
    before = _around_mean(hits, whole, at)
    following = _around_mean(hits[::-1], whole[::-1], len(hits) - 1 - at)
    free = before[1] + following[1]
    known = (before[0] + following[0]) / np.maximum(free, 1.0) - 1.0
    known = np.where(free > 0.0, known * (1.0 + 2.0 / np.maximum(free, 1.0)), 0.0)
    mean, size = lost.sum() / max(float(seen.sum()), 1e-12), max(float(whole.mean()), 1e-12)
    presumed = _SCATTER**2 * mean * (1.0 - mean) * size * np.maximum(0.0, 1.0 - free / (DAYS - 2))
    after = seen.sum() - (np.cumsum(seen) - seen)[onsets]
    return np.asarray(1.0 + np.maximum(known, presumed) * np.minimum(1.0, after / size))


def _around_mean(hits: Floats, seen: Floats, days: Integers) -> tuple[Floats, Floats]:
    """Pearson's statistic of the first ``days``, and its degrees of freedom."""
    total, counted, squares = (
        np.concatenate([[0.0], np.cumsum(side)])[days]
        for side in (hits, seen, hits**2 / np.maximum(seen, 1e-12))
    )
    mean = (total + 0.5) / (counted + 1.0)
    around = squares - total**2 / np.maximum(counted, 1e-12)
    return around / (mean * (1.0 - mean)), np.maximum(days - 1.0, 0.0)


def known_mix(lost: Floats, seen: Floats, *, prior: float = 50.0) -> tuple[Floats, Floats]:
    """Counts before each onset, reweighted to the later mix of slices.

    Parameters
    ----------
    lost, seen
        By slice and block, shape (slices, blocks).
    prior
        Observations of all slices added to those of each slice.

    Returns
    -------
    tuple
        Equally weighted lost and seen counts, shape (blocks,) each.

    Examples
    --------
    >>> lost, seen = known_mix(np.array([[1.0, 1, 1], [9, 9, 9]]), np.array([[90.0, 90, 10], [10, 10, 90]]))
    >>> round(float(lost[2] / seen[2]), 1)
    0.3
    """
    past = [np.cumsum(side, axis=1) - side for side in (lost, seen)]
    after = seen.sum(axis=1, keepdims=True) - past[1]
    mix = after / np.maximum(after.sum(axis=0), 1e-12)
    total = past[1].sum(axis=0)
    whole = past[0].sum(axis=0) / np.maximum(total, 1e-12)
    each = (past[0] + prior * whole) / (past[1] + prior)
    mean = (mix * each).sum(axis=0)
    spread = each * (1.0 - each) / (past[1] + prior)
    size = np.minimum(mean * (1.0 - mean) / np.maximum((mix**2 * spread).sum(axis=0), 1e-12), total)
    return mean * size, size


def rise_bound(lost: Floats, seen: Floats, share: Floats) -> Floats:
    """Logarithm of a cheap upper bound of :func:`loss_rise`.

    Parameters
    ----------
    lost, seen
        Counts of equal weight, shape (..., blocks).
    share
        Share of each onset, shape (blocks,).

    Returns
    -------
    ndarray
        Shape (...,).
    """
    past = np.cumsum(lost, axis=-1) - lost, np.cumsum(seen, axis=-1) - seen
    return np.asarray(np.logaddexp.reduce(_bounds(lost, seen, past, share), axis=-1))


def _bounds(lost: Floats, seen: Floats, past: tuple[Floats, Floats], share: Floats) -> Floats:
    own = np.cumsum(seen, axis=-1) - seen
    after = seen.sum(axis=-1, keepdims=True) - own
    hits = lost.sum(axis=-1, keepdims=True) - (np.cumsum(lost, axis=-1) - lost)
    with np.errstate(divide="ignore"):
        bound = largest_ratio(past[0], past[1], hits, after) + np.log(share)
    return np.where((own <= 0.0) | (after <= 0.0), -np.inf, bound)


def _likely(
    blocks: LossBlocks, share: Floats, needed: float, known: tuple[Floats, Floats] | None
) -> Integers:
    """Onsets with the largest likelihood ratios; none if even these are too small."""
    lost, seen = blocks.effective
    past = (np.cumsum(lost) - lost, np.cumsum(seen) - seen) if known is None else known
    bound = _bounds(lost, seen, past, share)
    if not len(bound) or np.logaddexp.reduce(bound) < needed:
        return np.zeros(0, dtype=np.int64)
    likely = np.argsort(-bound, kind="stable")[:_MOST_ONSETS]
    return likely[np.isfinite(bound[likely])]


def _evidence(before: tuple[Floats, Floats, Floats, float], after: tuple[Floats, Floats, Floats]) -> Floats:
    """Minimum over all usual losses of each onset's log evidence, shape (onsets,)."""
    lost, seen, weight, even = before
    usual, now = ((side[0] @ side[2]) / np.maximum(side[1] @ side[2], 1e-12) for side in (before, after))
    ends = np.arcsin(np.sqrt(np.clip([usual, np.maximum(usual, now)], 0.0, 1.0)))
    rate = np.sin(ends[0][:, None] + (ends[1] - ends[0])[:, None] * np.linspace(0.0, 1.0, _GRID)) ** 2
    rate = np.clip(rate, 1e-9, 1.0 - 1e-9)  # (onsets, grid)
    error = np.sqrt((1.0 - rate) / (rate * np.maximum(seen.sum(axis=1) * even, 1e-9)[:, None]))
    stake = np.minimum(error[..., None] * _ERRORS, 0.9)  # (onsets, grid, errors)
    fewer = _fortune(seen - lost, lost, weight, 1.0 - rate, stake, _KEPT_BEFORE)
    stake = np.broadcast_to(_BETS, (*rate.shape, len(_BETS)))
    more = _fortune(after[0], after[1] - after[0], after[2], rate, stake, _KEPT_AFTER)
    # A true loss between two of the grid is refuted at least as the lower one before, the upper one after.
    none = np.ones((len(rate), 1))
    joint = np.concatenate([math.log(_KEPT_BEFORE) * none, fewer], axis=1)
    joint += np.concatenate([more, math.log(_KEPT_AFTER) * none], axis=1)
    return np.asarray(joint.min(axis=1))


def _fortune(won: Floats, missed: Floats, weight: Floats, rate: Floats, stake: Floats, kept: float) -> Floats:
    """Log fortune of bets that the loss exceeds ``rate``, shape (onsets, grid)."""
    odds = (1.0 / rate - 1.0)[..., None]
    log = np.zeros(stake.shape)
    for wins, misses, each in zip(won.T, missed.T, weight, strict=True):
        staked = np.minimum(each * stake, 1.0 - 1e-12)
        log += wins[:, None, None] * np.log1p(staked * odds) + misses[:, None, None] * np.log1p(-staked)
        came = (wins + misses > 0.0)[:, None, None]
        log[came & (each * stake >= 1.0)] = -np.inf
    with np.errstate(invalid="ignore"):
        bets = np.where(np.isfinite(log).any(axis=-1), mean_wealth(np.maximum(log, -1e9)), -1e9)
    return np.asarray(np.logaddexp(bets + math.log(1.0 - kept), math.log(kept)))
