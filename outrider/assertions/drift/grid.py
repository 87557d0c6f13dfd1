"""Histogram on a logarithmic grid around a centre, for any number."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CODES = 65_536
INFINITE = 0x7FF0
"""Code of infinity; larger codes are NaN."""
_SIGN = 0x8000
_CHUNK = 125_000
"""Number of values per pass: temporary arrays stay in the CPU cache."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Histogram cells of a column of numbers.

    There are sixteen cells for each doubling of the distance from the centre. The cell of a value is the
    upper sixteen bits of its distance from the centre as a double: sign, exponent and four bits of the
    fraction. So the width of a cell is at most 1/16 of its distance from the centre, no range is needed, and
    missing and infinite values have cells of their own.

    Attributes
    ----------
    centre
        Approximate median of the reference; finite.

    References
    ----------
    Tene, "HdrHistogram", 2012: cells of constant relative width. This grid has them on both sides of a
    centre.

    Examples
    --------
    >>> found = Grid(0.0).counts(np.array([1.0, 1.01, np.inf, np.nan, -3.0]))
    >>> int(found.finite.sum()), found.missing, found.infinite
    (3, 1, 1)
    """

    centre: float

    @property
    def _origin(self) -> float:
        """Centre with a sign for zero, so that 0.0 and -0.0 get the same cell."""
        return self.centre or -0.0

    def codes(self, values: NDArray[Any]) -> NDArray[np.uint16]:
        """Cell code of each value, shape (n,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.subtract(values, self._origin, dtype=np.float64)
        return np.ascontiguousarray(apart.view(np.uint16)[_TOP::4])

    def counts(self, values: NDArray[Any], weights: Floats | None = None) -> "GridCounts":
        """Counts of values, or sums of their weights, in one pass.

        Parameters
        ----------
        values
            Numbers, shape (n,); NaN is missing.
        weights
            >= 0, shape (n,); 1 by default.
        """
        found = np.zeros(CODES, dtype=np.int64 if weights is None else np.float64)
        apart = np.empty(min(_CHUNK, len(values)))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(values), _CHUNK):
                part = values[start : start + _CHUNK]
                here = np.subtract(part, self._origin, out=apart[: len(part)], dtype=np.float64)
                weight = None if weights is None else weights[start : start + _CHUNK]
                found += np.bincount(here.view(np.uint16)[_TOP::4], weight, minlength=CODES)
        return GridCounts(found)

    def edges(self, cells: Ints) -> tuple[Floats, Floats]:
        """Lower and upper end of ordered cells, in the column's unit."""
        ends = (_distance(cells), _distance(cells + 1))
        return self.centre + ends[0], self.centre + ends[1]


_TOP = 3 if np.little_endian else 0


def _distance(cells: Ints) -> Floats:
    """Lower end of ordered cells as a distance from the centre."""
    is_below = cells < INFINITE
    codes = np.where(is_below, INFINITE - cells, cells - INFINITE).astype(np.uint64)
    size = np.minimum(codes << np.uint64(48), np.uint64(0x7FEFFFFFFFFFFFFF)).view(np.float64)
    found: Floats = np.where(is_below, -size, size)
    return found


def code_of(cells: Ints) -> Ints:
    """Code of ordered cells."""
    return np.where(cells < INFINITE, _SIGN + INFINITE - 1 - cells, cells - INFINITE)


@dataclass(frozen=True, slots=True)
class GridCounts:
    """Counts or weights by code of a :class:`Grid`, shape (65536,). Counts of two parts add up."""

    codes: NDArray[Any]

    def __add__(self, other: "GridCounts") -> "GridCounts":
        return GridCounts(self.codes + other.codes)

    @property
    def finite(self) -> NDArray[Any]:
        """Counts of finite values by ascending cell, shape (2 * 32752,)."""
        return np.concatenate([self.codes[_SIGN : _SIGN + INFINITE][::-1], self.codes[:INFINITE]])

    @property
    def missing(self) -> float:
        """Count of missing values."""
        return self._of(self.codes[INFINITE + 1 : _SIGN].sum() + self.codes[_SIGN + INFINITE + 1 :].sum())

    @property
    def infinite(self) -> float:
        """Count of infinite values."""
        return self._of(self.codes[INFINITE] + self.codes[_SIGN + INFINITE])

    @staticmethod
    def _of(value: Any) -> float:
        found: float = value.item()
        return found
