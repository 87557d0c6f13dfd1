"""Variation of the reference among its blocks, and of a current window."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .counting import ColumnCounts

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Variation:
    """Dispersion of held-out blocks of the reference, against that of independent records.

    A block is held against all blocks together. Records that come in runs, and seasons, make blocks differ
    by more than chance; a current window is expected to differ as much.

    Attributes
    ----------
    shape
        Dispersion of the distribution, >= 1: 1 for independent records. Pearson's chi-square of blocks by
        groups over its degrees of freedom; of numbers that of the cumulated groups, where it is larger.
    spread
        1 where all groups are dispersed alike, more where few of them are: one plus the squared coefficient
        of variation of the dispersions in all directions.
    missing, unseen
        Dispersion of the shares of missing and unseen values, >= 1.
    blocks
        Number of blocks.

    References
    ----------
    Rao and Scott, "On chi-squared tests for multiway contingency tables with cell proportions estimated from
    survey data", Annals of Statistics 1984: the corrections of first and second order, with blocks as
    clusters. The squared dispersions are without the part that chance among so few blocks adds.
    """

    shape: float
    spread: float
    missing: float
    unseen: float
    blocks: int

    @classmethod
    def of(cls, counts: ColumnCounts) -> "Variation":
        """Variation of a column."""
        table = counts.blocks[:, counts.blocks.sum(axis=0) > 0]
        shape, spread = _dispersion(table)
        if counts.is_ordered:
            shape = max(shape, _cumulated(table))
        missing = _of_share(counts.missing_blocks, counts.rows_blocks)
        unseen = _of_share(counts.unseen_blocks, counts.blocks.sum(axis=1))
        # Values beyond all others are too few to show their own dispersion.
        return cls(shape, spread, missing, max(unseen, shape), len(counts.blocks))


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


def _of_share(events: Floats, rows: Floats) -> float:
    total = events.sum()
    if not 0 < total < rows.sum():
        return 1.0
    return _dispersion(np.column_stack([events, rows - events]))[0]


def variance(dispersion: float, reference: float, current: float, blocks: int) -> float:
    r"""Variance of a difference of shares, over that of one record.

    :math:`\varphi / N + 1 / n + (\varphi - 1) / \min(n, N / B)`: the reference is the mean of its B blocks;
    a current window no longer than a block differs as one, and one that is longer still as one block, for
    what makes blocks differ may be slower than they are long.

    Parameters
    ----------
    dispersion
        >= 1.
    reference, current
        Effective records, N and n, above 0.
    """
    own = min(current, reference / max(blocks, 1))
    return dispersion / reference + 1.0 / current + (dispersion - 1.0) / own
