"""Cells of numbers: a fixed logarithmic grid around a centre.

A cell is the sign, the exponent and six bits of the mantissa of ``value - centre`` in single precision, in
order: 64 cells per octave, so that the width of a cell is at most 1.6 % of its distance from the centre.
Computing a cell takes four integer operations; cell counts of any parts add up to those of the whole.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CELLS = 1 << 15
MOST = 1e38
"""Nearly the largest single-precision number; sums and quantiles clip values to it."""
_SHIFT = 17
_SIGN = np.int32(0x7FFFFFFF)


def cells_of(values: Floats, centre: float) -> NDArray[np.int32]:
    """Cell of each value, in [0, CELLS); ascending with the value.

    Parameters
    ----------
    values
        Finite numbers, shape (n,).

    Examples
    --------
    >>> import numpy as np
    >>> found = cells_of(np.array([-3.0, 0.0, 0.001, 5.0]), centre=1.0)
    >>> bool((np.diff(found) > 0).all())
    True
    """
    with np.errstate(over="ignore"):
        return cells_around(values - centre)


def cells_around(away: Floats) -> NDArray[np.int32]:
    """Cell of each distance from the centre, as :func:`cells_of`."""
    with np.errstate(over="ignore"):
        single = away.astype(np.float32)
    single += np.float32(0.0)  # -0.0 is 0.0
    keys = single.view(np.int32)
    keys ^= (keys >> 31) & _SIGN
    keys >>= _SHIFT
    keys += CELLS // 2
    return keys


FIRST, LAST = (int(one) for one in cells_around(np.array([-MOST, MOST])))
"""Cells of the smallest and largest number that sums use unclipped."""


def cell_floor(cells: NDArray[np.integer], centre: float) -> Floats:
    """Smallest value of each cell, shape (n,); infinite outside single precision."""
    keys = (np.asarray(cells, dtype=np.int32) - CELLS // 2) << _SHIFT
    keys ^= (keys >> 31) & _SIGN
    return np.asarray(keys.view(np.float32).astype(np.float64) + centre)


def cell_middle(cells: NDArray[np.integer], centre: float) -> Floats:
    """Middle of each cell, in [-MOST, MOST], shape (n,).

    The cell of the centre has the centre as its middle.
    """
    at = np.asarray(cells, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = cell_floor(at, centre), cell_floor(np.minimum(at + 1, CELLS - 1), centre)
        low = np.clip(np.nan_to_num(low, nan=-np.inf), -MOST, MOST)
        middle = low + (high - low) / 2
    near = at == CELLS // 2
    return np.asarray(np.where(near, centre, np.where(np.isfinite(middle), middle, low)))


def count_cells(cells: NDArray[np.int32], weight: Floats | None = None) -> tuple[Ints, Ints, Floats]:
    """Occupied cells in order, their row counts and weights. Each of shape (cells,)."""
    there: NDArray[np.integer]
    if len(cells) * 8 < CELLS:
        there, at = np.unique(cells, return_inverse=True)
        rows = np.bincount(at, minlength=len(there))
        mass = rows if weight is None else np.bincount(at, weight, len(there))
    else:
        rows = np.bincount(cells, minlength=CELLS)
        there = np.flatnonzero(rows > 0)
        mass = rows[there] if weight is None else np.bincount(cells, weight, CELLS)[there]
        rows = rows[there]
    return there.astype(np.int64), rows.astype(np.int64), mass.astype(np.float64)
