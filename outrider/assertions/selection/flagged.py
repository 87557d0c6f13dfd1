"""Draw an assertion, then a record by severity: `uniform`, `bal`."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

REBUILD = 0.5
"""Maximum share of removed weight in a column's sampling table before it is rebuilt."""


class Flagged:
    """Policy that draws flagged records in proportion to severity rank.

    An assertion is drawn in proportion to ``shares`` among those that have a record left; within it rank 1 is
    the least severe and weights grow linearly with the rank, as in BAL. A draw costs O(log n): the table of
    an assertion is not updated, and draws of removed records are repeated.
    """

    def __init__(self, severities: Floats, shares: Floats) -> None:
        self.shares = shares
        self._rows: list[Rows] = []
        self._weights: list[Floats] = []
        self._table: list[Floats] = []
        self._weight_of = np.zeros(severities.shape)
        for code in range(severities.shape[1]):
            rows = np.flatnonzero(severities[:, code] > 0)
            rows = rows[np.argsort(severities[rows, code], kind="stable")]
            weights = np.arange(1.0, len(rows) + 1)
            self._weight_of[rows, code] = weights
            self._rows.append(rows)
            self._table.append(np.cumsum(weights))
        self._left = self._weight_of.sum(axis=0)
        self._count = (self._weight_of > 0).sum(axis=0)
        self._free = np.ones(len(severities), dtype=np.bool_)

    def floor(self, population: int) -> float | None:  # noqa: ARG002 - a policy may need it
        """Minimum probability, or None if no flagged record is left.

        Always 0.0: records without flags have no chance.
        """
        return 0.0 if self._count.any() else None

    def draw(self, rng: np.random.Generator) -> tuple[int, int] | None:
        """Row and assertion of the next pick; None without flagged records."""
        share = self._live_shares()
        if not share.any():
            return None
        code = int(rng.choice(len(share), p=share))
        self._refresh(code)
        table = self._table[code]
        while True:
            row = int(self._rows[code][np.searchsorted(table, rng.random() * table[-1], side="right")])
            if self._free[row]:
                return row, code

    def probability(self, row: int) -> float:
        """Probability that the next draw picks ``row``, over all assertions."""
        weights = self._weight_of[row] * self._free[row]
        inside = np.divide(weights, self._left, out=np.zeros(len(weights)), where=self._count > 0)
        return float(self._live_shares() @ inside)

    def remove(self, rows: Rows) -> None:
        """Remove rows: picked, or too similar to a pick."""
        rows = rows[self._free[rows]]
        self._free[rows] = False
        self._left -= self._weight_of[rows].sum(axis=0)
        self._count -= (self._weight_of[rows] > 0).sum(axis=0)

    def pick(self, row: int) -> None:
        """Ignore a pick; the caller removes the row."""

    def _live_shares(self) -> Floats:
        share = np.where(self._count > 0, self.shares, 0.0)
        if not share.any():
            share = (self._count > 0).astype(np.float64)  # those with a share are used up: the rest alike
        return share / (share.sum() or 1.0)

    def _refresh(self, code: int) -> None:
        if self._left[code] < REBUILD * self._table[code][-1]:
            rows = self._rows[code]
            self._rows[code] = rows = rows[self._free[rows]]
            self._table[code] = np.cumsum(self._weight_of[rows, code])
