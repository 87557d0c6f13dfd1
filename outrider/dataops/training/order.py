"""Order of an epoch: fresh rows and newly drawn old ones.

A function of seed and number of the epoch alone, so that any place of a training is found again.
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
    """Order of the rows of each epoch.

    Attributes
    ----------
    fresh, old
        Places of the rows; each epoch sees all fresh ones.
    strata
        Stratum of each old row, and how many of each an epoch sees; see :func:`quotas`.
    """

    fresh: Places
    old: Places
    strata: NDArray[np.int64]
    drawn: Sequence[int]
    seed: int

    @property
    def rows(self) -> int:
        """Rows that an epoch sees."""
        return len(self.fresh) + sum(self.drawn)

    def epoch(self, number: int) -> Places:
        """Fresh rows and the epoch's old ones, in random order."""
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
    """Rows to draw from each stratum, ``wanted`` in all.

    All rows where there are fewer.

    ``stratified`` draws of each its share, and of none fewer than one row while there is room for that;
    ``balanced`` draws as many of each, as far as they go.

    Examples
    --------
    >>> quotas(np.array([900, 95, 5, 0]), 20, "stratified")
    [18, 1, 1, 0]
    >>> quotas(np.array([900, 95, 5, 0]), 20, "balanced")
    [8, 7, 5, 0]
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
        return [int(each) for each in found]
    low, high = 0, int(sizes.max(initial=0))
    while low < high:  # the most that each may give without more than is wanted
        level = (low + high + 1) // 2
        low, high = (level, high) if np.minimum(sizes, level).sum() <= wanted else (low, level - 1)
    found = np.minimum(sizes, low)
    found[np.flatnonzero(found < sizes)[: wanted - int(found.sum())]] += 1
    return [int(each) for each in found]


def step_ends(rows: int, batch_rows: int, *, joins_single: bool) -> list[int]:
    """Ends of an epoch's steps.

    With ``joins_single`` one row that is left over joins the step before.

    Examples
    --------
    >>> step_ends(9, 4, joins_single=False), step_ends(9, 4, joins_single=True)
    ([4, 8, 9], [4, 9])
    """
    ends = [*range(batch_rows, rows, batch_rows), rows]
    if joins_single and len(ends) > 1 and rows - ends[-2] == 1 < batch_rows:
        del ends[-2]
    return ends


def _numbers(seed: int, epoch: int, purpose: int, count: int) -> NDArray[np.uint64]:
    """Numbers of a counter-based generator, the same in every release of numpy."""
    key = np.array([seed, 4 * epoch + purpose], np.uint64)
    return np.random.Philox(key=key).random_raw(count)
