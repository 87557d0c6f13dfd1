"""Clusters of rows: by entity and by stretch of time.

Errors of rows in one cluster are dependent. A stretch is a day if there are enough days to estimate their
scatter, else an hour. With fewer stretches their scatter is unknown and ignored: results then hold only for
the period of the rows, which is named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.intp]
LEAST_STRETCHES, LEAST_EFFECTIVE = 8, 6.0
"""Minimum number of stretches for a scatter estimate, and minimum equivalent number of equally large ones."""


class Scatter(NamedTuple):
    """Estimated variance of a sum or figure, with its degrees of freedom."""

    variance: float
    freedom: float


@dataclass(frozen=True, slots=True)
class Clusters:
    """Entity and stretch of time of each row.

    Attributes
    ----------
    entities
        Index of each row's entity, shape (rows,).
    stretches
        Index of each row's stretch, shape (rows,); None if there are too few.
    crossing
        Index of each row's (entity, stretch) pair, shape (rows,).
    stretch
        Period to which results are limited; empty if there are enough days, or no times were given.
    """

    entities: Numbers
    stretches: Numbers | None = None
    crossing: Numbers | None = None
    stretch: str = ""

    @classmethod
    def of(
        cls,
        entities: Sequence[Any] | NDArray[Any] = (),
        times: NDArray[np.datetime64] | None = None,
        *,
        rows: int | None = None,
    ) -> Self:
        """Clusters of rows.

        Parameters
        ----------
        entities
            Entity of each row, None for a row without one; empty if no row has one.
        times
            Event time of each row; rows with NaT form one stretch.
        rows
            Number of rows, if neither argument gives it.
        """
        count = rows if rows is not None else max(len(entities), 0 if times is None else len(times))
        units = _numbers(entities, count)
        known = np.zeros(0, np.bool_) if times is None else ~np.isnat(times)
        if times is None or not known.any():
            return cls(units)
        days, hours = (np.unique(times.astype(f"M8[{unit}]"), return_inverse=True) for unit in "Dh")
        stretch = "" if _is_enough(days[1][known]) else _period_text(times[known], days[0], hours[0])
        for _, stretches in (days, hours):
            if _is_enough(stretches[known]):
                both = units * (int(stretches.max()) + 1) + stretches
                return cls(units, stretches, np.unique(both, return_inverse=True)[1], stretch)
        return cls(units, stretch=stretch)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the smaller number of clusters."""
        kinds = [self.entities] if self.stretches is None else [self.entities, self.stretches]
        return min(int(of.max(initial=0)) for of in kinds)

    def take(self, rows: NDArray[np.intp]) -> "Clusters":
        """Clusters of some of the rows."""

        def of(numbers: Numbers) -> Numbers:
            return np.unique(numbers[rows], return_inverse=True)[1]

        if self.stretches is None or self.crossing is None:
            return Clusters(of(self.entities), stretch=self.stretch)
        return Clusters(of(self.entities), of(self.stretches), of(self.crossing), self.stretch)

    def by_entity(self, residuals: Floats) -> Scatter:
        """Scatter of the sum of residuals, by entity alone."""
        return _scatter(residuals, self.entities)

    def scatter(self, residuals: Floats) -> Scatter:
        """Scatter of the sum of residuals, by entity and stretch.

        Rows that share neither are independent: the variance between entities and that between stretches,
        less that between the crossings of both, never below the larger of the two.

        References
        ----------
        Cameron, Gelbach & Miller, "Robust inference with multiway clustering", Journal of Business & Economic
        Statistics 2011, eq. 2.4.
        """
        return self.combined(lambda numbers: _scatter(residuals, numbers))

    def combined(self, of: Callable[[Numbers], Scatter]) -> Scatter:
        """Two-way scatter, from a function of one-way clusters."""
        own = of(self.entities)
        if self.stretches is None or self.crossing is None:
            return own
        shared = of(self.stretches)
        larger = max(own, shared)
        both = own.variance + shared.variance - of(self.crossing).variance
        return Scatter(max(both, larger.variance), larger.freedom)


def freedom_of(values: Floats) -> float:
    """Degrees of freedom of a variance estimate, reduced by kurtosis.

    References
    ----------
    Satterthwaite, "An approximate distribution of estimates of variance components", 1946.
    """
    squares, count = np.square(values - values.mean()), len(values)
    total = float(squares.sum())
    if total <= 0.0:
        return float(count - 1)
    kurtosis = max(count * float(np.square(squares).sum()) / total**2 - 3.0, 0.0)
    return 2.0 / (2.0 / (count - 1) + kurtosis / count)


def _scatter(residuals: Floats, clusters: Numbers) -> Scatter:
    sums = np.bincount(clusters, residuals).astype(np.float64)
    count = len(sums)
    if count < 2:
        return Scatter(0.0, 0.0)
    return Scatter(float(np.square(sums).sum()) * count / (count - 1), freedom_of(sums))


def _numbers(entities: Sequence[Any] | NDArray[Any], rows: int) -> Numbers:
    """Index of each row's entity; rows without one get their own."""
    if not len(entities):
        return np.arange(rows)
    if isinstance(entities, np.ndarray) and entities.dtype.kind in "iu":
        return np.unique(entities, return_inverse=True)[1]
    places: dict[Any, int] = {}
    keys = ((row,) if name is None or name != name else name for row, name in enumerate(entities))
    return np.array([places.setdefault(key, len(places)) for key in keys], dtype=np.intp)


def _is_enough(stretches: Numbers) -> bool:
    rows = np.bincount(stretches).astype(np.float64)
    effective = float(rows.sum() ** 2 / np.square(rows).sum())
    return len(rows) >= LEAST_STRETCHES and effective >= LEAST_EFFECTIVE


def _period_text(times: NDArray[np.datetime64], days: NDArray[Any], hours: NDArray[Any]) -> str:
    days, hours = (each[~np.isnat(each)] for each in (days, hours))
    if len(times) > 1 and times.min() == times.max():
        return "rows whose event times do not differ"
    if len(days) > 1:
        return f"{days[0]} to {days[-1]}, {len(days)} days"
    return f"{days[0]}, " + (f"{len(hours)} hours of one day" if len(hours) > 1 else "one hour")
