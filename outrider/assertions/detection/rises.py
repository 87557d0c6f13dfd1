"""Evidence that a rate has risen since an unknown onset."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.bets import UNIT_BETS, mean_wealth

from .spread import Spread

Floats = NDArray[np.float64]

_GRID = 24
"""Number of candidate values of the usual rate; more detect a rise earlier."""
_PEAK = 0.25
"""Share of the evidence that is against the highest rate of a rhythm."""
_MOST_ONSETS = 200
"""Maximum number of onsets evaluated per stream, the most likely ones: leaving some out costs power only."""
_FAR = 40.0
"""Onsets whose log bound is this far below the highest one are negligible."""


def floor_of(rate: Floats, odds: float | Floats) -> Floats:
    """Rate with odds multiplied by ``odds``.

    Examples
    --------
    >>> floor_of(np.array([0.02, 0.5, 0.9]), 1.5).round(3).tolist()
    [0.03, 0.6, 0.931]
    """
    return np.asarray(odds * rate / (1.0 - rate + odds * rate))


def rise_evidence(
    hits_before: Floats, seen_before: Floats, hits: Floats, seen: Floats, *, odds: float = 1.0
) -> Floats:
    """Logarithm of the evidence (e-value) of a rise at a given onset.

    **Null**: given the past, all observations are hits with one unknown probability m up to the onset, and
    with at most ``odds`` times its odds after it. **Guarantee**: for each m, the fortune that bets on a lower
    rate before the onset and on a higher one after it is a nonnegative martingale from 1; the result is the
    minimum over m, so it ever reaches log(1 / a) with a probability of at most a. It includes the estimation
    error of the usual rate. A mean over onsets, with weights chosen in advance, keeps the guarantee, also if
    some are left out.

    Parameters
    ----------
    hits_before, seen_before
        Hits and observations before the onset, shape (...).
    hits, seen
        Hits and observations after it, shape (...).
    odds
        Tolerated odds ratio, >= 1.

    Returns
    -------
    ndarray
        Shape (...); at most 0.0 without observations on either side.

    References
    ----------
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2023;
    Turner and Grünwald, "Exact anytime-valid confidence intervals for contingency tables and beyond",
    Statistics and Probability Letters 2023 (an unknown common rate, there with paired blocks).

    Examples
    --------
    >>> one = np.array(1.0)
    >>> bool(rise_evidence(50 * one, 1_000 * one, 40 * one, 200 * one) > np.log(1_000))
    True
    >>> bool(rise_evidence(50 * one, 1_000 * one, 12 * one, 200 * one) > 0)
    False
    """
    before, after = _rates(hits_before, seen_before), _rates(hits, seen)
    angle = np.arcsin(np.sqrt(np.stack([before, np.maximum(before, after)], axis=-1)))
    steps = np.linspace(0.0, 1.0, _GRID)
    rate = np.sin(angle[..., :1] + (angle[..., 1:] - angle[..., :1]) * steps) ** 2  # (..., grid)
    rate = np.clip(rate, 1e-9, 1.0 - 1e-9)
    fewer = _fortune((seen_before - hits_before)[..., None], hits_before[..., None], 1.0 - rate)
    more = _fortune(hits[..., None], (seen - hits)[..., None], floor_of(rate, odds))
    # A true rate between two of the grid is refuted at least as the lower one before, the upper one after.
    never = np.full((*before.shape, 1), -np.log(2.0))
    joint = np.concatenate([never, fewer], axis=-1) + np.concatenate([more, never], axis=-1)
    return np.asarray(joint.min(axis=-1))


def smallest_rise(
    hits_before: Floats, seen_before: Floats, seen: Floats, *, needed: Floats, odds: float = 1.0
) -> Floats:
    """Smallest rate after a given onset whose expected hits prove a rise.

    Parameters
    ----------
    hits_before, seen_before
        Hits and observations before the onset, shape (n,).
    seen
        Observations after it, shape (n,).
    needed
        Logarithm of the evidence to reach, shape (n,).
    odds
        As in :func:`rise_evidence`.

    Returns
    -------
    ndarray
        Shape (n,), in (0, 1]; NaN if no rate would be proven, because of too few observations.

    Examples
    --------
    >>> one = np.ones(2)
    >>> after, needed = np.array([100.0, 1.0]), np.log(100) * one
    >>> smallest_rise(20 * one, 1_000 * one, after, needed=needed).round(2).tolist()
    [0.12, nan]
    """
    low, high = np.zeros_like(seen), np.floor(seen)
    evidence = rise_evidence(hits_before, seen_before, high, seen, odds=odds)
    is_possible = (evidence >= needed) & (high > 0)
    while ((high - low) > 1).any():  # more hits never prove less
        middle = np.floor((low + high) / 2.0)
        proves = rise_evidence(hits_before, seen_before, middle, seen, odds=odds) >= needed
        low, high = np.where(proves, low, middle), np.where(proves, middle, high)
    return np.where(is_possible, high / np.maximum(seen, 1.0), np.nan)


def largest_ratio(hits_before: Floats, seen_before: Floats, hits: Floats, seen: Floats) -> Floats:
    """Log likelihood ratio of a rise, an upper bound of :func:`rise_evidence`.

    0.0 where the rate has not risen.
    """
    whole = _rates(hits_before + hits, seen_before + seen)
    before, after = _rates(hits_before, seen_before), _rates(hits, seen)
    ratio = _log_likelihood(hits_before, seen_before, before) + _log_likelihood(hits, seen, after)
    ratio -= _log_likelihood(hits_before + hits, seen_before + seen, whole)
    return np.where(after > before, ratio, 0.0)


def rising(
    hits: Floats,
    seen: Floats,
    *,
    horizon: int,
    needed: float,
    odds: float = 1.0,
    earliest: int = 1,
    known: tuple[Floats, Floats] | None = None,
    spread: Spread | None = None,
    expected: Floats | None = None,
) -> Floats:
    """Logarithm of the evidence (e-value) that rates have risen since some block.

    **Null**: in each block, given the past, the observations of a stream are independent hits with one
    unknown probability, at most ``odds`` times its odds after some block. **Guarantee**: checked after every
    block, it ever reaches log(1 / a) while the earliest onset lies within ``horizon`` blocks with a
    probability of at most a. The reference is the stream's own past; the bound includes its estimation error.

    Parameters
    ----------
    hits, seen
        Per block in order of time, shape (streams, blocks).
    horizon
        Number of blocks over which the unknown onset is mixed, >= 1.
    needed
        Evidence of interest: -inf is returned if a cheap upper bound is below it.
    odds
        As in :func:`rise_evidence`.
    earliest
        First block that may be the onset, >= 1.
    known
        Hits and observations, shape (streams, blocks - 1) or (blocks - 1,) each, that replace the observed
        ones before each block but the first.
    spread
        Overdispersion of the rates before each onset. Three quarters of the evidence are then against the
        mean rate, with all counts divided by the overall spread; one quarter is against the highest rate,
        with counts divided by the local one. Dividing the counts after an onset by 1 or more keeps the
        guarantee (a concave power of a fortune); if rates are not constant there is none, only simulations
        (``benchmarks.monitoring.rhythms``).
    expected
        Odds ratio after each onset that a known rhythm explains (see :func:`weekly_odds`), shape (streams,
        blocks - 1) or (blocks - 1,).

    Returns
    -------
    ndarray
        Shape (streams,).

    References
    ----------
    Shin, Ramdas and Rinaldo, "E-detectors", NEJSDS 2024, section 2.3 (the sum over onsets); for the
    evidence of each onset see :func:`rise_evidence`.

    Examples
    --------
    >>> hits = np.array([[2, 1, 3, 2, 0, 2, 14, 17, 12], [2, 1, 3, 2, 0, 2, 1, 3, 2]], dtype=float)
    >>> (rising(hits, np.full((2, 9), 60.0), horizon=1_000, needed=4.6) > np.log(100)).tolist()
    [True, False]
    """
    before, total = np.cumsum(hits, axis=1), np.cumsum(seen, axis=1)
    ends = slice(earliest - 1, -1)
    seen_before = (before[:, :-1], total[:, :-1]) if known is None else known
    past = [np.broadcast_to(side, (len(hits), hits.shape[1] - 1))[:, earliest - 1 :] for side in seen_before]
    following = [before[:, -1:] - before[:, ends], total[:, -1:] - total[:, ends]]
    mixed = _rates(*past)
    if expected is not None:
        moved = np.broadcast_to(expected, (len(hits), hits.shape[1] - 1))[:, earliest - 1 :]
        past[0] = np.asarray(past[1] * floor_of(mixed, moved))
    if spread is None:
        return _mixed([*past, *following], horizon, needed, odds)
    overall, local, highest = (
        one[:, earliest - 1 :] for one in (spread.overall, spread.local, spread.highest)
    )
    if known is not None:  # another mix moves the peak, too
        by_mix = mixed / np.maximum(_rates(before[:, ends], total[:, ends]), 1e-9)
        highest = np.minimum(highest * np.maximum(by_mix, 1.0), 1.0)
    if expected is not None:
        highest = np.where(highest > 0.0, np.maximum(highest, _rates(*past)), 0.0)
    peak = [past[1] * highest, past[1] * (highest > 0.0)]
    against_mean = _mixed([side / overall for side in (*past, *following)], horizon, needed, odds)
    against_peak = _mixed([side / local for side in (*peak, *following)], horizon, needed, odds)
    return np.asarray(np.logaddexp(against_mean + np.log(1 - _PEAK), against_peak + np.log(_PEAK)))


def might_rise(
    hits: Floats, seen: Floats, *, horizon: int, needed: float, earliest: int = 1
) -> NDArray[np.bool_]:
    """Mask (streams,) of the streams that a cheap bound keeps.

    The bound holds for any ``spread`` and ``known`` counts.
    """
    before, total = np.cumsum(hits, axis=1), np.cumsum(seen, axis=1)
    ends = slice(earliest - 1, -1)
    past = before[:, ends], total[:, ends]
    bound = largest_ratio(*past, before[:, -1:] - past[0], total[:, -1:] - past[1])
    return np.asarray(_whole(bound, horizon) >= needed)


def _whole(bound: Floats, horizon: int) -> Floats:
    """Upper bound of the log evidence over all onsets, shape (streams,)."""
    if bound.shape[1] == 0:
        return np.full(len(bound), -np.inf)
    top = bound.max(axis=1)
    return np.asarray(top + np.log(np.exp(bound - top[:, None]).sum(axis=1)) - np.log(horizon))


def _mixed(sides: Sequence[Floats], horizon: int, needed: float, odds: float) -> Floats:
    """Log evidence mixed over onsets, shape (streams,).

    The four ``sides`` are those of :func:`rise_evidence`, (streams, onsets) each.
    """
    bound = largest_ratio(*sides)
    found = np.full(len(bound), -np.inf)
    for stream in np.flatnonzero(_whole(bound, horizon) >= needed).tolist():
        near = np.flatnonzero(bound[stream] >= bound[stream].max() - _FAR)
        likely = near[np.argsort(-bound[stream, near], kind="stable")[:_MOST_ONSETS]]
        evidence = rise_evidence(*(side[stream, likely] for side in sides), odds=odds)
        found[stream] = np.logaddexp.reduce(evidence) - np.log(horizon)
    return found


def _fortune(won: Floats, lost: Floats, rate: Floats) -> Floats:
    """Log fortune that bets half of its capital on a rate above ``rate``."""
    gain = np.log1p(UNIT_BETS * (1.0 / rate - 1.0)[..., None])
    wealth = mean_wealth(won[..., None] * gain + lost[..., None] * np.log1p(-UNIT_BETS))
    return np.asarray(np.logaddexp(wealth, 0.0) - np.log(2.0))


def _rates(hits: Floats, seen: Floats) -> Floats:
    return np.asarray(hits / np.maximum(seen, 1.0))


def _log_likelihood(hits: Floats, seen: Floats, rate: Floats) -> Floats:
    inside = np.clip(rate, 1e-300, 1.0 - 1e-16)
    missed = seen - hits
    return np.where(hits > 0, hits * np.log(inside), 0.0) + np.where(
        missed > 0, missed * np.log1p(-inside), 0.0
    )
