"""Confidence sequence of the mean of differences in [-1, 1].

Bounds hold at all times together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .bets import (
    CAP_OF_BET,
    UNIT_BETS,
    check_confidence,
    mean_wealth,
    stakes,
    threshold_of,
    weight_classes,
    weights_of,
)

Floats = NDArray[np.float64]
PARTS = 4
"""Number of steps per unit: averages over two answers of each of two models are multiples of 1/4."""
VALUES = np.arange(-PARTS, PARTS + 1) / PARTS
_NEAR = 1e-9


@dataclass(frozen=True, slots=True)
class DifferenceSequence:
    r"""Anytime bounds for the mean of values in [-1, 1], unequally sampled.

    The evidence against "the mean is at most :math:`m`" is a fortune that starts at 1 and, for bets :math:`b`
    with caps :math:`c \ge w_i` and values of at least :math:`l`, is the mean over (b, c) of

    .. math:: \prod_i \left(1 + \frac{b}{c} w_i \frac{z_i - m}{m - l}\right)

    While the statement is true, the fortune ever reaches 1 / a with a probability of at most a (Ville's
    inequality), so bounds hold at all times together. At :math:`m = 0` records with value 0 have no effect.

    Parameters
    ----------
    counts
        Number of records by value, from -1 to 1 in steps of 1 / parts, per weight class; see :meth:`of`.
        Parts of a stream add up to the whole, in any order.

    References
    ----------
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2023,
    section 4, with fixed bets instead of adaptive ones, as in :class:`~.rate_sequence.RateSequence`.

    Examples
    --------
    >>> import numpy as np
    >>> seen = DifferenceSequence.of(np.repeat([1.0, 0.0, -0.5], [60, 930, 10]), np.ones(1000))
    >>> round(seen.mean, 3), [round(bound, 3) for bound in seen.interval(least=-0.5)]
    (0.055, [0.028, 0.091])
    """

    counts: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, values: Floats, weight: Floats, *, parts: int = PARTS) -> Self:
        """Sequence of some records.

        Parameters
        ----------
        values
            From -1 to 1 in steps of 1 / ``parts``, shape (n,).
        weight
            1 / probability of having been captured, shape (n,); below 1 counts as 1.

        Raises
        ------
        ValueError
            If shapes differ, a value is off these steps, or a weight is not positive.
        """
        kinds = parts * (values + 1.0)
        is_known = ((np.abs(values) <= 1.0) & (kinds == np.rint(kinds))).all()
        if values.shape != weight.shape or not (weight > 0).all() or not is_known:
            raise ValueError(
                f"numbers from -1 to 1 in steps of 1 / {parts} with one positive weight each expected, got "
                f"shapes {values.shape} and {weight.shape}"
            )
        classes, width = weight_classes(weight), 2 * parts + 1
        cells = classes * width + kinds.astype(np.int64)
        counts = np.bincount(cells, minlength=(int(classes.max(initial=-1)) + 1) * width).reshape(-1, width)
        there: list[int] = np.flatnonzero(counts.any(axis=1)).tolist()
        return cls({one: tuple(counts[one].tolist()) for one in there})

    def __add__(self, other: "DifferenceSequence") -> "DifferenceSequence":
        merged = dict(self.counts)
        for one, counts in other.counts.items():
            before = merged.get(one, (0,) * len(counts))
            merged[one] = tuple(a + b for a, b in zip(before, counts, strict=True))
        return DifferenceSequence(merged)

    def without(self, part: "DifferenceSequence") -> "DifferenceSequence":
        """Sequence of all records outside ``part``."""
        rest = {}
        for one, counts in self.counts.items():
            gone = part.counts.get(one, (0,) * len(counts))
            rest[one] = tuple(a - b for a, b in zip(counts, gone, strict=True))
        return DifferenceSequence({one: left for one, left in rest.items() if any(left)})

    def scaled(self, factor: float) -> "DifferenceSequence":
        """Sequence with the number of records multiplied, at equal shares."""
        return DifferenceSequence(
            {one: tuple(round(count * factor) for count in counts) for one, counts in self.counts.items()}
        )

    @property
    def rows(self) -> int:
        """Number of records."""
        return sum(sum(counts) for counts in self.counts.values())

    @property
    def mean(self) -> float:
        """Weighted mean, in [-1, 1]; 0.0 without records."""
        values, counts, weight = self._columns()
        total = float(counts.sum(axis=1) @ weight)
        return float(weight @ counts @ values) / total if total else 0.0

    def interval(
        self, confidence: float = 0.95, *, least: float = -1.0, is_unweighted: bool = False
    ) -> tuple[float, float]:
        """Bounds of the mean that hold at all times together.

        (-1.0, 1.0) without records.

        Parameters
        ----------
        least
            Smallest possible value of a record, known in advance, in [-1, 0]: closer to 0, fewer records
            prove a positive mean. If a smaller value has been seen, -1 is used.
        is_unweighted
            Whether all weights are known in advance to be 1: fewer records then prove a mean. Ignored if
            another weight has been seen.
        """
        check_confidence(confidence)
        values, counts, weight = self._columns()
        if not counts.any():
            return -1.0, 1.0
        least = least if values[counts.any(axis=0)].min() >= least else -1.0
        bets: Floats = UNIT_BETS[None, :] if is_unweighted and (weight == 1.0).all() else stakes(weight)
        at, kinds = np.nonzero(counts)
        cells = counts[at, kinds], weight[at], bets[np.zeros_like(at) if len(bets) == 1 else at]
        low = _lower(values[kinds], *cells, confidence, least)
        return low, -_lower(-values[kinds], *cells, confidence, -1.0)

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        return {"classes": {str(one): list(counts) for one, counts in sorted(self.counts.items())}}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`. An empty mapping gives an empty object."""
        return cls({int(one): tuple(map(int, found)) for one, found in state.get("classes", {}).items()})

    def _columns(self) -> tuple[Floats, Floats, Floats]:
        """Values, number of records by class and value, shape (classes, values), and weight by class."""
        classes = np.array(sorted(self.counts), dtype=np.int64)
        counts = np.array([self.counts[one] for one in classes.tolist()], dtype=np.float64)
        counts = counts.reshape(len(classes), -1) if len(classes) else np.zeros((0, len(VALUES)))
        values: Floats = np.linspace(-1.0, 1.0, counts.shape[1])
        return values, counts, weights_of(classes)


