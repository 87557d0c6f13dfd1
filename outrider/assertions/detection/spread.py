"""Overdispersion of a rate: rhythms and spells."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEWEST = 3
"""Minimum degrees of freedom of a variance."""


class _Ratio(NamedTuple):
    """Variance relative to independent hits, and its degrees of freedom; shape (streams, onsets) each."""

    value: Floats
    free: Floats

    @property
    def is_known(self) -> NDArray[np.bool_]:
        return self.free >= FEWEST

    def least(self, unknown: Floats) -> Floats:
        """Value less one standard error, so that noise costs no evidence.

        ``unknown`` if there are too few degrees of freedom.
        """
        lower = self.value / (1.0 + np.sqrt(2.0 / np.maximum(self.free, 1.0)))
        return np.where(self.is_known, np.maximum(lower, 1.0), unknown)


@dataclass(frozen=True, slots=True)
class Spread:
    r"""Overdispersion of rates between stretches of blocks before an onset.

    Arrays have shape (streams, blocks - 1), one column per onset between two blocks.

    Attributes
    ----------
    overall
        Pearson's :math:`\chi^2` over its degrees of freedom less a standard error, the maximum over all
        widths, >= 1.0; includes rhythms and spells.
    local
        The same between neighbouring stretches, for widths up to that of a peak; includes spells only.
    highest
        Highest rate of a stretch, of the widest width that is at most a peak; 0.0 if none is complete.

    References
    ----------
    McCullagh and Nelder, "Generalized Linear Models", 1989, section 4.5 (dispersion); von Neumann,
    "Distribution of the ratio of the mean square successive difference to the variance", Annals of
    Mathematical Statistics 1941.
    """

    overall: Floats
    local: Floats
    highest: Floats

    @classmethod
    def of(
        cls,
        hits: Floats,
        seen: Floats,
        widths: Sequence[int],
        *,
        peak: int,
        expected: Floats | None = None,
    ) -> Self:
        """Overdispersion of streams.

        A width with too few stretches takes the spread of the previous width, scaled in proportion.

        Parameters
        ----------
        hits, seen
            Per block in order of time, shape (streams, blocks).
        widths
            Stretch lengths in blocks, rising.
        peak
            Widest stretch within which a rhythm is nearly constant.
        expected
            Rate of each block relative to the mean according to a known rhythm, which does not count as
            spread, shape (blocks,).

        Examples
        --------
        >>> hits = np.array([[2, 3, 2, 3, 2, 3, 2, 3], [0, 5, 0, 5, 0, 5, 0, 5]], dtype=float)
        >>> found = Spread.of(hits, np.full((2, 8), 50.0), [1], peak=1)
        >>> found.overall[:, -1].round(1).tolist(), found.highest[:, -1].tolist()
        ([1.0, 2.1], [0.06, 0.1])
        """
        shape = len(hits), hits.shape[1] - 1
        overall, local, highest, dispersion = np.ones(shape), np.ones(shape), np.zeros(shape), np.ones(shape)
        last = 1
        for width in widths:
            own, whole = _stretches(hits, width), _stretches(seen, width)
            usual = whole if expected is None else _stretches(seen * expected, width)
            between = _Ratio(*(_per_onset(one, width, shape[1]) for one in _pearson(own, usual)))
            dispersion = between.least(1.0 + (dispersion - 1.0) * width / last)
            last = width
            overall = np.maximum(overall, dispersion)
            if width <= peak:
                near = _Ratio(*(_per_onset(one, width, shape[1]) for one in _successive(own, usual)))
                local = np.maximum(local, near.least(dispersion))
                rate = own / np.maximum(whole, 1.0)
                highest = _per_onset(np.maximum.accumulate(rate, axis=1), width, shape[1])
        return cls(overall, local, highest)

    def row(self, stream: int) -> Self:
        """Spread of one stream."""
        return self._cut(slice(stream, stream + 1), slice(None))

    def since(self, block: int) -> Self:
        """Spread of the onsets after a block."""
        return self._cut(slice(None), slice(block, None))

    def _cut(self, streams: slice, onsets: slice) -> Self:
        return replace(self, **{one: getattr(self, one)[streams, onsets] for one in self.__slots__})


def _stretches(side: Floats, width: int) -> Floats:
    """Sums over complete stretches, shape (streams, stretches)."""
    count = (side.shape[1] - 1) // width
    return np.asarray(side[:, : count * width].reshape(len(side), count, width).sum(axis=2))


def _per_onset(figures: Floats, width: int, onsets: int) -> Floats:
    """Figure of the stretches complete before each onset, shape (streams, onsets). 0.0 before the first."""
    complete = (np.arange(onsets) + 1) // width
    padded = np.concatenate([np.zeros((len(figures), 1)), figures], axis=1)
    return np.asarray(padded[:, complete])


def _pearson(own: Floats, whole: Floats) -> tuple[Floats, Floats]:
    """Pearson's statistic over the stretches up to each, and its degrees of freedom."""
    squares = np.cumsum(own**2 / np.maximum(whole, 1.0), axis=1)
    total, counted = np.cumsum(own, axis=1), np.cumsum(whole, axis=1)
    free = np.cumsum(whole > 0, axis=1, dtype=np.float64) - 1.0
    around = squares - total**2 / np.maximum(counted, 1.0)
    return around / (_independent(total, counted) * np.maximum(free, 1.0)), free


def _successive(own: Floats, whole: Floats) -> tuple[Floats, Floats]:
    """Variance between neighbouring stretches over that of independent hits, and the number of pairs."""
    rate, before = own / np.maximum(whole, 1.0), slice(None, -1)
    is_pair = (whole[:, 1:] > 0) & (whole[:, before] > 0)
    size = whole[:, 1:] * whole[:, before] / np.maximum(whole[:, 1:] + whole[:, before], 1.0)
    around = np.cumsum(np.where(is_pair, np.diff(rate, axis=1) ** 2 * size, 0.0), axis=1)
    pairs = np.cumsum(is_pair, axis=1, dtype=np.float64)
    usual = _independent(np.cumsum(own, axis=1), np.cumsum(whole, axis=1))[:, 1:]
    first = np.zeros((len(own), min(1, own.shape[1])))
    value = around / (usual * np.maximum(pairs, 1.0))
    return np.concatenate([first, value], axis=1), np.concatenate([first, pairs], axis=1)


def _independent(hits: Floats, seen: Floats) -> Floats:
    """Variance of an independent hit, ``p (1 - p)``."""
    rate = (hits + 0.5) / (seen + 1.0)
    return np.asarray(rate * (1.0 - rate))
