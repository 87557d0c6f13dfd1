"""Agreement of two models on the same records, net of noise.

Asked twice, a model may answer differently: kernels round differently in batches of another shape, and some
models sample their answers. So both models answer a random share of the records a second time. The net
difference of two models is how much more often they differ from each other than from themselves.
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
"""Name of a measure: the aspect in which two answers are compared (``label``, ``score``, ``words`` …)."""
PROPERTIES: tuple[Measure, ...] = ("refusal", "language", "length", "structure", "tools", "arguments")
"""Properties of a text or of its tool calls that are compared like classes; see :mod:`.text_properties`."""
EMBEDDING: Measure = "embedding"
"""Distance of text embeddings, compared where the user declared that embeddings must agree."""
Verdict = Literal["same", "close", "different", "undecided"]
ITEMS = 64
"""Smallest text length, in items, by which measure ``words`` divides: one item weighs the same in all shorter
texts."""
MOST_SLICES = 12
"""Maximum number of slices compared, in order of appearance; their error is bounded jointly."""
ERROR = 0.05
"""Probability that any interval of a comparison is ever wrong."""
PART_OF_EXCESS = 0.25
"""Share of the error spent on the bounds of :func:`excess`; the rest goes to the three rates."""
EVERYTHING = ""
"""Name of the slice of all records."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Properties of a measure that its bounds depend on.

    Attributes
    ----------
    least
        Smallest possible value of :func:`excess`: -0.5 if "equal" is transitive, -1.0 for a tolerance, which
        is not.
    items
        Number of items that one exchanged item is a part of; 1 for a yes/no measure.
    is_exact
        Whether only equal answers count as the same. A change may then lie in the answers that vary, so
        noise is not subtracted from the upper bound of the difference.
    hidden
        Share of answers in which a change would go unnoticed, in [0, 1]; they count as possibly changed.
    """

    least: float = -1.0
    items: int = 1
    is_exact: bool = False
    hidden: float = 0.0


def terms_of(measure: Measure, *, is_declared: bool = False, hidden: float = 0.0) -> Terms:
    """Bound-relevant properties of a measure.

    ``is_declared``: the user declared that texts must agree in it; ``hidden`` is used for embeddings.
    """
    if measure == EMBEDDING:
        return Terms(hidden=hidden)
    if measure == "words":
        return Terms(items=ITEMS)
    near = measure in ("score", "length", "language")
    return Terms(-1.0 if near else -0.5, is_exact=measure == "text" and not is_declared)


@dataclass(frozen=True, slots=True)
class Share:
    """Share of ``rows`` records, with bounds valid at all times together."""

    value: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two models by one measure on one slice.

    Attributes
    ----------
    raw
        Share of records on which they agree, noise included.
    noise, challenger_noise
        Share of records on which the champion (challenger) differs from its own second answer.
    beyond
        Share of records whose answers did not change after subtracting noise, in [0, 1].
    verdict
        ``same``: no net difference is proven, and one larger than the margin is ruled out. ``close``: a net
        difference is proven, or noise is unknown, and it is at most the margin. ``different``: a
        net difference larger than the margin is proven. ``undecided``: too few records, or too few with a
        second answer.
    """

    raw: Share
    noise: Share
    challenger_noise: Share
    beyond: Share
    verdict: Verdict

    @property
    def is_proven(self) -> bool:
        """True if a difference beyond noise is proven, however small."""
        return self.beyond.high < 1.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of one measure on one slice.

    Tallies of parts of a stream add up.
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
        """Tally of all records outside ``part``."""
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
        """Agreement with bounds valid at all times together with ``confidence``.

        Let A and A' be two answers of the champion to a record, B and B' two of the challenger. The net
        difference is e = P(A ≠ B) - ½ P(A ≠ A') - ½ P(B ≠ B'). On a record with second answers,
        :func:`excess` has mean e; if both models answer with equal probabilities, its mean is 0. Records
        without second answers bound P(A ≠ B) more tightly; both kinds give bounds, and the tighter ones are
        used.

        Reported is the share of changed answers: e divided by the value that e would have if every answer had
        changed. For a yes/no measure that is 1 - ½ P(A ≠ A') - ½ P(B ≠ B'): where noise leaves no
        room for a difference, the bounds are trivial. The share is at most P(A ≠ B), which is the only bound
        where noise is unknown, and where the varying answers may be the changed ones
        (``terms.is_exact``).

        The bounds are betting martingales, valid after each block and at any stopping time; the four share
        the error.

        Parameters
        ----------
        margin
            Share of changed answers up to which models count as close, in [0, 1].
        terms
            Properties of the measure; default: those of ``score``.
        part_of_excess
            Share of the error spent on the bounds of :func:`excess`, in (0, 1); the three rates share the
            rest.
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
        """State that JSON can carry."""
        return {
            "differs": self.differs.to_dict(),
            "noise": self.noise.to_dict(),
            "challenger_noise": self.challenger_noise.to_dict(),
            "excess": self.beyond.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`. An empty mapping gives an empty object."""
        return cls(
            RateSequence.from_dict(state.get("differs", {})),
            RateSequence.from_dict(state.get("noise", {})),
            RateSequence.from_dict(state.get("challenger_noise", {})),
            DifferenceSequence.from_dict(state.get("excess", {})),
        )


