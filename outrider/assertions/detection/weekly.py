"""Weekly rhythm of a rate, from the hours of earlier weeks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WEEK = 168
"""Length of a week in hours."""
WEEKS = 2
"""Number of earlier weeks that must agree: a single one may have had a fault or a holiday."""
SHIFTS = (0, -1, 1)
"""Shifts of a rhythm in hours that are tried, as when clocks change."""


@dataclass(frozen=True, slots=True)
class Hours:
    """Hits and observations of a stream in consecutive hours.

    Attributes
    ----------
    first
        Number of the first hour, in the numbering of the blocks' hours.
    hits, seen
        Shape (hours,).
    """

    first: int
    hits: Floats
    seen: Floats

    def at(self, hours: Integers) -> tuple[Floats, Floats]:
        """Hits and observations of these hours; 0.0 where unknown."""
        place = hours - self.first
        is_known = (place >= 0) & (place < len(self.seen))
        safe = np.where(is_known, place, 0)
        if not len(self.seen):
            return np.zeros(len(hours)), np.zeros(len(hours))
        return np.where(is_known, self.hits[safe], 0.0), np.where(is_known, self.seen[safe], 0.0)


def weekly_odds(seen: Floats, hour: Integers, past: Hours, *, spread: Floats) -> Floats:
    """Odds ratio, after over before each onset, expected from earlier weeks.

    In each of two earlier weeks the log odds of the hours since the onset are compared with those of the
    hours before it, weighted as the current observations, less a standard error, so that noise costs no
    evidence. The smaller of the two weeks' ratios counts: a single week shows no rhythm. Shifts by one hour
    are allowed. **Guarantee**: none; 1.0 (no change) if hours do not differ.

    Parameters
    ----------
    seen
        Observations per block in order of time, shape (blocks,).
    hour
        Number of each block's hour, ascending, shape (blocks,).
    past
        Hours of earlier weeks.
    spread
        Variance relative to independent hits for each onset, shape (blocks - 1,).

    Returns
    -------
    ndarray
        Shape (blocks - 1,), >= 1.0.

    Examples
    --------
    >>> hits = np.where(np.arange(654) % 168 < 48, 100.0, 50.0)  # of 1,000 an hour, twice as many on two days
    >>> past, hour = Hours(0, hits, np.full(654, 1_000.0)), np.arange(654, 684)
    >>> weekly_odds(np.full(30, 1_000.0), hour, past, spread=np.ones(29))[[0, 17, 28]].round(1).tolist()
    [1.3, 2.0, 1.4]
    """
    odds = np.full(len(seen) - 1, np.inf)
    for week in range(1, WEEKS + 1):
        risen = [_risen(seen, hour, past, shift - week * WEEK, spread) for shift in SHIFTS]
        odds = np.minimum(odds, np.max(risen, axis=0))
    return np.asarray(np.exp(np.maximum(odds, 0.0)))


def weekly_rates(seen: Floats, hour: Integers, past: Hours) -> Floats:
    """Rate of each block relative to the mean, from two earlier weeks.

    Only as far as the same hours of both weeks agree.

    Parameters
    ----------
    seen, hour, past
        As for :func:`weekly_odds`.

    Returns
    -------
    ndarray
        Shape (blocks,), > 0.0; 1.0 where noise explains the difference.
    """
    hours, of_block = np.unique(hour, return_inverse=True)
    weight = np.bincount(of_block, seen)
    least, most = np.full(len(hours), np.inf), np.full(len(hours), -np.inf)
    for week in range(1, WEEKS + 1):
        rate, noise = _rates(past, hours - week * WEEK)
        mean = (weight @ rate) / max(float(weight.sum()), 1e-9) or 1.0
        ratio, error = np.log(rate / mean), np.sqrt(noise) / rate
        shrunk = np.sign(ratio) * np.maximum(np.abs(ratio) - error, 0.0)
        least, most = np.minimum(least, shrunk), np.maximum(most, shrunk)
    return np.asarray(np.exp(np.maximum(least, 0.0) + np.minimum(most, 0.0))[of_block])


def _rates(past: Hours, hours: Integers) -> tuple[Floats, Floats]:
    """Rate of each hour and its variance, with one additional observation at the usual rate."""
    hits, whole = past.at(hours)
    usual = (hits.sum() + 0.5) / (whole.sum() + 1.0)
    rate = (hits + usual) / (whole + 1.0)
    return rate, rate * (1.0 - rate) / (whole + 1.0)


def _risen(seen: Floats, hour: Integers, past: Hours, shift: int, spread: Floats) -> Floats:
    """Log odds ratio of each onset in an earlier week, less a standard error."""
    hours, of_block = np.unique(hour, return_inverse=True)
    rate, noise = _rates(past, hours + shift)
    before, error = _mixed(seen, rate, noise, of_block)
    after, error_after = (side[::-1] for side in _mixed(seen[::-1], rate, noise, of_block[::-1]))
    errors = error / (before * (1.0 - before)) ** 2 + error_after / (after * (1.0 - after)) ** 2
    ratio = np.log(after / (1.0 - after)) - np.log(before / (1.0 - before))
    return np.asarray(ratio - np.sqrt(spread * errors))


def _mixed(seen: Floats, rate: Floats, noise: Floats, hour: Integers) -> tuple[Floats, Floats]:
    """Mean rate of the blocks before each onset, and its variance; blocks of one hour share their error."""
    total = np.maximum(np.cumsum(seen), 1e-9)
    begins = np.flatnonzero(np.diff(hour, prepend=-1) != 0)
    own = np.add.reduceat(seen, begins)  # of each hour, in the order of the blocks
    number = np.cumsum(np.diff(hour, prepend=-1) != 0) - 1
    complete = np.concatenate([[0.0], np.cumsum(own**2 * noise[hour[begins]])])
    partly = np.cumsum(seen) - np.concatenate([[0.0], np.cumsum(own)])[number]
    variance = (complete[number] + partly**2 * noise[hour]) / total**2
    mean = np.cumsum(seen * rate[hour]) / total
    # Nothing seen yet: what is usual, as unsure as of one hour.
    is_empty = np.cumsum(seen) <= 0.0
    mean, variance = np.where(is_empty, rate[hour], mean), np.where(is_empty, noise[hour], variance)
    return mean[:-1], variance[:-1]
