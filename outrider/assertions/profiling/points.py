"""Points of a distribution, each representing at least ten entities.

Used for displayed quantiles, extremes and curves. A sketch that keeps sampled values, such as KLL, would
expose single records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cells import Floats, Ints, cell_middle

LEAST_ENTITIES = 10
"""Minimum number of entities per kept value."""
POINTS = 400
"""Maximum number of points per column: each holds 0.25 % of its window, or the minimum."""


@dataclass(frozen=True, slots=True)
class Points:
    """Cells in order with the weight around each, shape (points,)."""

    cells: Ints
    weights: Floats

    @classmethod
    def nothing(cls) -> "Points":
        """Points of a column with too few entities."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0))

    @classmethod
    def of(cls, cells: Ints, weights: Floats, entities: Ints) -> "Points":
        """Points of neighbouring cells, each of at least ten entities.

        Parameters
        ----------
        cells
            Occupied cells in order, shape (n,).
        entities
            Number of entities in each cell, each entity in one cell only, shape (n,).
        """
        total = int(entities.sum())
        if total < LEAST_ENTITIES:
            return cls.nothing()
        return _joined(cells, weights, entities, max(LEAST_ENTITIES, total / (POINTS // 2)))

    @classmethod
    def merged(cls, parts: Sequence["Points"]) -> "Points":
        """Points of all parts, at most ``POINTS``. The rank error grows by 0.25 %."""
        there, at = np.unique(np.concatenate([one.cells for one in parts]), return_inverse=True)
        summed = np.bincount(at, np.concatenate([one.weights for one in parts]), len(there))
        weights = summed.astype(np.float64)
        if len(there) <= POINTS:
            return cls(there, weights)
        return _joined(there, weights, weights, float(weights.sum()) / (POINTS // 2))

    def quantiles(self, ranks: NDArray[np.float64], centre: float) -> Floats:
        """Values at ``ranks`` in [0, 1]; NaN without points."""
        if not len(self.cells):
            return np.full(len(ranks), np.nan)
        ends = np.cumsum(self.weights)
        at = np.searchsorted(ends, np.asarray(ranks) * ends[-1])
        return cell_middle(self.cells[np.minimum(at, len(ends) - 1)], centre)


def _joined(cells: Ints, weights: Floats, sizes: NDArray[Any], least: float) -> Points:
    """Join neighbours until each group has ``least`` of ``sizes``; each group's median cell represents it."""
    sizes = sizes.astype(np.float64)
    group = np.floor((np.cumsum(sizes) - sizes) / least).astype(np.int64)
    group = np.cumsum(np.diff(group, prepend=group[0]) > 0)
    enough = np.bincount(group, sizes) >= least * (1 - 1e-12)
    # A group that is too small joins the next that is not; the rest joins the last.
    target = np.minimum(np.cumsum(enough) - enough, max(int(enough.sum()) - 1, 0))
    group = target[group]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    summed, ends = np.add.reduceat(weights, starts), np.cumsum(weights)
    middle = np.searchsorted(ends, ends[starts] - weights[starts] + summed / 2)
    return Points(cells[np.minimum(middle, len(cells) - 1)], summed)