def _verdict(low: float, high: float, margin: float, asked_twice: int) -> Verdict:
    """Verdict from the bounds of the net difference; ``different`` only if it exceeds the margin."""
    if high <= margin:
        return "same" if low <= 0.0 and asked_twice else "close"
    return "different" if low > margin else "undecided"


def _by(value: float, reach: float) -> float:
    """Share of changed answers, in [0, 1], of a net difference: ``value / reach``, at most 1."""
    return value / reach if value < reach else float(value > 0.0)


def excess(cross: Sequence[Bools | Floats], own: Bools | Floats, other: Bools | Floats) -> Floats:
    """Net difference between two models, record by record, in [-1, 1].

    The mean over the four pairs of one answer of each model, less half of each model's difference from
    itself: an estimate of the energy distance between the models' answers to a record.

    Parameters
    ----------
    cross
        Whether, or how far, A and B, A and B', A' and B, A' and B' differ, in [0, 1], shape (4, rows).
    own, other
        The same between A and A', and between B and B', shape (rows,).

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
    """:func:`excess` of text items, clipped per record to reduce variance.

    A record is clipped to one item, or to as many as its own answers vary by. Four answers form two pairs in
    three ways: the way with the smallest distance bounds the excess of all three, and their mean is
    subtracted. If all four answers have one distribution, so have the three ways, so the expectation stays 0.

    Parameters
    ----------
    cross, own, other
        As for :func:`excess`.
    one
        Weight of one item, in the unit of the distances.

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

    Half of the error is for all records, half for the slices, in equal parts (Bonferroni, valid under any
    dependence).

    Parameters
    ----------
    group
        Name of the slice; ``EVERYTHING`` for all records.
    measures
        Number of measures compared, >= 1.
    """
    parts = measures if group == EVERYTHING else measures * MOST_SLICES
    return 1.0 - ERROR / 2 / parts


def fails_more(one: int, other: int, *, confidence: float = 1.0 - ERROR) -> bool:
    """True if a higher failure rate of ``other`` is proven.

    ``one`` and ``other`` count the records on which only that model fails. If both are equally good, each
    such record falls to either side with probability 1/2. The bound holds at all times together, so it may be
    checked after every block (:class:`RateSequence`).

    Examples
    --------
    >>> fails_more(3, 4), fails_more(2, 30)
    (False, True)
    """
    return RateSequence({0: (one + other, other)}).exceeds(0.5, confidence)


def _share(rates: RateSequence, confidence: float) -> Share:
    low, high = rates.interval(confidence)
    return Share(rates.rate, low, high, rates.asked)
