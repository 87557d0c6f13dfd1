"""Variation among blocks of the reference, and of a current window."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .counting import ColumnCounts

Floats = NDArray[np.float64]
FEWEST_WINDOWS = 3
"""Minimum number of stretches, as long as the current window, that a reference must have."""
_FLAT = 0.3
"""Prior probability that the scatter does not last longer than a block."""
_COURSES = np.array(
    [(0.0, 0.0), *((slope, 4.0**power) for slope in (1.0, 2.0) for power in (-3, -2, -1, 0, 1))]
).T
"""Growth curves of slow scatter: exponent of the length (up to 2.0, a random walk), and size relative to
independent blocks."""
_DIRECTIONS = 2
"""Maximum number of independent directions in which slow scatter moves a distribution."""
_BEYOND_CHANCE = 1e-3
_OF_UNSEEN = 2 / 3
"""Exponent that maps the dispersion of all values to that of unseen ones; measured without drift."""


@dataclass(frozen=True, slots=True)
class BlockScatter:
    """Scatter between blocks of the reference, by length of time.

    Each block is compared with all blocks together. Runs of records, and seasons, make blocks differ by more
    than chance; a current window is expected to differ as much. How much a longer window differs depends on
    how long effects last: differences of neighbouring stretches of 1, 2, 4, … blocks give the probability of
    several growth curves, from independent blocks to a random walk.

    Attributes
    ----------
    dispersion
        >= 1: 1 for independent records. Pearson's chi-square of blocks by groups over its degrees of freedom;
        for numbers that of the cumulative groups, if it is larger.
    spread
        1 if all groups are equally dispersed, larger if few of them are: one plus the squared coefficient of
        variation of the dispersions in all directions.
    blocks
        Number of blocks.
    is_beyond_chance
        True if blocks differ more than those of independent records would in 999 of 1,000 cases.
    courses
        Probability, level, exponent and size ratio of each growth curve.

    References
    ----------
    Rao and Scott, "On chi-squared tests for multiway contingency tables with cell proportions estimated from
    survey data", Annals of Statistics 1984: the corrections of first and second order, with blocks as
    clusters. Squared dispersions are corrected for the part that chance adds with few blocks. Allan,
    "Statistics of atomic frequency standards", Proceedings of the IEEE 1966: differences of neighbouring
    stretches by their length, for each kind of noise.
    """

    dispersion: float
    spread: float
    blocks: int
    is_beyond_chance: bool = False
    courses: tuple[tuple[float, float, float, float], ...] = ((1.0, 1.0, 1.0, 0.0),)

    @classmethod
    def of(cls, table: Floats, *, is_ordered: bool = False) -> "BlockScatter":
        """Scatter from effective records by block (in order) and group."""
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
        """True if blocks differ beyond chance, probably for longer than a block."""
        return self.is_beyond_chance and self.courses[0][0] < 0.5

    def shows_windows(self, reference: float, current: float) -> bool:
        """True if the reference shows how much such windows differ.

        It has three stretches as long as the current one, or its blocks differ by chance alone.
        """
        return reference >= FEWEST_WINDOWS * current or not self.is_beyond_chance

    def variances(self, reference: float, current: float) -> tuple[Floats, Floats]:
        r"""Probability of each growth curve, and its variance of share differences.

        The variance is in units of one record's. If scatter does not outlast a block: :math:`\varphi (1 / N +
        1 / n)`. Slow scatter adds the variance that its growth curve gives for the mean of a window of that
        length. Each variance is at least that of independent records, and at most that of a window that
        differs as much as one block: :math:`\varphi / N + 1 / n + (\varphi - 1) / \min(n, N / B)`.

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
    """Scatter of a column: its distribution, missing values and unseen values."""

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
        """Scatter of unseen values, which are few.

        That of all values, reduced for categories, and if the reference shows how much windows differ.
        """
        is_less = not self.is_ordered or self.shape.shows_windows(reference, current)
        power = _OF_UNSEEN if is_less else 1.0
        return replace(self.shape, dispersion=max(self.unseen, self.shape.dispersion**power))


def _events(events: Floats, rows: Floats) -> Floats:
    return np.column_stack([events, rows - events])


def _courses(table: Floats, *, is_ordered: bool) -> tuple[tuple[float, float, float, float], ...]:
    """Growth curves with their posterior probabilities."""
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
    """Lengths 1, 2, 4, … in blocks, dispersion between neighbouring stretches, and its degrees of freedom."""
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
    """Variance of (mean of a stretch after the reference - mean of the reference).

    In units of half the variance between two neighbouring blocks; ``length`` in blocks.
    """
    whole = _variance_of(
        slope, (0.0, blocks, blocks + length), (1 / blocks, -1 / length - 1 / blocks, 1 / length)
    )
    return whole / (0.5 * _variance_of(slope, (0.0, 1.0, 2.0), (1.0, -2.0, 1.0)))


def _variance_of(slope: float, ends: tuple[float, ...], weights: tuple[float, ...]) -> float:
    """Variance of a weighted sum of cumulative noise at ``ends``, up to a constant factor."""
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
    """Variance of blocks' cumulative shares relative to independent records, all groups together."""
    table = table[table.sum(axis=1) > 0]
    rows = table.sum(axis=1)
    every = np.cumsum(table.sum(axis=0))[:-1] / rows.sum()
    own = np.cumsum(table, axis=1)[:, :-1] / rows[:, None]
    alone = float((every * (1 - every)).sum()) * max(len(rows) - 1, 1)
    return float((rows[:, None] * (own - every) ** 2).sum()) / alone if alone else 1.0
