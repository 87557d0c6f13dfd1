"""Confidence sequences: failure-rate intervals valid at all times.

The bounds hold however often they are checked. An ordinary 95 % interval is wrong in one of twenty checks, so
a test that is watched all day gives false alarms. The bounds here hold at all times together: they come from
betting martingales (Ville's inequality).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .bets import CAP_OF_BET, check_confidence, mean_wealth, stakes, threshold_of, weight_classes, weights_of

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def log_wealth(passed: Counts, failed: Counts, weight: Floats, rate: float) -> Floats:
    r"""Logarithm of the evidence against a failure rate up to ``rate``.

    The evidence is a fortune that starts at 1 and bets on failures: while the failure rate is at most
    ``rate``, it ever reaches 1 / a with a probability of at most a. With bets :math:`b`, caps :math:`c` and
    weights :math:`w_i \le c` it is the mean over (b, c) of

    .. math:: \prod_i \left(1 + \frac{b}{c} w_i \frac{y_i - m}{m}\right)

    A bet whose cap is below a weight is lost. So all remaining bets are proportional to the weights, and the
    fortune is at most 1 if ``rate`` is at least the weighted share of failures.

    Parameters
    ----------
    passed, failed
        Number of passed and failed answers per weight class, shape (..., classes).
    weight
        Weight of each class, in [1, ``HEAVIEST``], shape (classes,).
    rate
        In (0, 1).

    Returns
    -------
    ndarray
        Shape (...).
    """
    stake = stakes(weight)
    return mean_wealth(_lost(passed, failed, weight, stake) + failed @ np.log1p(stake * (1.0 / rate - 1.0)))


@dataclass(frozen=True, slots=True)
class RateSequence:
    """Failure rate of weighted questions, with anytime bounds.

    Questions were drawn with known, unequal probabilities.

    The state is the number of answers and failures per class of weight: sequences of parts of a stream add up
    to that of the whole, in any order.

    Null hypothesis: *given the past, no question fails with a probability above* ``rate``. While that is
    true, :meth:`exceeds` ever returns True with a probability of at most (1 - confidence) / 2, for any
    weights, number of checks and stopping rule; only the draw must not depend on the answer. Bets are
    proportional to the weights and fixed, so the same holds for the weaker hypothesis that the mean failure
    probability over all questions so far is at most ``rate`` (because ``1 + x <= exp(x)``): the rate may
    change over time. If it is constant, :meth:`interval` covers it at all times together with a probability
    of at least ``confidence``; it always contains :attr:`rate`.

    Parameters
    ----------
    counts
        (answers, failures) per weight class; see :meth:`of`.

    References
    ----------
    Robbins, "Statistical methods related to the law of the iterated logarithm", 1970 (mixtures);
    Howard et al., "Time-uniform, nonparametric, nonasymptotic confidence sequences", 2021;
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2023, section 4. We
    mix over fixed bets instead of adapting them, so that the order of the answers does not matter.

    Examples
    --------
    >>> import numpy as np
    >>> seen = RateSequence.of(np.arange(200) < 30, np.full(200, 20.0))  # 30 of 200, each drawn at 5 %
    >>> round(seen.rate, 3)
    0.15
    >>> low, high = seen.interval()
    >>> round(low, 3), round(high, 3), seen.exceeds(0.05)
    (0.07, 0.283, True)
    >>> (seen + RateSequence.of(np.array([True]), np.array([1.0]))).asked
    201
    """

    counts: Mapping[int, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, failed: NDArray[np.bool_], weight: Floats) -> Self:
        """Sequence of some answers.

        Parameters
        ----------
        failed
            Whether each question failed, shape (n,).
        weight
            1 / probability of having been asked, shape (n,); below 1 counts as 1.

        Raises
        ------
        ValueError
            If shapes differ or a weight is not a positive number.
        """
        if failed.shape != weight.shape or not (weight > 0).all():
            raise ValueError(
                f"one positive weight per answer expected, got {weight.shape} weights from "
                f"{weight.min(initial=math.inf)} on for {failed.shape} answers"
            )
        classes = weight_classes(weight)
        asked = np.bincount(classes)
        failures = np.bincount(classes[failed], minlength=len(asked))
        return cls({one: (int(asked[one]), int(failures[one])) for one in np.flatnonzero(asked).tolist()})

    def __add__(self, other: "RateSequence") -> "RateSequence":
        merged = dict(self.counts)
        for one, (asked, failed) in other.counts.items():
            before = merged.get(one, (0, 0))
            merged[one] = before[0] + asked, before[1] + failed
        return RateSequence(merged)

    def without(self, part: "RateSequence") -> "RateSequence":
        """Sequence of all answers outside ``part``."""
        rest = {}
        for one, (asked, failed) in self.counts.items():
            gone = part.counts.get(one, (0, 0))
            rest[one] = asked - gone[0], failed - gone[1]
        return RateSequence({one: left for one, left in rest.items() if left[0]})

    @property
    def asked(self) -> int:
        """Number of answers."""
        return sum(asked for asked, _ in self.counts.values())

    @property
    def failed(self) -> int:
        """Number of failures."""
        return sum(failed for _, failed in self.counts.values())

    @property
    def rate(self) -> float:
        """Weighted share of failures (Hájek's estimate), in [0, 1]; 0.0 without answers."""
        passed, failed, weight = self._columns()
        total = float((passed + failed) @ weight)
        return float(failed @ weight) / total if total else 0.0

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Bounds of the rate, valid at all times together. (0.0, 1.0) without answers."""
        check_confidence(confidence)
        passed, failed, weight = self._columns()
        low = _lower(passed, failed, weight, confidence)
        return low, 1.0 - _lower(failed, passed, weight, confidence)

    def exceeds(self, rate: float, confidence: float = 0.95) -> bool:
        """True if the lower bound is above ``rate``, in [0, 1].

        For rate 0 a single failure is enough.
        """
        check_confidence(confidence)
        if not 0.0 < rate < 1.0:
            return rate <= 0.0 and self.failed > 0
        return bool(log_wealth(*self._columns(), rate) >= threshold_of(confidence))

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        return {"classes": {str(one): list(counts) for one, counts in sorted(self.counts.items())}}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`. An empty mapping gives an empty object."""
        classes = state.get("classes", {})
        return cls({int(one): (int(asked), int(failed)) for one, (asked, failed) in classes.items()})

    def _columns(self) -> tuple[Counts, Counts, Floats]:
        """Passed, failed and weight per class."""
        classes = np.array(sorted(self.counts), dtype=np.int64)
        counts = np.array([self.counts[one] for one in classes.tolist()], dtype=np.int64).reshape(-1, 2)
        return counts[:, 0] - counts[:, 1], counts[:, 1], weights_of(classes)


def _lost(passed: Counts, failed: Counts, weight: Floats, stake: Floats) -> Floats:
    """Log factor of each bet from passed answers, which does not depend on the rate, shape (..., bets)."""
    heaviest = np.where(passed + failed > 0, weight, 0.0).max(axis=-1, initial=0.0)
    alive = np.where(heaviest[..., None] <= CAP_OF_BET, 0.0, -np.inf)
    return np.asarray(passed @ np.log1p(-stake) + alive)


def _lower(passed: Counts, failed: Counts, weight: Floats, confidence: float) -> float:
    """Lower confidence bound of the rate."""
    from scipy.optimize import brentq
    from scipy.special import expit

    if not failed.any():
        return 0.0

    stake = stakes(weight)
    lost, threshold = _lost(passed, failed, weight, stake), threshold_of(confidence)

    def excess(log_odds: float) -> float:
        return float(mean_wealth(lost + failed @ np.log1p(stake * math.exp(-log_odds)))) - threshold

    odds = float(failed @ weight) / max(float(passed @ weight), 0.1)
    high = math.log(odds)  # of the weighted share of failures: there the evidence is none
    low = high - 1.0
    while excess(low) < 0:
        low, high = 2 * low - high, low
    return float(expit(brentq(excess, low, high, xtol=1e-9)))
