"""Agreement of two models on the same records, beyond their own noise.

Noise is how often a model disagrees with itself when asked again.

A model that answers twice does not always say the same: kernels round differently in batches of another
shape, and some models draw their answers. So on a random share of the records both models are asked again.
Two models differ beyond noise as far as they differ from each other oftener than from themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.difference_sequence import DifferenceSequence
from outrider.assertions.statistics.rate_sequence import RateSequence

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Measure = str
"""What is compared of two answers; see :mod:`~outrider.assertions.comparison.differences`."""
PROPERTIES: tuple[Measure, ...] = ("refusal", "language", "length", "structure", "tools", "arguments")
"""Properties of a text, or of the calls of tools beside it: :mod:`.text_properties`."""
EMBEDDING: Measure = "embedding"
"""Distance of vectors of texts, where it was declared to say that they agree."""
Verdict = Literal["same", "close", "different", "undecided"]
ITEMS = 64
"""Items of a text that ``words`` tells a share of: one counts alike in all texts that are no longer."""
MOST_SLICES = 12
"""Slices that are looked at, in order of appearance; the error of all of them together is bounded."""
ERROR = 0.05
"""Probability that any interval of a comparison is ever wrong."""
PART_OF_EXCESS = 0.25
"""Part of the error for the bounds of :func:`excess`; the rest is that of the rates."""
EVERYTHING = ""
"""Name of the slice of all records."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Sight of a measure.

    Attributes
    ----------
    least
        The least that :func:`excess` can be: being equal is transitive, being near is not.
    items
        Items of an answer that one exchanged is a part of; 1 for a yes/no measure.
    is_exact
        Whether only answers that are equal are known to say the same: a change may sit just in those that
        vary, so noise is not taken off where a difference is ruled out.
    hidden
        Share of answers in which a change would not show, in [0, 1]: they may all have changed.
    """

    least: float = -1.0
    items: int = 1
    is_exact: bool = False
    hidden: float = 0.0


def terms_of(measure: Measure, *, is_declared: bool = False, hidden: float = 0.0) -> Terms:
    """Terms of a measure, declared to have to agree or not.

    ``hidden`` is that of an embedding.
    """
    if measure == EMBEDDING:
        return Terms(hidden=hidden)
    if measure == "words":
        return Terms(items=ITEMS)
    near = measure in ("score", "length", "language")
    return Terms(-1.0 if near else -0.5, is_exact=measure == "text" and not is_declared)


@dataclass(frozen=True, slots=True)
class Share:
    """Share of records, with bounds that hold at all times together.

    ``rows`` counts the records that the share rests on.
    """

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
    noise, challenger_noise
        Records on which the champion differs from itself, and the challenger from itself.
    beyond
        Records whose answers did not change, noise taken off, in [0, 1].
    verdict
        ``same``: no difference beyond noise is proven, and one larger than the margin is ruled out.
        ``close``: a difference is proven, or noise is not known, and it is not larger than the margin.
        ``different``: one larger than the margin is proven. ``undecided``: too few records, or too few on
        which both were asked again.
    """

    raw: Share
    noise: Share
    challenger_noise: Share
    beyond: Share
    verdict: Verdict

    @property
    def is_proven(self) -> bool:
        """True where some difference beyond noise is proven, however small."""
        return self.beyond.high < 1.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of one measure on one slice.

    Tallies of parts of a stream add up, in any order.

    Attributes
    ----------
    differs
        Records on which champion and challenger differ.
    noise, challenger_noise
        Of records that both were asked about again, drawn whatever the answers were: those on which the
        champion differs from itself, and the challenger from itself.
    beyond
        Of the same records :func:`excess`.
    """

    differs: RateSequence = field(default_factory=RateSequence)
    noise: RateSequence = field(default_factory=RateSequence)
    challenger_noise: RateSequence = field(default_factory=RateSequence)
    beyond: DifferenceSequence = field(default_factory=DifferenceSequence)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.differs + other.differs,
            self.noise + other.noise,
            self.challenger_noise + other.challenger_noise,
            self.beyond + other.beyond,
        )

    def without(self, part: "Tally") -> "Tally":
        """Tally of all records outside a part."""
        return Tally(
            self.differs.without(part.differs),
            self.noise.without(part.noise),
            self.challenger_noise.without(part.challenger_noise),
            self.beyond.without(part.beyond),
        )

    def agreement(
        self,
        *,
        margin: float,
        confidence: float = 1.0 - ERROR,
        terms: "Terms | None" = None,
        part_of_excess: float = PART_OF_EXCESS,
        is_unweighted: bool = False,
    ) -> Agreement:
        """Agreement with bounds that hold at all times together with ``confidence``.

        Let A and A' be two answers of the champion to a record, B and B' two of the challenger. Beyond noise
        they differ on e = P(A ≠ B) - ½ P(A ≠ A') - ½ P(B ≠ B') of the records. Of a record that both were
        asked about twice, :func:`excess` has this as its mean; if both models are drawn alike, its mean is 0
        whatever the record's own odds are. All other records tell P(A ≠ B) more sharply: both ways give
        bounds, and the tighter ones are taken.

        What is told is the share of answers that changed: e by its reach, which is what e would be had every
        answer changed. Of a yes/no measure that is 1 - ½ P(A ≠ A') - ½ P(B ≠ B'): where noise leaves no room
        for a difference, its bounds say nothing. It is never above P(A ≠ B), which alone bounds it where
        noise is not known, and where what varies may be just what changed (``terms.is_exact``).

        The bounds are betting martingales, so one may look after every block and stop at any time; the four
        share the error.

        Parameters
        ----------
        margin
            Share of records on which answers may have changed and still count as close, in [0, 1].
        terms
            Of the measure; default: those of ``score``.
        part_of_excess
            Part of the error for the bounds of :func:`excess`, in (0, 1); the other three share the rest.
        is_unweighted
            Whether all records are known to weigh 1; see :meth:`DifferenceSequence.interval`.

        Examples
        --------
        >>> import numpy as np
        >>> again = RateSequence.of(np.arange(2000) < 30, np.ones(2000))
        >>> equal = DifferenceSequence.of(np.repeat([1.0, -0.5, 0.0], [5, 10, 1985]), np.ones(2000))
        >>> Tally(again, again, again, equal).agreement(margin=0.05).verdict
        'same'
        >>> never = RateSequence.of(np.zeros(2000, dtype=bool), np.ones(2000))
        >>> other = DifferenceSequence.of(np.repeat([1.0, 0.0], [60, 1940]), np.ones(2000))
        >>> found = Tally(again, never, never, other).agreement(margin=0.01)
        >>> found.verdict, round(found.beyond.value, 3)
        ('different', 0.984)
        """
        terms, error = terms or Terms(), 1.0 - confidence
        each = 1.0 - error * (1.0 - part_of_excess) / 3
        differs, noise, other = (
            _share(rates, each) for rates in (self.differs, self.noise, self.challenger_noise)
        )
        low, high = self.beyond.interval(
            1.0 - error * part_of_excess, least=terms.least, is_unweighted=is_unweighted
        )
        value, least, most, reach = self.beyond.mean, 1.0 / terms.items, 1.0 / terms.items, 1.0 / terms.items
        if terms.items == 1:
            low = max(low, differs.low - (noise.high + other.high) / 2)
            high = min(high, differs.high - (noise.low + other.low) / 2)
            # All records know the one rate: a less noisy middle than those alone that were asked twice.
            value = differs.value - (noise.value + other.value) / 2
            least, most, reach = (
                1.0 - (getattr(noise, at) + getattr(other, at)) / 2 for at in ("high", "low", "value")
            )
        lower = min(_by(max(0.0, low), most), differs.high)
        upper = differs.high if terms.is_exact else min(_by(max(1e-12, high), least), differs.high)
        upper = min(1.0, upper + terms.hidden)
        middle = min(upper, max(lower, _by(max(0.0, value), reach)))
        raw = Share(1.0 - differs.value, 1.0 - differs.high, 1.0 - differs.low, differs.rows)
        beyond = Share(1.0 - middle, 1.0 - upper, 1.0 - lower, self.beyond.rows)
        return Agreement(raw, noise, other, beyond, _verdict(lower, upper, margin, self.beyond.rows))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "differs": self.differs.to_dict(),
            "noise": self.noise.to_dict(),
            "challenger_noise": self.challenger_noise.to_dict(),
            "excess": self.beyond.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Tally from the state that :meth:`to_dict` returned; empty from empty."""
        return cls(
            RateSequence.from_dict(state.get("differs", {})),
            RateSequence.from_dict(state.get("noise", {})),
            RateSequence.from_dict(state.get("challenger_noise", {})),
            DifferenceSequence.from_dict(state.get("excess", {})),
        )


