"""Paired differences by entity and hour.

What one entity does within an hour is one observation: the mean over its records. The more an hour of an
entity differs, the less is set on its next one: what lasts for hours counts little more than once. Records
without an entity may all be of one source, and are taken as one.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.bets import UNIT_BETS
from outrider.assertions.statistics.difference_sequence import mean_bounds
from outrider.assertions.statistics.loss_bounds import bound_of_mean

LEAST_STAKE = 0.1
"""Share of a bet that is set on an hour of an entity whose last hour differed in all records."""


@dataclass(frozen=True, slots=True)
class EntityHours:
    """Mean difference of each entity's hours, in order of both, shape (n,)."""

    entity: NDArray[np.int64]
    """0 where records name none."""
    value: NDArray[np.float64]
    """In [-1, 1]."""
    stake: NDArray[np.float64]
    """Share of each bet that is set on the hour, by the one before it of the same entity."""

    @classmethod
    def of(cls, entity: NDArray[np.int64], hour: NDArray[np.int64], more: NDArray[np.float64]) -> Self:
        """Hours of records with a difference in [-1, 1] each.

        Examples
        --------
        >>> found = EntityHours.of(np.array([1, 1, 2]), np.array([5, 5, 5]), np.array([1.0, 0.0, -1.0]))
        >>> found.value.tolist(), found.stake.tolist(), found.entities
        ([0.5, -1.0], [1.0, 1.0], 2)
        """
        since = hour - hour.min(initial=0)
        unit = entity * (since.max(initial=0) + 1) + since
        _, first, at = np.unique(unit, return_index=True, return_inverse=True)
        value = np.bincount(at, more) / np.bincount(at)
        return cls(entity[first], value, _stakes(value, entity[first]))

    @property
    def entities(self) -> int:
        """Number of named entities."""
        return len(set(self.entity.tolist()) - {0})

    @property
    def difference(self) -> float:
        """Mean by stakes; 0.0 without hours."""
        return float(np.average(self.value, weights=self.stake)) if len(self.value) else 0.0

    def bounds(self, error: float, bets: NDArray[np.float64] = UNIT_BETS) -> tuple[float, float]:
        """Bounds of the mean, one-sided at ``error`` each, however often one looks."""
        return mean_bounds(self.value, self.stake, 1 - 2 * error, bets=bets)

    def low_across(self, error: float) -> float:
        """One-sided lower bound of the mean by the scatter of the entities.

        Each may have a preference of its own that lasts, of which :meth:`bounds` knows nothing: it speaks of
        the entities that were seen. Records without one are one; where no record has one, hours scatter.
        -1.0 of fewer than two.
        """
        of = self.entity if self.entity.any() else np.arange(len(self.entity))
        at = np.unique(of, return_inverse=True)[1]
        sums, weight = np.bincount(at, self.stake * self.value), np.bincount(at, self.stake)
        if len(sums) < 2:
            return -1.0
        mean = float(sums.sum() / weight.sum())
        return mean - bound_of_mean((sums - weight * mean) * (len(sums) / float(weight.sum())), error)

    def without_loudest(self) -> "EntityHours":
        """Hours without the named entity that raises the mean most."""
        names, at = np.unique(self.entity, return_inverse=True)
        loudness = np.bincount(at, self.stake * self.value, minlength=len(names)) * (names != 0)
        if not (loudness > 0).any():
            return self
        kept = self.entity != names[loudness.argmax()]
        return EntityHours(self.entity[kept], self.value[kept], self.stake[kept])


def _stakes(values: NDArray[np.float64], entity: NDArray[np.int64]) -> NDArray[np.float64]:
    """Stake on each observation by the one before it of the same entity. In the order of both."""
    stake = np.ones(len(values))
    is_next = entity[1:] == entity[:-1]
    stake[1:][is_next] = np.maximum(1 - np.abs(values[:-1][is_next]), LEAST_STAKE)
    return stake
