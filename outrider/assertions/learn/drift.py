"""Columns whose values drift within the reference."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.library.reading import Floats, numbers

from .rules import is_name, kind_of, values_of

MOVED = 0.1
"""Minimum distance of a drifting column."""
PARTS = 5


def drifting(reference: Batch, cut: int, columns: Iterable[str]) -> dict[str, float]:
    """Drift distance of each drifting column, in [0, 1].

    Records must be in order of time. The distance is the largest of that between records before and from
    ``cut`` on, and those between each fifth of the records and all others, which detect seasons. It is
    Kolmogorov-Smirnov for numbers, total variation for categories; distances that independent records reach
    by chance are ignored.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> batch = Batch.from_columns({"inputs.x": np.r_[rng.random(700), rng.random(300) + 0.5]}, model="m")
    >>> drifting(batch, 700, ["inputs.x"])
    {'inputs.x': 0.54}
    """
    place = np.arange(reference.rows)
    fifth = place * PARTS // max(1, reference.rows)
    splits = [place >= cut, *(fifth == part for part in range(PARTS))]
    found: dict[str, float] = {}
    for column in columns:
        kind = kind_of(reference, column)
        if kind == "other" or is_name(reference, column):
            continue
        if kind == "number":
            value = numbers(reference, column)
            tested = [_of_numbers(value[~part], value[part]) for part in splits]
        else:
            code, known = values_of(reference, column)
            tested = [_of_categories(code[~part], code[part], len(known)) for part in splits]
        moved = [distance for distance, chance in tested if distance >= max(MOVED, chance)]
        if moved:
            found[column] = round(max(moved), 3)
    return found


def _of_numbers(first: Floats, second: Floats) -> tuple[float, float]:
    first, second = np.sort(first[np.isfinite(first)]), np.sort(second[np.isfinite(second)])
    if not len(first) or not len(second):
        return 0.0, 1.0
    every = np.concatenate([first, second])
    shares = [part.searchsorted(every, "right") / len(part) for part in (first, second)]
    # 1.95: the 0.999 quantile of the limiting distribution (Smirnov, Ann. Math. Stat. 1948).
    return float(np.abs(shares[0] - shares[1]).max()), 1.95 * float(np.sqrt(1 / len(first) + 1 / len(second)))


def _of_categories(first: NDArray[np.int64], second: NDArray[np.int64], size: int) -> tuple[float, float]:
    if not len(first) or not len(second):
        return 0.0, 1.0
    one, two = (np.bincount(part, minlength=size) for part in (first, second))
    both = (one + two) / (len(first) + len(second))
    spread = np.sqrt(both * (1 - both) * (1 / len(first) + 1 / len(second)))
    mean = 0.5 * float(np.sqrt(2 / np.pi) * spread.sum())  # of a sum of |normal| with these deviations
    above = 1.5 * float(np.sqrt((spread**2).sum()))
    return 0.5 * float(np.abs(one / len(first) - two / len(second)).sum()), mean + above
