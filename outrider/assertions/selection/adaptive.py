"""Adaptive selection, the default policy.

Labels go where earlier labels found errors, spread over diverse records.
"""

import numpy as np
from numpy.typing import NDArray

from .badge import Gradients
from .state import SelectionState

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]

OPEN_SHARE = 0.5
"""Share of draws after the first round that are not tied to an assertion."""
MEMORY = 0.5
"""Weight of a label one round later: the model has been trained since."""
PRIOR_LABELS = 8.0
"""Weight, in labels, of the prior from agreement between assertions."""
CO_FIRING = 1.5
"""Exponent of the number of assertions that fire on a record, in its weight."""
DRAWS = 4096


class Adaptive:
    """Thompson sampling over assertions, k-means++ inside; the default.

    After the first round half of the draws are open to every record, in proportion to the squared distance of
    its gradient embedding from those picked so far (BADGE). The other half, and all of the first round, go to
    an assertion, and within it to records in proportion to severity rank x co-firing x that distance. The
    assertion is the one with the highest precision in a draw from the Beta posteriors, which use the labels
    selected where it fired; older labels count less. The prior precision is how much more often than by
    chance other assertions fire on the same records.

    Unlike BAL it does not need the number of fires to fall, so assertions on inputs alone get labels too.
    Without embeddings the uncertainty column replaces the distance; without that the distance is constant.

    Parameters
    ----------
    severities
        Shape (records, assertions).
    state
        Labels selected in earlier rounds.
    """

    def __init__(
        self,
        severities: Floats,
        state: SelectionState,
        rng: np.random.Generator,
        *,
        uncertainty: Floats | None,
        gradients: Gradients | None,
    ) -> None:
        from scipy.sparse import csc_array

        records, assertions = severities.shape
        fired = severities > 0
        together = fired.sum(axis=1) ** CO_FIRING
        self._flagged = [np.flatnonzero(fired[:, code]) for code in range(assertions)]
        self._rank = [
            _ranks(severities[rows, code]) * together[rows] for code, rows in enumerate(self._flagged)
        ]
        ends = np.cumsum([0, *(len(rows) for rows in self._flagged)])
        empty = np.zeros(0)
        self._weight = csc_array(
            (np.concatenate([empty, *self._rank]), np.concatenate([empty, *self._flagged]).astype(int), ends),
            shape=(records, assertions),
        )
        self._by_record = self._weight.tocsr()
        is_first = not any(any(past.wrong) or any(past.right) for past in state.rounds)
        self._open = 0.0 if is_first and fired.any() else OPEN_SHARE
        self._shares = precision_shares(fired, state, rng)
        self._gradients = gradients
        self._is_first_pick = True
        self._worth = np.ones(records)
        if gradients is not None:
            self._worth = gradients.squared_norm.astype(np.float64)
        elif uncertainty is not None:
            self._worth = (_ranks(uncertainty) if records else uncertainty).astype(np.float64)
        self._free = np.ones(records, dtype=np.bool_)
        self._sums: tuple[Floats, float] | None = None

    def floor(self, population: int) -> float | None:  # noqa: ARG002 - a policy may need it
        """Minimum probability of a record, or None without records.

        Always 0.0: a record equal to a picked one has no chance.
        """
        shares, open_share = self._live_shares()
        return 0.0 if shares.any() or open_share else None

    def draw(self, rng: np.random.Generator) -> tuple[int, int] | None:
        """Row of the next pick and its assertion, -1 for open draws."""
        shares, open_share = self._live_shares()
        if not shares.any() and not open_share:
            return None
        code = int(rng.choice(len(shares) + 1, p=np.append(shares, open_share)))
        if code == len(shares):
            return _drawn(self._worth, rng), -1
        rows = self._flagged[code]
        return int(rows[_drawn(self._worth[rows] * self._rank[code], rng)]), code

    def probability(self, row: int) -> float:
        """Probability that the next draw picks ``row``. Summed over all assertions and open draws."""
        shares, open_share = self._live_shares()
        mass, total = self._masses()
        start, end = self._by_record.indptr[row : row + 2]
        codes, ranks = self._by_record.indices[start:end], self._by_record.data[start:end]
        inside = np.divide(
            shares[codes] * ranks, mass[codes], out=np.zeros(len(codes)), where=mass[codes] > 0
        )
        return float(self._worth[row] * (inside.sum() + (open_share / total if total > 0 else 0.0)))

    def remove(self, rows: Rows) -> None:
        """Remove rows from the draw."""
        self._free[rows] = False
        self._worth[rows] = 0.0
        self._sums = None

    def pick(self, row: int) -> None:
        """Lower the weight of records similar to the pick."""
        if self._gradients is None:
            return
        distance = self._gradients.squared_distance(row)
        nearest = distance if self._is_first_pick else np.minimum(self._worth, distance)
        self._worth = np.where(self._free, nearest, 0.0)
        self._is_first_pick = False
        self._sums = None

    def _masses(self) -> tuple[Floats, float]:
        if self._sums is None:
            if self._free.any() and not self._worth.any():
                self._worth = self._free.astype(np.float64)  # all like what was picked: any will do
            self._sums = self._worth @ self._weight, float(self._worth.sum())
        return self._sums

    def _live_shares(self) -> tuple[Floats, float]:
        """Probability of each assertion and of an open draw, among those with records left."""
        mass, total = self._masses()
        shares = np.where(mass > 0, self._shares, 0.0)
        if not shares.any():
            shares = (mass > 0).astype(np.float64)
        if not total > 0:
            return np.zeros(len(shares)), 0.0
        if not shares.any():
            return shares, 1.0
        return shares / shares.sum() * (1.0 - self._open), self._open


def precision_shares(fired: Bools, state: SelectionState, rng: np.random.Generator) -> Floats:
    """Share of posterior draws in which each assertion has the highest precision."""
    assertions = fired.shape[1]
    wrong, right = state.labels(assertions, memory=MEMORY)
    agreement = _agreement(fired)
    precision = rng.beta(
        PRIOR_LABELS * agreement + wrong[:-1] + 1e-3,
        PRIOR_LABELS * (1.0 - agreement) + right[:-1] + 1e-3,
        size=(DRAWS, assertions),
    )
    precision[:, ~fired.any(axis=0)] = -1.0
    return np.bincount(precision.argmax(axis=1), minlength=assertions) / DRAWS if assertions else np.zeros(0)


def _agreement(fired: Bools) -> Floats:
    """Lift / (1 + lift), where lift is the rate of other fires on an assertion's records over that on all."""
    counts = fired.sum(axis=0).astype(np.float64)
    both = fired.T.astype(np.float32) @ fired.astype(np.float32)
    seen = both.sum(axis=1) - counts
    expected = counts * (counts.sum() - counts) / max(len(fired), 1)
    lift = np.divide(seen, expected, out=np.ones(len(counts)), where=expected > 0)
    return np.asarray(lift / (1.0 + lift))


def _ranks(values: Floats) -> Floats:
    """Rank scaled to (0, 1]: 1/n for the smallest up to 1 for the largest."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(1.0, len(values) + 1) / max(len(values), 1)
    return ranks


def _drawn(weights: Floats, rng: np.random.Generator) -> int:
    table = np.cumsum(weights)
    return int(np.searchsorted(table, rng.random() * table[-1], side="right"))
