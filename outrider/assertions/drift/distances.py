"""Distances of two distributions, from values or counts in cells."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEAST_SHARE = 1e-4
"""Share that replaces an empty cell in PSI, which would be infinite otherwise."""
_CELLS = 16_384
"""Number of cells that narrow down where the greatest distance lies."""
_WORTH = 0.3
"""Share of values above which sorting all is faster than sorting those of some cells."""


def ks_distance(reference: ArrayLike, current: ArrayLike) -> float:
    """Kolmogorov-Smirnov distance, exact, in [0, 1].

    Only values near the greatest distance are sorted: counts per cell bound the distance inside each cell,
    which excludes most cells.

    Parameters
    ----------
    reference, current
        Finite values, shapes (n,) and (m,), in any order.

    Returns
    -------
    float
        ``nan`` if one of them is empty.

    Raises
    ------
    ValueError
        If a value is not finite.

    References
    ----------
    Smirnov, "Table for estimating the goodness of fit of empirical distributions", Annals of Mathematical
    Statistics 1948.

    Examples
    --------
    >>> ks_distance([1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0])
    0.5
    """
    one, two = _values(reference, "reference"), _values(current, "current")
    if not len(one) or not len(two):
        return float("nan")
    if len(one) + len(two) > _CELLS and (found := _ks_by_cells(one, two)) is not None:
        return found
    few, many = sorted((np.sort(one), np.sort(two)), key=len)
    none = np.zeros(len(few), dtype=np.int64)
    return _ks_of_sorted((few, many), (none, none), (len(few), len(many)))


def _values(values: ArrayLike, name: str) -> Floats:
    found = np.asarray(values, dtype=np.float64).reshape(-1)
    # A sum is finite where all values are, unless it overflows.
    with np.errstate(over="ignore", invalid="ignore"):
        is_plain = np.isfinite(found.sum())
    if not is_plain and not np.isfinite(found).all():
        wrong = int((~np.isfinite(found)).sum())
        raise ValueError(f"{name}: finite values expected, got {wrong} null or infinite of {len(found)}")
    return found


def _ks_by_cells(one: Floats, two: Floats) -> float | None:
    """Distance by branch and bound over a table of cells; None if sorting all is as fast."""
    low, high = np.quantile(one[:: max(1, len(one) // 4096)], [0.01, 0.99])
    if not 0 < high - low < np.inf:
        return None
    scale = _CELLS / (high - low)
    cells = [_cells(each, low, scale) for each in (one, two)]
    counts = [np.bincount(cell, minlength=_CELLS + 2) for cell in cells]
    before = [np.concatenate([[0], np.cumsum(count)]) for count in counts]
    shares = [each / each[-1] for each in before]
    least = np.abs(shares[0] - shares[1]).max()
    most = np.maximum(shares[0][1:] - shares[1][:-1], shares[1][1:] - shares[0][:-1])
    chosen = most > least
    if counts[1][chosen].sum() > _WORTH * len(two):
        return None
    kept = [np.sort(each[chosen[cell]]) for each, cell in zip((one, two), cells, strict=True)]
    # Values of other cells that lie below those of each chosen one.
    skipped = [np.cumsum(np.where(chosen, 0, count))[chosen] for count in counts]
    few, many = sorted((0, 1), key=lambda side: len(kept[side]))
    cell = np.repeat(np.arange(int(chosen.sum())), counts[few][chosen])
    below = skipped[few][cell], skipped[many][cell]
    sizes = int(before[few][-1]), int(before[many][-1])
    return max(float(least), _ks_of_sorted((kept[few], kept[many]), below, sizes))


def _cells(values: Floats, low: float, scale: float) -> NDArray[np.int32]:
    """Cell of each value: 0 below the table, the last one above."""
    place = values - low
    place *= scale
    np.clip(place, -1.0, _CELLS, out=place)
    place += 1.0
    return place.astype(np.int32)


def _ks_of_sorted(parts: tuple[Floats, Floats], below: tuple[Ints, Ints], sizes: tuple[int, int]) -> float:
    """Greatest distance at or just below the values of the first of two sorted samples.

    ``below`` is the number of further values of both below each value of the first; ``sizes`` counts all.
    """
    values, others = parts
    if not len(values):
        return 0.0
    is_last = np.ones(len(values), dtype=bool)
    is_last[:-1] = values[1:] != values[:-1]
    points, upto = values[is_last], np.flatnonzero(is_last) + 1
    right = others.searchsorted(points, "right")
    left = right.copy()
    tied = np.flatnonzero((right > 0) & (others[right - 1] == points)) if len(others) else right[:0]
    left[tied] = others.searchsorted(points[tied], "left")
    under = np.concatenate([[0], upto[:-1]])
    more, other = below[0][is_last], below[1][is_last]
    at = np.abs((upto + more) / sizes[0] - (right + other) / sizes[1]).max()
    return float(max(at, np.abs((under + more) / sizes[0] - (left + other) / sizes[1]).max()))


def ks_of_counts(reference: ArrayLike, current: ArrayLike) -> float:
    """Kolmogorov-Smirnov distance of counts in ordered cells, in [0, 1].

    Lower than the exact distance by at most the share of one cell.

    Parameters
    ----------
    reference, current
        Counts or weights, shape (cells,), cells in ascending order.

    Returns
    -------
    float
        ``nan`` where one of them is empty.

    Raises
    ------
    ValueError
        If shapes differ, or a count is negative or not finite.

    Examples
    --------
    >>> round(ks_of_counts([2, 2, 0], [1, 1, 2]), 12)
    0.5
    """
    one, two = _shares(reference, current)
    return float(np.abs(np.cumsum(one - two)).max()) if len(one) else float("nan")


def total_variation(reference: ArrayLike, current: ArrayLike) -> float:
    """Total variation of counts in the same cells, in [0, 1].

    The largest difference in the share of any set of cells.

    Examples
    --------
    >>> round(total_variation([50, 50], [80, 20]), 12)
    0.3
    """
    one, two = _shares(reference, current)
    return 0.5 * float(np.abs(one - two).sum()) if len(one) else float("nan")


def psi(reference: ArrayLike, current: ArrayLike, *, least_share: float = LEAST_SHARE) -> float:
    """Population stability index of counts in the same cells, >= 0.

    Symmetric Kullback-Leibler divergence in nats. The index grows with the number of cells over the number of
    records, so a fixed limit such as 0.2 is meaningless.

    Parameters
    ----------
    reference, current
        Counts or weights, shape (cells,).
    least_share
        Replaces smaller shares, in (0, 1).

    References
    ----------
    Yurdakul and Naranjo, "Statistical properties of the population stability index", Journal of Risk Model
    Validation 2020.

    Examples
    --------
    >>> round(psi([50, 50], [80, 20]), 4)
    0.4159
    """
    one, two = (np.maximum(each, least_share) for each in _shares(reference, current))
    return float(((two - one) * np.log(two / one)).sum()) if len(one) else float("nan")


def jensen_shannon(reference: ArrayLike, current: ArrayLike) -> float:
    """Jensen-Shannon distance of counts in the same cells, in [0, 1].

    Square root of the divergence in bits.

    References
    ----------
    Endres and Schindelin, "A new metric for probability distributions", IEEE Transactions on Information
    Theory 2003.

    Examples
    --------
    >>> jensen_shannon([1, 0], [0, 1]), round(jensen_shannon([50, 50], [80, 20]), 4)
    (1.0, 0.2704)
    """
    one, two = _shares(reference, current)
    if not len(one):
        return float("nan")
    middle = (one + two) / 2
    divergence = sum(
        0.5 * (each[each > 0] * np.log2(each[each > 0] / middle[each > 0])).sum() for each in (one, two)
    )
    return float(np.sqrt(min(1.0, max(0.0, divergence))))


def wasserstein(reference: ArrayLike, current: ArrayLike) -> float:
    """Wasserstein distance of order 1, in the unit of the values.

    Parameters
    ----------
    reference, current
        Finite values, shapes (n,) and (m,), in any order.

    Returns
    -------
    float
        >= 0; ``nan`` where one of them is empty.

    Raises
    ------
    ValueError
        If a value is not finite.

    References
    ----------
    Vallender, "Calculation of the Wasserstein distance between probability distributions on the line", Theory
    of Probability and its Applications 1974.

    Examples
    --------
    >>> wasserstein([1.0, 2.0, 3.0], [5.0, 6.0, 7.0])
    4.0
    """
    one, two = np.sort(_values(reference, "reference")), np.sort(_values(current, "current"))
    if not len(one) or not len(two):
        return float("nan")
    every = np.sort(np.concatenate([one, two]))
    apart = [part.searchsorted(every[:-1], "right") / len(part) for part in (one, two)]
    return float((np.abs(apart[0] - apart[1]) * np.diff(every)).sum())


def wasserstein_of_counts(reference: ArrayLike, current: ArrayLike, edges: ArrayLike) -> float:
    """Wasserstein distance of counts, values spread evenly inside each cell.

    Parameters
    ----------
    reference, current
        Counts or weights, shape (cells,).
    edges
        Ascending and finite, shape (cells + 1,); the distance is in their unit.

    Examples
    --------
    >>> round(wasserstein_of_counts([10, 0], [0, 10], [0.0, 1.0, 2.0]), 12)
    1.0
    """
    one, two = _shares(reference, current)
    width = np.diff(np.asarray(edges, dtype=np.float64))
    if len(width) != len(one):
        raise ValueError(f"edges: {len(one) + 1} expected for {len(one)} cells, got {len(width) + 1}")
    apart = np.concatenate([[0.0], np.cumsum(one - two)])
    start, end = apart[:-1], apart[1:]
    # Between two edges the difference is a line: the area under its absolute value.
    crosses = start * end < 0
    total = np.abs(start) + np.abs(end)
    area = np.where(crosses, (start**2 + end**2) / (2 * np.where(total > 0, total, 1.0)), total / 2)
    return float((area * width).sum()) if len(one) else float("nan")


def chi_square(reference: ArrayLike, current: ArrayLike) -> tuple[float, int]:
    """Pearson's chi-square of two samples' counts, with its degrees of freedom.

    Parameters
    ----------
    reference, current
        Counts, shape (cells,); cells that are empty in both are left out.

    Returns
    -------
    tuple
        Statistic >= 0, and cells less one; 0.0 and 0 where one sample is empty.

    References
    ----------
    Pearson, "On the probability that two independent distributions of frequency are really samples from the
    same population", Biometrika 1911.

    Examples
    --------
    >>> statistic, freedom = chi_square([50, 50], [80, 20])
    >>> round(statistic, 3), freedom
    (19.78, 1)
    """
    one, two = _counts(reference, current)
    known = one + two > 0
    one, two = one[known], two[known]
    n, m = one.sum(), two.sum()
    if not n or not m:
        return 0.0, 0
    # (O - E)² / E over both rows of the table.
    return float(((one * m - two * n) ** 2 / (one + two)).sum() / (n * m)), len(one) - 1


def _counts(reference: ArrayLike, current: ArrayLike) -> tuple[Floats, Floats]:
    one, two = (np.asarray(each, dtype=np.float64) for each in (reference, current))
    if one.shape != two.shape or one.ndim != 1:
        raise ValueError(f"counts of the same cells expected, got shapes {one.shape} and {two.shape}")
    for name, each in (("reference", one), ("current", two)):
        if not (np.isfinite(each) & (each >= 0)).all():
            raise ValueError(f"{name}: counts >= 0 expected, got {each.min()} to {each.max()}")
    return one, two


def _shares(reference: ArrayLike, current: ArrayLike) -> tuple[Floats, Floats]:
    """Shares of both; empty arrays if one of them has no count."""
    one, two = _counts(reference, current)
    n, m = one.sum(), two.sum()
    return (one / n, two / m) if n and m else (one[:0], two[:0])
