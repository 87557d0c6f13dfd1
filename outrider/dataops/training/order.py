"""Order of an epoch: fresh rows and newly drawn old ones.

A function of seed and number of the epoch alone, so that any position of a training can be resumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .options import Rehearsal

Places = NDArray[np.int64]
_SHUFFLE, _DRAW = 1, 2


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """Epochs see all ``fresh`` rows and ``drawn`` of each stratum of ``old``."""

    fresh: Places
    old: Places
    strata: NDArray[np.int64]
    drawn: Sequence[int]
    seed: int

    @property
    def rows(self) -> int:
        return len(self.fresh) + sum(self.drawn)

    def epoch(self, number: int) -> Places:
        rows = np.concatenate([self.fresh, self._draw(number)])
        return rows[np.argsort(_numbers(self.seed, number, _SHUFFLE, len(rows)), kind="stable")]

    def _draw(self, number: int) -> Places:
        if sum(self.drawn) == len(self.old):
            return self.old
        luck = _numbers(self.seed, number, _DRAW, len(self.old))
        ranked = np.lexsort((luck, self.strata))  # by stratum, and at random in each
        sizes = np.bincount(self.strata, minlength=len(self.drawn))
        starts = np.cumsum(sizes) - sizes
        within = np.arange(len(ranked)) - np.repeat(starts, sizes)
        return self.old[ranked[within < np.repeat(np.asarray(self.drawn), sizes)]]


def quotas(sizes: NDArray[np.int64], wanted: int, rehearsal: Rehearsal) -> list[int]:
    """Rows to draw from each stratum, ``wanted`` in all if possible.

    ``stratified`` draws in proportion, at least one each if possible; ``balanced`` the same number of each.
    """
    wanted = min(wanted, int(sizes.sum()))
    if rehearsal == "stratified" and wanted:
        share = sizes * wanted / sizes.sum()
        found = np.floor(share).astype(np.int64)
        if np.count_nonzero(sizes) <= wanted:
            found = np.maximum(found, sizes > 0)
        while found.sum() > wanted:
            found[np.argmax(np.where(found > 1, found - share, -np.inf))] -= 1
        while found.sum() < wanted:
            found[np.argmax(np.where(found < sizes, share - found, -np.inf))] += 1
        return [int(count) for count in found]
    low, high = 0, int(sizes.max(initial=0))
    while low < high:  # the most that each may give without more than is wanted
        level = (low + high + 1) // 2
        low, high = (level, high) if np.minimum(sizes, level).sum() <= wanted else (low, level - 1)
    found = np.minimum(sizes, low)
    found[np.flatnonzero(found < sizes)[: wanted - int(found.sum())]] += 1
    return [int(count) for count in found]


def step_ends(rows: int, batch_rows: int, *, joins_single: bool) -> list[int]:
    """With ``joins_single`` a single last row joins the previous step."""
    ends = [*range(batch_rows, rows, batch_rows), rows]
    if joins_single and len(ends) > 1 and rows - ends[-2] == 1 < batch_rows:
        del ends[-2]
    return ends


def _numbers(seed: int, epoch: int, purpose: int, count: int) -> NDArray[np.uint64]:
    """Counter-based, so equal in every release of numpy."""
    key = np.array([seed, 4 * epoch + purpose], np.uint64)
    return np.random.Philox(key=key).random_raw(count)
