"""Energy distance of embedded texts, with a sequential test."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from outrider.assertions.batch import Batch
from outrider.assertions.statistics.difference_sequence import VALUES, DifferenceSequence

from .agreement import excess
from .comparison import PairedAnswers

Floats = NDArray[np.float64]
_BLAS = ThreadpoolController()
KEPT = 256
"""Size of the random sample of past pairs that defines the witness function."""


@dataclass(frozen=True, slots=True)
class EnergyVerdict:
    """Energy distance of two systems' texts, and its test.

    Attributes
    ----------
    distance
        Energy distance of unit vectors, estimated from the kept pairs, in [0, 4]; 0 for equal distributions.
    value, low, high
        Mean of the witness function on later pairs, in [-1, 1], with bounds valid at all times together.
    rows
        Pairs on which the witness function was evaluated.
    """

    distance: float
    value: float
    low: float
    high: float
    rows: int

    @property
    def is_proven(self) -> bool:
        """True if the texts are proven to have different distributions."""
        return self.low > 0.0

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        return {
            "distance": self.distance,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "records": self.rows,
            "is_proven": self.is_proven,
        }


@dataclass(slots=True)
class EnergyWitness:
    """Sequential test of "both systems answer each question from one distribution".

    The energy distance :math:`2 E|A-B| - E|A-A'| - E|B-B'|` is the mean of :math:`g(A) - g(B)` with the
    witness function :math:`g(z) = E|z-B| - E|z-A|`. Here :math:`g` is estimated from earlier pairs and
    evaluated on the next ones. If the two answers to a question are exchangeable, the difference is symmetric
    around 0 given the past (also after rounding to quarters by an odd function), and no bet on it gains on
    average. So the bounds hold at all times together, without permutations.

    Parameters
    ----------
    rng
        Chooses the pairs that are kept.

    References
    ----------
    Székely and Rizzo, "Energy statistics: a class of statistics based on distances", Journal of Statistical
    Planning and Inference 2013, eq. 2.1; Shekhar and Ramdas, "Nonparametric two-sample testing by betting",
    IEEE Transactions on Information Theory 2024, section III. Our bets are a mixture of fixed ones, on pairs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> apart, alike = (EnergyWitness(np.random.default_rng(1)) for _ in range(2))
    >>> for _ in range(5):
    ...     one, two, more = rng.normal(size=(3, 100, 8))
    ...     apart.update(one, two + 1.0)
    ...     alike.update(one, more)
    >>> apart.verdict(0.99).is_proven, alike.verdict(0.99).is_proven, alike.verdict(0.99).rows
    (True, False, 400)
    """

    rng: np.random.Generator
    _one: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    _two: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    _seen: int = 0
    _sequence: DifferenceSequence = field(default_factory=DifferenceSequence)

    def update(self, one: Floats, two: Floats) -> None:
        """Evaluate the witness function on new pairs, then sample them.

        Parameters
        ----------
        one, two
            Vectors of both answers, shape (n, d); pairs with a non-finite number are left out.

        Raises
        ------
        ValueError
            If shapes differ, or d is not that of earlier pairs.
        """
        width = self._one.shape[1] if self._seen else one.shape[-1]
        if one.shape != two.shape or one.ndim != 2 or one.shape[1] != width:
            raise ValueError(f"vectors of {width} numbers expected, got shapes {one.shape} and {two.shape}")
        known = np.isfinite(one).all(axis=1) & np.isfinite(two).all(axis=1)
        one, two = unit_vectors(one[known]), unit_vectors(two[known])
        if self._seen and len(one):
            scale = _scale(self._differences(self._one, self._two))
            tried = np.clip(self._differences(one, two) / scale, -1.0, 1.0)
            values = VALUES[np.rint(4.0 * tried).astype(np.int64) + 4]
            self._sequence += DifferenceSequence.of(values, np.ones(len(one)))
        self._keep(one, two)

    def verdict(self, confidence: float) -> EnergyVerdict:
        """Distance so far, with bounds valid at all times together."""
        low, high = self._sequence.interval(confidence, is_unweighted=True)
        return EnergyVerdict(self._distance(), self._sequence.mean, low, high, self._sequence.rows)

    def _differences(self, one: Floats, two: Floats) -> Floats:
        """Witness function of one answer less that of the other, shape (n,)."""
        first = _apart(one, self._two).mean(axis=1) - _apart(one, self._one).mean(axis=1)
        other = _apart(two, self._two).mean(axis=1) - _apart(two, self._one).mean(axis=1)
        found: Floats = first - other
        return found

    def _distance(self) -> float:
        """Energy distance of the kept pairs, without each answer's distance from itself."""
        rows = len(self._one)
        if rows < 2:
            return 0.0
        own = sum(_apart(each, each).sum() / (rows * (rows - 1)) for each in (self._one, self._two))
        across = _apart(self._one, self._two)
        # Answers to one question are no independent draws.
        between = (across.sum() - np.trace(across)) / (rows * (rows - 1))
        return max(0.0, float(2 * between - own))

    def _keep(self, one: Floats, two: Floats) -> None:
        """Keep a uniform random sample of all pairs (reservoir)."""
        for first, other in zip(one, two, strict=True):
            self._seen += 1
            if len(self._one) < KEPT:
                self._one = np.vstack([self._one.reshape(-1, len(first)), first])
                self._two = np.vstack([self._two.reshape(-1, len(other)), other])
            elif (place := int(self.rng.integers(self._seen))) < KEPT:
                self._one[place], self._two[place] = first, other


def pair_energies(pair: PairedAnswers, rows: NDArray[np.intp], vectors: Callable[[Batch], Floats]) -> Floats:
    """Distance between two systems' answers less that within each, shape (rows,).

    Where both answered twice it is :func:`~.agreement.excess`; otherwise nothing is subtracted. 0.0 without a
    vector.
    """
    one, two = (unit_vectors(vectors(side.take(rows))) for side in (pair.champion, pair.challenger))
    found: Floats = np.linalg.norm(one - two, axis=1)
    _, here, at = np.intersect1d(rows, pair.asked, return_indices=True)
    if pair.again is not None and pair.challenger_again is not None and len(here):
        more = [unit_vectors(vectors(side.take(at))) for side in (pair.again, pair.challenger_again)]
        four = [one[here], more[0]], [two[here], more[1]]
        cross = [np.linalg.norm(a - b, axis=1) for a in four[0] for b in four[1]]
        own, other = (np.linalg.norm(a - b, axis=1) for a, b in four)
        found[here] = excess(cross, own, other)
    return np.nan_to_num(found)


def unit_vectors(vectors: Floats) -> Floats:
    """Vectors scaled to length 1; zero vectors stay zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: Floats = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    return found


def _apart(one: Floats, two: Floats) -> Floats:
    """Pairwise distances, shape (n, m)."""
    with _BLAS.limit(limits=1):  # on busy cores its threads spin, and wait 30 times the product's own time
        products = one @ two.T
    squares = (one**2).sum(axis=1)[:, None] + (two**2).sum(axis=1)[None, :] - 2.0 * products
    found: Floats = np.sqrt(np.maximum(squares, 0.0))
    return found


def _scale(differences: Floats) -> float:
    """Difference that is scaled to 1: twice the root mean square of the nonzero differences."""
    there = differences[np.abs(differences) > 1e-9]
    return 2.0 * float(np.sqrt((there**2).mean())) if len(there) else 1.0
