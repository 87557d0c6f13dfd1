"""Adaptive selection, the default policy.

Labels go where earlier labels found errors, spread over what differs.
"""

import numpy as np
from numpy.typing import NDArray

from .badge import Gradients
from .state import SelectionState

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]

OPEN_SHARE = 0.5
"""Share of the draws, after the first round, that no assertion is asked for."""
MEMORY = 0.5
"""What a label counts one round later: the model has learnt since."""
PRIOR_LABELS = 8.0
"""As many labels is the agreement between assertions worth before there are any."""
CO_FIRING = 1.5
"""A record on which k assertions fire weighs k to this power."""
DRAWS = 4096


class Adaptive:
    """Thompson sampling over assertions, k-means++ inside; the default.

    After the first round half of the draws are open to every record, in proportion to the squared distance
    between its gradient embedding and those picked so far (BADGE). The other half, and all of the first
    round, go to an assertion, inside it in proportion to severity rank x co-firing x that distance. The
    assertion is the one of the highest precision in a draw from their posteriors: Beta, from the labels
    bought where it fired, an older one counting less. Before there are labels, an assertion is believed as
    far as others fire where it does more often than chance would have it: noise agrees with nobody.

    Unlike BAL it needs no fall in fires, so assertions that look at inputs alone are not starved.
    Without embeddings the uncertainty column, and without that nothing, stands for the distance.

    Parameters
    ----------
    severities
        Shape (records, assertions).
    state
        Labels bought in earlier rounds.
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
        """Least probability of a record: 0.0, or None when nothing is left.

        0.0 is that of a record like one that was picked.
        """
        shares, open_share = self._live_shares()
        return 0.0 if shares.any() or open_share else None

    def draw(self, rng: np.random.Generator) -> tuple[int, int] | None:
        """Row of the next pick and its assertion, -1 for open.

        An open draw belongs to no assertion.
        """
        shares, open_share = self._live_shares()
        if not shares.any() and not open_share:
            return None
        code = int(rng.choice(len(shares) + 1, p=np.append(shares, open_share)))
        if code == len(shares):
            return _drawn(self._worth, rng), -1
        rows = self._flagged[code]
        return int(rows[_drawn(self._worth[rows] * self._rank[code], rng)]), code

    def probability(self, row: int) -> float:
        """Probability that the next draw picks ``row``, for whatever assertion or none."""
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
        """Lower the worth of records like the pick."""
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
        """Probability of each assertion and of an open draw, among those with a record left."""
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
    """Share of posterior draws in which each assertion is most precise."""
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
    """Lift / (1 + lift): how often others fire on an assertion's records, over how often on all."""
    counts = fired.sum(axis=0).astype(np.float64)
    both = fired.T.astype(np.float32) @ fired.astype(np.float32)
    seen = both.sum(axis=1) - counts
    expected = counts * (counts.sum() - counts) / max(len(fired), 1)
    lift = np.divide(seen, expected, out=np.ones(len(counts)), where=expected > 0)
    return np.asarray(lift / (1.0 + lift))


def _ranks(values: Floats) -> Floats:
    """1/n for the smallest up to 1 for the largest."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(1.0, len(values) + 1) / max(len(values), 1)
    return ranks


def _drawn(weights: Floats, rng: np.random.Generator) -> int:
    table = np.cumsum(weights)
    return int(np.searchsorted(table, rng.random() * table[-1], side="right"))
