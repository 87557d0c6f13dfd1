"""BADGE: k-means++ on hypothetical gradients, for uncertain and diverse batches."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Rows = NDArray[np.intp]


class Gradients:
    """Squared distances between last-layer gradient embeddings. The embeddings are not materialised.

    The gradient of a classifier's loss at its own answer is the outer product of the embedding h and
    a = p - onehot(argmax p), so its dot products are (h_i · h_j)(a_i · a_j) and n·(d + c) numbers do instead
    of n·d·c.

    Parameters
    ----------
    embeddings
        Inputs of the last layer, shape (records, width).
    probabilities
        Class probabilities, shape (records, classes).
    """

    def __init__(self, embeddings: Floats, probabilities: Floats) -> None:
        self.h = np.ascontiguousarray(embeddings, dtype=np.float32)
        self.a = np.array(probabilities, dtype=np.float32)
        self.a[np.arange(len(self.a)), self.a.argmax(axis=1)] -= 1.0
        self.squared_norm = np.einsum("ij,ij->i", self.h, self.h) * np.einsum("ij,ij->i", self.a, self.a)

    def squared_distance(self, row: int) -> Floats:
        """Squared distances from all records to one, shape (records,)."""
        dot = (self.h @ self.h[row]) * (self.a @ self.a[row])
        return np.asarray(np.maximum(self.squared_norm + self.squared_norm[row] - 2.0 * dot, 0.0))


class Badge:
    """Policy that draws in proportion to squared distance from earlier picks.

    References
    ----------
    Ash et al., "Deep Batch Active Learning by Diverse, Uncertain Gradient Lower Bounds", ICLR 2020. The first
    record is drawn in proportion to its squared norm (theirs: the largest).
    """

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients
        self._distance = gradients.squared_norm.astype(np.float64)
        self._free = np.ones(len(self._distance), dtype=np.bool_)
        self._first = True

    def floor(self, population: int) -> float | None:  # noqa: ARG002 - a policy may need it
        """Minimum probability of a record, or None without records.

        Always 0.0: a record equal to a picked one has no chance.
        """
        return 0.0 if self._free.any() else None

    def draw(self, rng: np.random.Generator) -> tuple[int, int] | None:
        """Row of the next pick, for no assertion."""
        table = np.cumsum(self._weights())
        if not len(table) or not table[-1] > 0:
            return None
        return int(np.searchsorted(table, rng.random() * table[-1], side="right")), -1

    def probability(self, row: int) -> float:
        """Probability that the next draw picks ``row``."""
        weights = self._weights()
        return float(weights[row] / (weights.sum() or 1.0))

    def remove(self, rows: Rows) -> None:
        """Remove rows from the draw."""
        self._free[rows] = False

    def pick(self, row: int) -> None:
        """Lower the weight of records near the pick."""
        distance = self._gradients.squared_distance(row)
        self._distance = distance.astype(np.float64) if self._first else np.minimum(self._distance, distance)
        self._first = False

    def _weights(self) -> NDArray[np.float64]:
        weights = np.where(self._free, self._distance, 0.0)
        if not weights.any():
            return self._free.astype(np.float64)  # all like what was picked: any will do
        return weights
