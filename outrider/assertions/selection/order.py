"""Policies without assertions: random order, or most uncertain first."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]


class Ordered:
    """Policy that takes records in a fixed order. The next pick is certain."""

    def __init__(self, order: Rows) -> None:
        self._order = order
        self._free = np.ones(len(order), dtype=np.bool_)
        self._next = 0

    def floor(self, population: int) -> float | None:  # noqa: ARG002 - Shuffled needs it
        """Minimum probability, or None without records. Always 0.0: all but the next record have none."""
        return 0.0 if self._free.any() else None

    def draw(self, rng: np.random.Generator) -> tuple[int, int] | None:  # noqa: ARG002 - nothing is left to chance
        """Row of the next pick, for no assertion."""
        while self._next < len(self._order) and not self._free[self._order[self._next]]:
            self._next += 1
        return (int(self._order[self._next]), -1) if self._next < len(self._order) else None

    def probability(self, row: int) -> float:
        """1.0 for the next record in order, else 0.0."""
        found = self.draw(np.random.default_rng(0))
        return float(found is not None and found[0] == row)

    def remove(self, rows: Rows) -> None:
        """Remove rows from the draw."""
        self._free[rows] = False

    def pick(self, row: int) -> None:
        """Ignore a pick."""


class Shuffled(Ordered):
    """Policy that takes the remaining records with equal probability."""

    def floor(self, population: int) -> float | None:
        """Minimum probability: that of all records. 0.0 if removed records are still open to the audit."""
        free = int(self._free.sum())
        if not free:
            return None
        return 1.0 / population if free == population else 0.0

    def probability(self, row: int) -> float:
        """Equal probability of each record that is left."""
        return float(self._free[row] / max(int(self._free.sum()), 1))