def _verdict(low: float, high: float, margin: float, asked_twice: int) -> Verdict:
    """Word for the bounds of a difference beyond noise; *different* only beyond the margin."""
    if high <= margin:
        return "same" if low <= 0.0 and asked_twice else "close"
    return "different" if low > margin else "undecided"


def _by(value: float, reach: float) -> float:
    """Share of answers that changed, in [0, 1], of a difference beyond noise."""
    return value / reach if value < reach else float(value > 0.0)


def excess(cross: Sequence[Bools | Floats], own: Bools | Floats, other: Bools | Floats) -> Floats:
    """Difference between two models beyond their own noise, record by record.

    In [-1, 1].

    The mean over the four pairs of an answer of one with an answer of the other, less half of what each
    differs from itself: an estimate of the energy distance between what both answer to a record.

    Parameters
    ----------
    cross
        Whether, or how far, A and B, A and B', A' and B, A' and B' differ, in [0, 1], shape (4, rows).
    own, other
        The same of A and A', and of B and B', shape (rows,).

    References
    ----------
    Székely and Rizzo, "Energy statistics", JSPI 2013, with "differs" for the distance.

    Examples
    --------
    >>> import numpy as np
    >>> no, yes = np.array([False]), np.array([True])
    >>> excess([yes] * 4, no, no).tolist(), excess([yes, no, no, yes], yes, yes).tolist()
    ([1.0], [-0.5])
    """
    found: Floats = np.sum(cross, axis=0, dtype=np.float64) / 4 - (own.astype(np.float64) + other) / 2
    return found


