"""How far two models agree on the same records, after what a model disagrees with itself.

A model that answers twice, in batches of different shape, does not always say the same: kernels round
differently. So where a challenger differs, the champion is asked again. Its two answers and the challenger's
are three; if the challenger is the champion but for rounding, each of them is the odd one out equally often.
A challenger differs where it is the odd one oftener than the champion.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from .difference_sequence import DifferenceSequence
from .rate_sequence import RateSequence

Measure = Literal["label", "score", "rank", "text"]
"""What is compared of two answers; see :mod:`~outrider.assertions.differences`."""
Verdict = Literal["same", "close", "different", "undecided"]
MOST_SLICES = 12
"""Slices that are looked at, in order of appearance; the error of all of them together is bounded."""
ERROR = 0.05
"""Probability that any interval of a comparison is ever wrong."""
EVERYTHING = ""
"""Name of the slice of all records."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of records, with bounds that hold at all times together, and the records it rests on."""

    value: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two models in one respect, on one slice.

    Attributes
    ----------
    raw
        Records on which they agree, as they answered.
    noise
        The noise floor: records on which the champion differs from itself.
    beyond
        Records on which they agree once the noise floor is taken off, at most 1.
    verdict
        ``same``: no difference beyond noise is proven, and one larger than the margin is ruled out.
        ``close``: a difference is proven, and is not larger than the margin. ``different``: it is proven, and
        may be larger. ``undecided``: too few records, or too few on which the champion was asked again.
    """

    raw: Share
    noise: Share
    beyond: Share
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of one respect on one slice; tallies of parts of a stream add up, in any order.

    Attributes
    ----------
    differs
        Records on which champion and challenger differ.
    noise
        Of records drawn whatever the answers were: those on which the champion differs from itself.
    beyond
        Of records of which it is known: 1 where the challenger is the odd one of three answers, -1 where the
        champion's first is, 0 where neither is or both models agreed at once.
    """

    differs: RateSequence = field(default_factory=RateSequence)
    noise: RateSequence = field(default_factory=RateSequence)
    beyond: DifferenceSequence = field(default_factory=DifferenceSequence)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.differs + other.differs, self.noise + other.noise, self.beyond + other.beyond)

    def agreement(self, *, margin: float, confidence: float = 1.0 - ERROR) -> Agreement:
        """Agreement with bounds that hold at all times together with ``confidence``.

        Let A and A' be two answers of the champion to a record, B the challenger's. The share of records on
        which B differs beyond noise is P(A ≠ B) - P(A ≠ A'). Because A and A' are drawn alike, it equals
        P(B odd) - P(A odd), where the odd one differs from both others, which agree. Both need A' only where
        A ≠ B: few questions tell all. And for an equal challenger, being drawn like A and A', both are equal,
        whatever a record's own odds are: the bounds of their difference are then those of a sign test.

        The bounds are betting martingales, so one may look after every block and stop at any time.

        Parameters
        ----------
        margin
            Share of records on which models may differ beyond noise and still count as close, in [0, 1].

        Examples
        --------
        >>> import numpy as np
        >>> differs = RateSequence.of(np.arange(2000) < 60, np.ones(2000))
        >>> noisy = DifferenceSequence.of(np.repeat([1, -1, 0], [30, 30, 1940]), np.ones(2000))
        >>> Tally(differs, beyond=noisy).agreement(margin=0.05).verdict
        'same'
        >>> real = DifferenceSequence.of(np.repeat([1, -1, 0], [60, 0, 1940]), np.ones(2000))
        >>> found = Tally(differs, beyond=real).agreement(margin=0.01)
        >>> found.verdict, round(found.beyond.value, 3)
        ('different', 0.97)
        """
        each = 1.0 - (1.0 - confidence) / 2
        differs, noise = _share(self.differs, each), _share(self.noise, each)
        low, high = self.beyond.interval(each)
        least, most = max(0.0, low), max(0.0, min(high, differs.high))
        # All records know the one rate: a less noisy middle than those alone that were asked about again.
        known = differs.value - noise.value if noise.rows else self.beyond.mean
        middle = min(most, max(least, known if noise.rows or self.beyond.rows else differs.value))
        if least > 0.0:
            verdict: Verdict = "close" if most <= margin else "different"
        else:
            verdict = "same" if most <= margin else "undecided"
        raw = Share(1.0 - differs.value, 1.0 - differs.high, 1.0 - differs.low, differs.rows)
        beyond = Share(1.0 - middle, 1.0 - most, 1.0 - least, self.beyond.rows)
        return Agreement(raw, noise, beyond, verdict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "differs": self.differs.to_dict(),
            "noise": self.noise.to_dict(),
            "beyond": self.beyond.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """From what :meth:`to_dict` gave; an empty state is an empty tally."""
        return cls(
            RateSequence.from_dict(state.get("differs", {})),
            RateSequence.from_dict(state.get("noise", {})),
            DifferenceSequence.from_dict(state.get("beyond", {})),
        )


def confidence_of(group: str, measures: int) -> float:
    """Confidence of one interval such that all of a comparison hold together with 1 - ``ERROR``.

    Half of the error is for all records, half for the slices, in equal parts (Bonferroni): what is compared
    on one stream is dependent, and this needs no assumption on how.

    Parameters
    ----------
    group
        The slice; ``EVERYTHING`` for all records.
    measures
        In how many respects two models are compared, >= 1.
    """
    parts = measures if group == EVERYTHING else measures * MOST_SLICES
    return 1.0 - ERROR / 2 / parts


def fails_more(one: int, other: int, *, confidence: float = 1.0 - ERROR) -> bool:
    """Whether ``other`` is proven to fail more often, from the records that only one of two fails.

    Of these each falls to either side with probability 1/2 if both are equally good. The bound holds at all
    times together, so it may be asked after every block (:class:`RateSequence`).

    Examples
    --------
    >>> fails_more(3, 4), fails_more(2, 30)
    (False, True)
    """
    return RateSequence({0: (one + other, other)}).exceeds(0.5, confidence)


def _share(rates: RateSequence, confidence: float) -> Share:
    low, high = rates.interval(confidence)
    return Share(rates.rate, low, high, rates.asked)
