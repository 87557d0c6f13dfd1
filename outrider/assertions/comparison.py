"""Comparison of a champion's and a challenger's answers, by measure and slice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .agreement import EVERYTHING, LEAST, MOST_SLICES, Agreement, Measure, Tally, confidence_of, excess
from .batch import Batch
from .difference_sequence import DifferenceSequence
from .differences import Bools, Ruler, deltas, differ, shared_measures, subjects
from .rate_sequence import RateSequence

DELTA_EDGES = 10.0 ** np.arange(-8.0, 0.5, 0.5)
"""Edges of the classes of score distances: below 1e-8, half a decade each, and 1 or more."""


@dataclass(frozen=True, slots=True)
class PairedAnswers:
    """Answers of two models to the same records, row by row.

    Rows of a slice follow each other.

    Attributes
    ----------
    weight
        1 / probability of having been seen, shape (rows,).
    slices
        Slice of each record; "" where it has none.
    asked
        Rows that both were asked about again, in order: drawn whatever the answers are.
    again, challenger_again
        What they answered then, row by row of ``asked``; None where nobody was asked.
    """

    champion: Batch
    challenger: Batch
    weight: NDArray[np.float64]
    slices: Sequence[str]
    asked: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    again: Batch | None = None
    challenger_again: Batch | None = None


@dataclass(frozen=True, slots=True)
class StreamComparison:
    """Comparison of two models' answers to a stream.

    Comparisons of parts add up, in any order.

    Attributes
    ----------
    tallies
        By measure and slice; slice "" is all records.
    apart, noise_apart
        Records by distance of scores (:data:`DELTA_EDGES`), of both models and of the champion from itself.
    """

    tallies: Mapping[tuple[Measure, str], Tally] = field(default_factory=dict)
    apart: tuple[int, ...] = (0,) * (len(DELTA_EDGES) + 1)
    noise_apart: tuple[int, ...] = (0,) * (len(DELTA_EDGES) + 1)

    @classmethod
    def of(cls, pair: PairedAnswers, ruler: Ruler, *, slices: Sequence[str] = ()) -> Self:
        """Comparison of some records.

        Parameters
        ----------
        slices
            Slices that are known already, in order of appearance: with those of these records at most
            ``MOST_SLICES`` are looked at.
        """
        looked_at = list(dict.fromkeys([*slices, *filter(None, pair.slices)]))[:MOST_SLICES]
        one, two, asked = pair.champion, pair.challenger, pair.asked
        both = shared_measures(one, two, ruler)
        twice = _Twice.of(pair)
        tallies: dict[tuple[Measure, str], Tally] = {}
        for measure in both:
            once = _Subjects.of(measure, one, pair.weight, pair.slices, ruler)
            apart = differ(measure, one, two, ruler)
            four = None if twice is None else twice.compared(measure, ruler)
            for name in [EVERYTHING, *looked_at]:
                here = once.of_slice(name)
                if here.any():
                    differs = RateSequence.of(apart[here], once.weight[here])
                    again = (RateSequence(), RateSequence(), DifferenceSequence())
                    tallies[measure, name] = Tally(
                        differs, *(again if four is None else four.sequences(name))
                    )
        if "score" not in both:
            return cls(tallies)
        noise = np.zeros(0) if pair.again is None else deltas(one.take(asked), pair.again, ruler)
        return cls(tallies, _classes(deltas(one, two, ruler)), _classes(noise))

    def __add__(self, other: "StreamComparison") -> "StreamComparison":
        tallies = dict(self.tallies)
        for key, tally in other.tallies.items():
            tallies[key] = tallies[key] + tally if key in tallies else tally
        return StreamComparison(
            tallies,
            tuple(a + b for a, b in zip(self.apart, other.apart, strict=True)),
            tuple(a + b for a, b in zip(self.noise_apart, other.noise_apart, strict=True)),
        )

    @property
    def slices(self) -> tuple[str, ...]:
        """Slices in order of appearance."""
        return tuple(dict.fromkeys(name for _, name in self.tallies if name != EVERYTHING))

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Measures that can be compared, the deciding one first."""
        return tuple(dict.fromkeys(measure for measure, _ in self.tallies))

    def agreements(self, *, margin: float) -> dict[tuple[Measure, str], Agreement]:
        """Agreement by measure and slice, with simultaneous anytime bounds."""
        measures = len(self.measures)
        return {
            (measure, name): tally.agreement(
                margin=margin, confidence=confidence_of(name, measures), least=LEAST[measure]
            )
            for (measure, name), tally in self.tallies.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        tallies = [[*key, tally.to_dict()] for key, tally in self.tallies.items()]
        return {"tallies": tallies, "apart": list(self.apart), "noise_apart": list(self.noise_apart)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Comparison from the state of :meth:`to_dict`, empty from empty."""
        if not state:
            return cls()
        tallies = {(measure, name): Tally.from_dict(tally) for measure, name, tally in state["tallies"]}
        return cls(tallies, tuple(state["apart"]), tuple(state["noise_apart"]))


def taken_back(measure: Measure, pair: PairedAnswers, ruler: Ruler) -> NDArray[np.intp]:
    """Rows on which a model contradicts its own earlier answer."""
    twice = _Twice.of(pair)
    four = None if twice is None else twice.compared(measure, ruler)
    return pair.asked[:0] if four is None else pair.asked[four.own | four.other]


@dataclass(frozen=True, slots=True)
class _Subjects:
    """Subjects of one measure: records, or pairs of records.

    Attributes
    ----------
    weight
        Of each comparison, shape (comparisons,).
    slices
        Slice of each, None where two records are of different ones.
    """

    weight: NDArray[np.float64]
    slices: NDArray[np.object_]

    @classmethod
    def of(
        cls,
        measure: Measure,
        answer: Batch,
        weight: NDArray[np.float64],
        slices: Sequence[str],
        ruler: Ruler,
    ) -> Self:
        rows = subjects(measure, answer, ruler)
        names = np.asarray(slices, dtype=object)[rows]
        first = names[:, 0].copy()
        first[(names != names[:, :1]).any(axis=1)] = None
        return cls(weight[rows].max(axis=1), first)

    def of_slice(self, name: str) -> Bools:
        if name == EVERYTHING:
            return np.ones(len(self.weight), dtype=np.bool_)
        return np.asarray(self.slices == name)


@dataclass(frozen=True, slots=True)
class _Twice:
    """Both models' two answers to the records that they were asked about again."""

    champion: tuple[Batch, Batch]
    challenger: tuple[Batch, Batch]
    weight: NDArray[np.float64]
    slices: Sequence[str]

    @classmethod
    def of(cls, pair: PairedAnswers) -> Self | None:
        asked, again, other = pair.asked, pair.again, pair.challenger_again
        if again is None or other is None or not len(asked):
            return None
        one, two = pair.champion.take(asked), pair.challenger.take(asked)
        return cls((one, again), (two, other), pair.weight[asked], [pair.slices[row] for row in asked])

    def compared(self, measure: Measure, ruler: Ruler) -> "_Four | None":
        (one, again), (two, other) = self.champion, self.challenger
        if any(measure not in shared_measures(one, answer, ruler) for answer in (again, two, other)):
            return None
        cross = [differ(measure, a, b, ruler) for a in (one, again) for b in (two, other)]
        return _Four(
            _Subjects.of(measure, one, self.weight, self.slices, ruler),
            differ(measure, one, again, ruler),
            differ(measure, two, other, ruler),
            cross,
        )


@dataclass(frozen=True, slots=True)
class _Four:
    """Self-disagreement of each model, and disagreement between the two."""

    of: _Subjects
    own: Bools
    other: Bools
    cross: Sequence[Bools]

    def sequences(self, name: str) -> tuple[RateSequence, RateSequence, DifferenceSequence]:
        """Noise of both models, and what they differ beyond it, on a slice."""
        here = self.of.of_slice(name)
        weight, own, other = self.of.weight[here], self.own[here], self.other[here]
        beyond = excess([each[here] for each in self.cross], own, other)
        return (
            RateSequence.of(own, weight),
            RateSequence.of(other, weight),
            DifferenceSequence.of(beyond, weight),
        )


def _classes(apart: NDArray[np.float64]) -> tuple[int, ...]:
    counts = np.bincount(np.searchsorted(DELTA_EDGES, apart, side="right"), minlength=len(DELTA_EDGES) + 1)
    return tuple(int(count) for count in counts)
