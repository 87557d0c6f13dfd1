"""How much oftener one of two things happens than the other, with bounds that hold at all times together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .bets import (
    CAP_OF_BET,
    check_confidence,
    mean_wealth,
    stakes,
    threshold_of,
    weight_classes,
    weights_of,
)

Floats = NDArray[np.float64]
_NEAR_ONE = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class DifferenceSequence:
    r"""Mean of values that are -1, 0 or 1, of records that were seen with known, unequal probabilities.

    The evidence against "the mean is at most :math:`m`" is a fortune that starts at 1 and, for bets :math:`b`
    with caps :math:`c \ge w_i`, is the mean over (b, c) of

    .. math:: \prod_i \left(1 + \frac{b}{c} w_i \frac{z_i - m}{1 + m}\right)

    While the statement is true it ever reaches 1 / a with a probability of at most a (Ville's inequality),
    so bounds hold at all times together. At :math:`m = 0` it is a sign test: records with 0 say nothing.

    Parameters
    ----------
    counts
        (records, those with 1, those with -1) per class of weight; see :meth:`of`. Parts of a stream add up
        to the whole, in any order.

    References
    ----------
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2023,
    section 4, with fixed bets instead of adaptive ones, as in :class:`~.rate_sequence.RateSequence`.

    Examples
    --------
    >>> import numpy as np
    >>> seen = DifferenceSequence.of(np.repeat([1, 0, -1], [60, 935, 5]), np.ones(1000))
    >>> round(seen.mean, 3), [round(bound, 3) for bound in seen.interval()]
    (0.055, [0.022, 0.091])
    """

    counts: Mapping[int, tuple[int, int, int]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, values: NDArray[np.integer[Any]], weight: Floats) -> Self:
        """Sequence of some records.

        Parameters
        ----------
        values
            -1, 0 or 1, shape (n,).
        weight
            1 / probability of having been seen, shape (n,); below 1 counts as 1.

        Raises
        ------
        ValueError
            If shapes differ, a value is another, or a weight is not a positive number.
        """
        if values.shape != weight.shape or not (weight > 0).all() or not np.isin(values, (-1, 0, 1)).all():
            raise ValueError(
                f"values of -1, 0 and 1 with one positive weight each expected, got shapes {values.shape} "
                f"and {weight.shape}"
            )
        classes = weight_classes(weight)
        width = int(classes.max(initial=-1)) + 1
        masks = (np.ones(len(values), dtype=np.bool_), values > 0, values < 0)
        rows, more, less = (np.bincount(classes[mask], minlength=width) for mask in masks)
        there: list[int] = np.flatnonzero(rows).tolist()
        return cls({one: (int(rows[one]), int(more[one]), int(less[one])) for one in there})

    def __add__(self, other: "DifferenceSequence") -> "DifferenceSequence":
        merged = dict(self.counts)
        for one, (rows, more, less) in other.counts.items():
            before = merged.get(one, (0, 0, 0))
            merged[one] = before[0] + rows, before[1] + more, before[2] + less
        return DifferenceSequence(merged)

    @property
    def rows(self) -> int:
        """Number of records."""
        return sum(rows for rows, _, _ in self.counts.values())

    @property
    def mean(self) -> float:
        """Weighted mean, in [-1, 1]; 0.0 without records."""
        rows, more, less, weight = self._columns()
        total = float(rows @ weight)
        return float((more - less) @ weight) / total if total else 0.0

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Bounds of the mean that hold at all times together; (-1.0, 1.0) without records."""
        check_confidence(confidence)
        rows, more, less, weight = self._columns()
        low = _lower(rows, more, less, weight, confidence)
        return low, -_lower(rows, less, more, weight, confidence)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"classes": {str(one): list(counts) for one, counts in sorted(self.counts.items())}}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """From what :meth:`to_dict` gave; an empty state is an empty sequence."""
        found = state.get("classes", {})
        return cls({int(one): (int(rows), int(more), int(less)) for one, (rows, more, less) in found.items()})

    def _columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Records, those with 1, those with -1, and weight, per class."""
        classes = np.array(sorted(self.counts), dtype=np.int64)
        counts = np.array([self.counts[one] for one in classes.tolist()], dtype=np.float64).reshape(-1, 3)
        return counts[:, 0], counts[:, 1], counts[:, 2], weights_of(classes)


def _lower(rows: Floats, more: Floats, less: Floats, weight: Floats, confidence: float) -> float:
    """Smallest mean that the evidence does not speak against: it falls as the mean rises."""
    from scipy.optimize import brentq

    if not rows.any():
        return -1.0
    stake, threshold = stakes(weight), threshold_of(confidence)
    alive = np.where(weight.max() <= CAP_OF_BET, 0.0, -np.inf)
    lost = less @ np.log1p(-stake) + alive

    def excess(mean: float) -> float:
        won = more @ np.log1p(stake * (1.0 - mean) / (1.0 + mean))
        idle = (rows - more - less) @ np.log1p(-stake * mean / (1.0 + mean))
        return float(mean_wealth(won + idle + lost)) - threshold

    if excess(-_NEAR_ONE) < 0:
        return -1.0
    total = float(rows @ weight)
    middle = min(float((more - less) @ weight) / total, _NEAR_ONE)  # of the weighted mean: no evidence there
    return float(brentq(excess, -_NEAR_ONE, middle, xtol=1e-9))