def mean_bounds(
    values: Floats, stake: Floats, confidence: float = 0.95, *, bets: Floats = UNIT_BETS
) -> tuple[float, float]:
    """Bounds of the mean of values in [-1, 1].

    Valid at all times together, like :meth:`DifferenceSequence.interval` with weight 1; values may be any
    floats. (-1.0, 1.0) without values.

    Parameters
    ----------
    stake
        Fraction of each bet placed on a value, in [0, 1], chosen before the value is seen, shape (n,).
    bets
        Subset of ``UNIT_BETS``: a few near mean / variance prove a mean of that size with fewer values.

    Raises
    ------
    ValueError
        If shapes differ, or a value or stake is out of range.

    Examples
    --------
    >>> [round(bound, 3) for bound in mean_bounds(np.repeat([0.4, 0.0], [60, 40]), np.ones(100), 0.9)]
    [0.162, 0.301]
    """
    check_confidence(confidence)
    if values.shape != stake.shape or not (
        (np.abs(values) <= 1).all() and (np.abs(stake - 0.5) <= 0.5).all()
    ):
        raise ValueError(
            f"values from -1 to 1 with one stake from 0 to 1 each expected, got shapes {values.shape} and "
            f"{stake.shape}"
        )
    if not stake.any():
        return -1.0, 1.0
    (values, stake), counts = np.unique(np.stack([values, stake]), axis=1, return_counts=True)
    cells = counts.astype(np.float64), stake, stake[:, None] * bets
    return _lower(values, *cells, confidence, -1.0), -_lower(-values, *cells, confidence, -1.0)


def _lower(
    values: Floats, counts: Floats, weight: Floats, stake: Floats, confidence: float, least: float
) -> float:
    """Lower confidence bound of the mean.

    Arguments are values, their counts and weights, shape (n,), and stakes, shape (n, bets).
    """
    from scipy.optimize import brentq

    threshold = threshold_of(confidence)
    is_lost = (
        weight.max() > CAP_OF_BET if stake.shape[1] == len(CAP_OF_BET) else np.zeros(stake.shape[1], bool)
    )
    alive = np.where(is_lost, -np.inf, 0.0)

    def excess(mean: float) -> float:
        share = (values - mean) / (mean - least)
        return float(mean_wealth(counts @ np.log1p(stake * share[:, None]) + alive)) - threshold

    lowest = least + _NEAR
    if excess(lowest) < 0:
        return least
    middle = float(counts * weight @ values) / float(counts @ weight)  # there the evidence is none
    return float(brentq(excess, lowest, min(middle, 1.0 - _NEAR), xtol=1e-9))
