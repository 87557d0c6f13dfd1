"""Overdispersion of shares among windows, by which counts are reduced."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEWEST_WINDOWS = 20
"""Minimum number of windows for an estimate of overdispersion."""
_COARSEST = 6
"""Minimum number of blocks; windows are pooled into longer blocks down to this."""


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Variation of a share among windows, relative to independent observations.

    Long-lived entities, rhythms and uneven weights increase the differences between windows. Counts are
    divided by that factor, so that a test for independent observations (:class:`~.ShiftDetector`) stays
    valid. **Guarantee**: exact if observations are independent but for groups of at most ``ratio`` equal ones
    (a fortune raised to a power of at most 1 is a supermartingale); approximate if shares of windows vary
    normally. The ratio includes the error of an estimate from few windows, as in Student's test.

    Parameters
    ----------
    ratio
        Number of observations that count as one, >= 1, shape (streams,).
    most
        Cap on the observations of a window, shape (streams,): those of a mean window.
    windows
        Number of windows with observations, shape (streams,).

    References
    ----------
    Rao and Scott, "On chi-squared tests for multiway contingency tables with cell proportions estimated from
    survey data", Annals of Statistics 1984 (counts divided by a design effect).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> seen = np.full((2, 168), 400.0)
    >>> alone, in_runs = rng.binomial(400, 0.3, 168), 20 * rng.binomial(20, 0.3, 168)
    >>> found = Dispersion.of(np.stack([alone, in_runs]).astype(float), seen, needed=15.0)
    >>> bool(found.ratio[0] < 2), bool(found.ratio[1] > 15)
    (True, True)
    """

    ratio: Floats
    most: Floats
    windows: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        hits: Floats,
        seen: Floats,
        *,
        needed: float,
        group: NDArray[np.int64] | None = None,
        column: NDArray[np.int64] | None = None,
    ) -> Self:
        """Overdispersion from windows in order of time.

        Parameters
        ----------
        hits, seen
            Shape (streams, windows).
        needed
            Evidence that a single window may contribute without a false alarm, in nats.
        group, column
            Group whose streams share one estimate (below 0: none), and group of each stream whose estimate is
            its minimum, shape (streams,): rare streams alone show too little.
        """
        is_there = seen > 0
        windows = is_there.sum(axis=1)
        most = seen.sum(axis=1) / np.maximum(windows, 1)
        own = np.minimum(seen, most[:, None])
        won = own * np.divide(hits, seen, out=np.zeros_like(hits), where=is_there)
        both = (np.full(len(hits), -1),) * 2 if group is None or column is None else (group, column)
        ratio = _ratio(won, own, *both) * _student(windows - 1, needed)
        width = 2
        while hits.shape[1] // width >= _COARSEST:
            begin = hits.shape[1] % width
            blocks = (
                np.add.reduceat(side, np.arange(begin, hits.shape[1], width), axis=1) for side in (won, own)
            )
            ratio = np.maximum(ratio, _ratio(*blocks, *both))
            width *= 2
        return cls(np.maximum(ratio, 1.0), most, windows)

    def effective(self, hits: Floats, seen: Floats) -> tuple[Floats, Floats]:
        """Effective hits and observations.

        For one window, shape (streams,), or many, shape (streams, windows).
        """
        shape = (slice(None), *(None,) * (hits.ndim - 1))
        own = np.minimum(seen, self.most[shape]) / self.ratio[shape]
        share = np.divide(hits, seen, out=np.zeros_like(hits), where=seen > 0)
        return np.asarray(own * share), np.asarray(own)


def _ratio(hits: Floats, seen: Floats, group: NDArray[np.int64], column: NDArray[np.int64]) -> Floats:
    """Pearson's chi-square over its degrees of freedom, per stream or its group, shape (streams,)."""
    total = seen.sum(axis=1)
    share = hits.sum(axis=1) / np.where(total > 0, total, 1.0)
    away = np.divide(hits - seen * share[:, None], np.sqrt(seen), out=np.zeros_like(hits), where=seen > 0)
    found = (away**2).sum(axis=1)
    alone = share * (1.0 - share) * np.maximum((seen > 0).sum(axis=1) - 1, 1)
    ratio: Floats = np.divide(found, alone, out=np.ones_like(found), where=alone > 0)
    inside = group >= 0
    if inside.any():
        columns = int(max(group.max(), column.max())) + 1
        whole, expected = (np.bincount(group[inside], side[inside], columns) for side in (found, alone))
        together = np.divide(whole, expected, out=np.ones_like(whole), where=expected > 0)
        ratio = np.maximum(ratio, np.where(column >= 0, together[column], 1.0))
    return ratio


def _student(freedom: NDArray[np.int64], needed: float) -> Floats:
    """Factor that widens a variance estimated with few degrees of freedom.

    With it, a deviation of probability :math:`e^{-s}` keeps that probability: :math:`(1 + 2 s c / f)^{-f / 2}
    = e^{-s}`.
    """
    own = np.maximum(freedom, 1).astype(np.float64)
    return np.asarray(np.expm1(np.minimum(2.0 * needed / own, 50.0)) * own / (2.0 * needed))