def held_excess(cross: Sequence[Floats], own: Floats, other: Floats, *, one: float) -> Floats:
    """Excess of items, bounded in each record.

    A record counts as one item, or as many as it varies by itself.

    Four answers fall into two pairs in three ways. The nearest way bounds the excess of all three, and their
    mean is taken off: where all four are drawn alike the ways are, too, so the mean of records stays 0.

    Parameters
    ----------
    cross, own, other
        As of :func:`excess`.
    one
        One item.

    Examples
    --------
    >>> import numpy as np
    >>> ten, none = np.array([0.1]), np.array([0.0])
    >>> excess([ten] * 4, none, none).tolist(), held_excess([ten] * 4, none, none, one=0.01).tolist()
    ([0.1], [0.01])
    """
    ways = np.stack([own + other, cross[0] + cross[3], cross[1] + cross[2]])
    beyond = ways.sum(axis=0) / 4 - 0.75 * ways
    most = np.maximum(one, ways.min(axis=0) / 2)
    held = np.clip(beyond, -most / 2, most)
    found: Floats = held[0] - held.mean(axis=0)
    return found


def confidence_of(group: str, measures: int) -> float:
    """Confidence of one interval such that all together reach 1 - ``ERROR``.

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
    """Test for a higher failure rate of ``other``, from discordant records.

    ``one`` and ``other`` count the records that only one of the two fails; True where a higher rate is
    proven.

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
