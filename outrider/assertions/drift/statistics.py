"""Distances of a column by name."""

import numpy as np
from numpy.typing import NDArray

from .counting import ColumnCounts
from .distances import chi_square, jensen_shannon, ks_of_counts, psi, total_variation, wasserstein_of_counts

Floats = NDArray[np.float64]
DECILES = 10
"""Number of quantile groups of the reference for PSI and Jensen-Shannon of numbers."""


def statistics_of(counts: ColumnCounts) -> dict[str, float]:
    """Distances of both distributions by name, missing values left out.

    Numbers: ``ks``, ``psi`` and ``jensen_shannon`` in deciles of the reference, ``wasserstein`` in the unit
    of the column. Categories: ``total_variation``, ``psi``, ``jensen_shannon``, ``chi_square`` with its
    degrees of freedom. ``ks`` is computed on cells: lower than the exact distance by at most the share of one
    cell.
    """
    one, two = counts.reference, counts.current
    if not counts.is_ordered:
        statistic, freedom = chi_square(*counts.merged())
        return {
            "total_variation": total_variation(one, two),
            "psi": psi(one, two),
            "jensen_shannon": jensen_shannon(one, two),
            "chi_square": statistic,
            "degrees_of_freedom": float(freedom),
        }
    tenths = _tenths(one)
    groups = [np.bincount(tenths, each, minlength=DECILES) for each in (one, two)]
    # Cells without a value between them: the distance goes through them all the same.
    edges = np.column_stack([counts.lower, counts.upper]).reshape(-1)
    wide = [np.column_stack([each, np.zeros(len(each))]).reshape(-1)[:-1] for each in (one, two)]
    return {
        "ks": ks_of_counts(one, two),
        "psi": psi(groups[0], groups[1]),
        "jensen_shannon": jensen_shannon(groups[0], groups[1]),
        "wasserstein": wasserstein_of_counts(wide[0], wide[1], edges),
    }


def _tenths(counts: Floats) -> NDArray[np.int64]:
    """Decile of the reference that each ordered cell belongs to."""
    middle = np.cumsum(counts) - counts / 2
    place = (DECILES * middle / counts.sum()).astype(np.int64)
    found: NDArray[np.int64] = np.minimum(place, DECILES - 1)
    return found
