"""Paired differences by entity and hour: what one entity does within an hour is one observation, the mean
over its records. The more one hour differed, the less is staked on the entity's next one, so what lasts
for hours counts little more than once."""

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
    entity: NDArray[np.int64]
    """0 where records name none."""
    value: NDArray[np.float64]
    """In [-1, 1]."""
    stake: NDArray[np.float64]
    """Share of each bet that is staked on this hour, given the one before it of the same entity."""

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
        return len(set(self.entity.tolist()) - {0})

    @property
    def difference(self) -> float:
        return float(np.average(self.value, weights=self.stake)) if len(self.value) else 0.0

    def bounds(self, error: float, bets: NDArray[np.float64] = UNIT_BETS) -> tuple[float, float]:
        """Bounds of the mean, one-sided at ``error`` each, however often one looks."""
        return mean_bounds(self.value, self.stake, 1 - 2 * error, bets=bets)

    def low_across(self, error: float) -> float:
        """One-sided lower bound from the scatter between entities.

        :meth:`bounds` speaks of the entities that were seen; an entity may have a lasting preference.
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
        names, at = np.unique(self.entity, return_inverse=True)
        loudness = np.bincount(at, self.stake * self.value, minlength=len(names)) * (names != 0)
        if not (loudness > 0).any():
            return self
        kept = self.entity != names[loudness.argmax()]
        return EntityHours(self.entity[kept], self.value[kept], self.stake[kept])


def _stakes(values: NDArray[np.float64], entity: NDArray[np.int64]) -> NDArray[np.float64]:
    stake = np.ones(len(values))
    is_next = entity[1:] == entity[:-1]
    stake[1:][is_next] = np.maximum(1 - np.abs(values[:-1][is_next]), LEAST_STAKE)
    return stake
