"""Variation of the reference among its blocks, and of a current window."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .counting import ColumnCounts

Floats = NDArray[np.float64]
FEWEST_WINDOWS = 3
"""Stretches as long as the current window that a reference needs to show how much they differ."""
_FLAT = 0.3
"""Chance, before the blocks are seen, that their scatter lasts no longer than a block."""
_COURSES = np.array(
    [(0.0, 0.0), *((slope, 4.0**power) for slope in (1.0, 2.0) for power in (-3, -2, -1, 0, 1))]
).T
"""Growth of slow scatter with length, up to that of a random walk, and its size beside independent blocks."""
_DIRECTIONS = 2
"""Directions in which slow scatter moves a distribution, at most."""
_BEYOND_CHANCE = 1e-3
_OF_UNSEEN = 2 / 3
"""Power of the dispersion of all values that unseen ones have: measured on streams without drift."""


@dataclass(frozen=True, slots=True)
class BlockScatter:
    """Scatter of blocks of the reference, by the length of a stretch.

    A block is held against all blocks together. Records that come in runs, and seasons, make blocks differ
    by more than chance; a current window is expected to differ as much. How much a window of many blocks
    differs depends on what lasts: differences of neighbouring stretches of 1, 2, 4, … blocks say how likely
    each of some courses is, from independent blocks, whose means scatter less the more there are, to a random
    walk.

    Attributes
    ----------
    dispersion
        >= 1: 1 for independent records. Pearson's chi-square of blocks by groups over its degrees of freedom;
        of numbers that of the cumulated groups, where it is larger.
    spread
        1 where all groups are dispersed alike, more where few of them are: one plus the squared coefficient
        of variation of the dispersions in all directions.
    blocks
        Number of blocks.
    is_beyond_chance
        True where blocks differ more than those of independent records would once in a thousand times.
    courses
        Chance, dispersion of independent blocks, slope and ratio of slow scatter of each course.

    References
    ----------
    Rao and Scott, "On chi-squared tests for multiway contingency tables with cell proportions estimated from
    survey data", Annals of Statistics 1984: the corrections of first and second order, with blocks as
    clusters. The squared dispersions are without the part that chance among so few blocks adds.
    Allan, "Statistics of atomic frequency standards", Proceedings of the IEEE 1966: differences of
    neighbouring stretches by their length, for each kind of noise.
    """

    dispersion: float
    spread: float
    blocks: int
    is_beyond_chance: bool = False
    courses: tuple[tuple[float, float, float, float], ...] = ((1.0, 1.0, 1.0, 0.0),)

    @classmethod
    def of(cls, table: Floats, *, is_ordered: bool = False) -> "BlockScatter":
        """Scatter of a table of blocks in order by groups, effective records."""
        from scipy.special import chdtrc

        table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
        if len(table) < 2 or table.shape[1] < 2:
            return cls(1.0, 1.0, len(table))
        dispersion, spread = _dispersion(table)
        if is_ordered:
            dispersion = max(dispersion, _cumulated(table))
        freedom = (len(table) - 1) * min(_DIRECTIONS, table.shape[1] - 1)
        is_beyond_chance = chdtrc(freedom, dispersion * freedom) < _BEYOND_CHANCE
        courses = _courses(table, is_ordered=is_ordered)
        return cls(dispersion, spread, len(table), bool(is_beyond_chance), courses)

    @property
    def is_slow(self) -> bool:
        """True where blocks differ beyond chance, and likely for long."""
        return self.is_beyond_chance and self.courses[0][0] < 0.5

    def shows_windows(self, reference: float, current: float) -> bool:
        """True where the reference shows how much such windows differ.

        It has three stretches as long as the current one, or its blocks differ by chance alone.
        """
        return reference >= FEWEST_WINDOWS * current or not self.is_beyond_chance

    def variances(self, reference: float, current: float) -> tuple[Floats, Floats]:
        r"""Chance of each course, and variance of a difference of shares.

        The variance is over that of one record. Blocks that scatter no longer than they are:
        :math:`\varphi (1 / N + 1 / n)`. Slow scatter adds what its course says of the mean of so long a
        window against that of the reference. No course adds less
        than independent records do, nor more than a window that differs as one block does, however long:
        :math:`\varphi / N + 1 / n + (\varphi - 1) / \min(n, N / B)`.

        Parameters
        ----------
        reference, current
            Effective records, N and n, above 0.
        """
        block = reference / max(self.blocks, 1)
        both = 1.0 / reference + 1.0 / current
        most = both + (self.dispersion - 1.0) * (1.0 / reference + 1.0 / min(current, block))
        found = [
            level * (both + ratio * (_growth(slope, self.blocks, current / block) / block if ratio else 0.0))
            for _, level, slope, ratio in self.courses
        ]
        return np.array([chance for chance, *_ in self.courses]), np.clip(found, both, max(most, both))


@dataclass(frozen=True, slots=True)
class Variation:
    """Scatter of distribution and missing values, dispersion of unseen ones."""

    shape: BlockScatter
    missing: BlockScatter
    unseen: float
    is_ordered: bool

    @classmethod
    def of(cls, counts: ColumnCounts) -> "Variation":
        """Variation of a column."""
        shape = BlockScatter.of(counts.blocks, is_ordered=counts.is_ordered)
        missing = BlockScatter.of(_events(counts.missing_blocks, counts.rows_blocks))
        unseen = _events(counts.unseen_blocks, counts.blocks.sum(axis=1))
        own = _dispersion(unseen)[0] if unseen.any(axis=0).all() else 1.0
        return cls(shape, missing, own, counts.is_ordered)

    def of_unseen(self, reference: float, current: float) -> BlockScatter:
        """Scatter of unseen values, too few to show all of their own.

        That of all values, less where the reference shows how much windows differ, and of categories, which
        do not creep beyond those that are known.
        """
        is_less = not self.is_ordered or self.shape.shows_windows(reference, current)
        power = _OF_UNSEEN if is_less else 1.0
        return replace(self.shape, dispersion=max(self.unseen, self.shape.dispersion**power))


def _events(events: Floats, rows: Floats) -> Floats:
    return np.column_stack([events, rows - events])


def _courses(table: Floats, *, is_ordered: bool) -> tuple[tuple[float, float, float, float], ...]:
    """Courses of scatter with length, each with its chance once the blocks are seen."""
    lengths, found, freedom = _neighbours(table, is_ordered=is_ordered)
    slopes, ratios = _COURSES
    course = 1.0 + ratios[:, None] * lengths ** slopes[:, None]
    levels = np.maximum(1.0, (freedom * found / course).sum(axis=1) / freedom.sum())
    expected = levels[:, None] * course
    fits = -0.5 * (freedom * (np.log(expected) + found / expected)).sum(axis=1)
    chances = np.exp(fits - fits.max()) * np.where(ratios == 0, _FLAT, (1 - _FLAT) / (len(ratios) - 1))
    chances /= chances.sum()
    return tuple(zip(*(each.tolist() for each in (chances, levels, slopes, ratios)), strict=True))


def _neighbours(table: Floats, *, is_ordered: bool) -> tuple[Floats, Floats, Floats]:
    """Dispersion between neighbouring stretches of 1, 2, 4, … blocks, with its degrees of freedom."""
    rows = table.sum(axis=1)
    shares = table.sum(axis=0) / rows.sum()
    upto, seen = (
        np.concatenate([np.zeros_like(each[:1]), np.cumsum(each, axis=0)]) for each in (table, rows)
    )
    every = np.cumsum(shares)[:-1]
    lengths, found, freedom = [], [], []
    for length in (2**power for power in range(len(table).bit_length() - 1)):
        counts, sizes = (each[length:] - each[:-length] for each in (upto, seen))
        one, two = slice(None, -length), slice(length, None)
        apart = counts[one] / sizes[one, None] - counts[two] / sizes[two, None]
        apart /= np.sqrt(1 / sizes[one] + 1 / sizes[two])[:, None]
        own = float((apart**2 / shares).sum(axis=1).mean()) / (len(shares) - 1)
        if is_ordered:
            steps = np.cumsum(apart, axis=1)[:, :-1]
            own = max(own, float((steps**2).sum(axis=1).mean()) / float((every * (1 - every)).sum()))
        lengths.append(float(length))
        found.append(own)
        # Of overlapping stretches about 0.7 are as good as independent ones.
        freedom.append(max(1.0, 0.7 * len(apart) / length) * min(_DIRECTIONS, len(shares) - 1))
    return np.array(lengths), np.array(found), np.array(freedom)


@lru_cache(maxsize=256)
def _growth(slope: float, blocks: int, length: float) -> float:
    """Variance of the mean of a stretch behind the reference against that of the reference.

    Over half the variance between two neighbouring blocks, for scatter of a slope; length in blocks.
    """
    whole = _variance_of(
        slope, (0.0, blocks, blocks + length), (1 / blocks, -1 / length - 1 / blocks, 1 / length)
    )
    return whole / (0.5 * _variance_of(slope, (0.0, 1.0, 2.0), (1.0, -2.0, 1.0)))


def _variance_of(slope: float, ends: tuple[float, ...], weights: tuple[float, ...]) -> float:
    """Variance of a weighted sum of cumulated noise, in units of its own, its sign with them."""
    apart = np.abs(np.subtract.outer(ends, ends))
    covariance = apart ** (slope + 1)
    if slope == 1:
        covariance *= np.log(np.maximum(apart, 1e-300))
    return float(np.array(weights) @ covariance @ np.array(weights))


def _dispersion(table: Floats) -> tuple[float, float]:
    """Pearson's chi-square of blocks by groups over its degrees of freedom, and its spread."""
    table = table[table.sum(axis=1) > 0]
    blocks, groups = table.shape[0] - 1, table.shape[1] - 1
    if blocks < 1 or groups < 1:
        return 1.0, 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    residual = (table - expected) / np.sqrt(expected)
    total = float((residual**2).sum()) / blocks
    squares = float(((residual.T @ residual / blocks) ** 2).sum()) - total**2 / blocks
    spread = groups * squares / total**2 if total else 1.0
    return max(1.0, total / groups), min(max(1.0, spread), float(groups))


def _cumulated(table: Floats) -> float:
    """Variance of blocks' cumulated shares over that of independent records, all groups together."""
    table = table[table.sum(axis=1) > 0]
    rows = table.sum(axis=1)
    every = np.cumsum(table.sum(axis=0))[:-1] / rows.sum()
    own = np.cumsum(table, axis=1)[:, :-1] / rows[:, None]
    alone = float((every * (1 - every)).sum()) * max(len(rows) - 1, 1)
    return float((rows[:, None] * (own - every) ** 2).sum()) / alone if alone else 1.0
