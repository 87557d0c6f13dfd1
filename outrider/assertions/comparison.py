"""A champion's and a challenger's answers to the same records, tallied by measure and slice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from .agreement import EVERYTHING, MOST_SLICES, Agreement, Measure, Tally, confidence_of
from .batch import Batch
from .difference_sequence import DifferenceSequence
from .differences import Bools, Ruler, deltas, differ, shared_measures, subjects
from .rate_sequence import RateSequence

DELTA_EDGES = 10.0 ** np.arange(-8.0, 0.5, 0.5)
"""Edges of the classes of score distances: below 1e-8, half a decade each, and 1 or more."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Answers of two models to the same records, row by row; those of a slice follow each other.

    Attributes
    ----------
    again
        What the champion answered when it was asked again, in a batch of another shape; rows that are not
        ``known`` hold anything. None where it was not asked.
    asked
        What it was asked again about: ``all`` records, the ``differing`` ones
        (:func:`to_ask_again`), or ``none``. This may depend on the records before, never on these answers.
    weight
        1 / probability of having been seen, shape (rows,).
    slices
        Slice of each record; "" where it has none.
    """

    champion: Batch
    challenger: Batch
    weight: NDArray[np.float64]
    slices: Sequence[str]
    asked: Literal["all", "differing", "none"] = "none"
    again: Batch | None = None
    known: Bools | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is known of two models' answers to a stream; comparisons of parts add up, in any order.

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
    def of(cls, pair: Paired, ruler: Ruler, *, slices: Sequence[str] = ()) -> Self:
        """Comparison of some records.

        Parameters
        ----------
        slices
            Slices that are known already, in order of appearance: with those of these records at most
            ``MOST_SLICES`` are looked at.
        """
        looked_at = list(dict.fromkeys([*slices, *filter(None, pair.slices)]))[:MOST_SLICES]
        one, two, again = pair.champion, pair.challenger, pair.again
        known = np.zeros(one.rows, dtype=np.bool_) if pair.known is None else pair.known
        names = np.asarray(pair.slices, dtype=object)
        tallies: dict[tuple[Measure, str], Tally] = {}
        both = shared_measures(one, two, ruler)
        for measure in both:
            rows = subjects(measure, one, ruler)
            verdicts = _verdicts(measure, rows, pair, known, ruler)
            heavy, of = pair.weight[rows].max(axis=1), names[rows]
            alike = (of == of[:, :1]).all(axis=1)
            for name in [EVERYTHING, *looked_at]:
                here = np.ones(len(rows), np.bool_) if name == EVERYTHING else alike & (of[:, 0] == name)
                if here.any():
                    tallies[measure, name] = verdicts.tally(here, heavy)
        if "score" not in both:
            return cls(tallies)
        noise = () if again is None or pair.asked != "all" else deltas(one, again, ruler)[known]
        return cls(tallies, _classes(deltas(one, two, ruler)), _classes(np.asarray(noise, dtype=np.float64)))

    def __add__(self, other: "Comparison") -> "Comparison":
        tallies = dict(self.tallies)
        for key, tally in other.tallies.items():
            tallies[key] = tallies[key] + tally if key in tallies else tally
        return Comparison(
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
        """What can be compared, the one that decides first."""
        return tuple(dict.fromkeys(measure for measure, _ in self.tallies))

    def agreements(self, *, margin: float) -> dict[tuple[Measure, str], Agreement]:
        """Agreement by measure and slice, with bounds that hold all together, at any time."""
        measures = len(self.measures)
        return {
            (measure, name): tally.agreement(margin=margin, confidence=confidence_of(name, measures))
            for (measure, name), tally in self.tallies.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        tallies = [[*key, tally.to_dict()] for key, tally in self.tallies.items()]
        return {"tallies": tallies, "apart": list(self.apart), "noise_apart": list(self.noise_apart)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """From what :meth:`to_dict` gave; an empty state is an empty comparison."""
        if not state:
            return cls()
        tallies = {(measure, name): Tally.from_dict(tally) for measure, name, tally in state["tallies"]}
        return cls(tallies, tuple(state["apart"]), tuple(state["noise_apart"]))


def to_ask_again(champion: Batch, challenger: Batch, ruler: Ruler) -> NDArray[np.intp]:
    """Rows on which two models differ in any respect: about these the champion is asked again."""
    wanted = np.zeros(champion.rows, dtype=np.bool_)
    for measure in shared_measures(champion, challenger, ruler):
        apart = differ(measure, champion, challenger, ruler)
        wanted[subjects(measure, champion, ruler)[apart].ravel()] = True
    return np.flatnonzero(wanted)


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """Of one measure, shape (comparisons,) each.

    Attributes
    ----------
    odd
        1 where the challenger is the odd one of three answers, -1 where the champion's first is, else 0.
    told
        Whether that is known.
    floor
        Whether the champion was asked again whatever the answers were.
    """

    apart: Bools
    self_apart: Bools
    odd: NDArray[np.int64]
    told: Bools
    floor: Bools

    def tally(self, here: Bools, weight: NDArray[np.float64]) -> Tally:
        floor, told = here & self.floor, here & self.told
        return Tally(
            RateSequence.of(self.apart[here], weight[here]),
            RateSequence.of(self.self_apart[floor], weight[floor]),
            DifferenceSequence.of(self.odd[told], weight[told]),
        )


def _verdicts(
    measure: Measure, rows: NDArray[np.intp], pair: Paired, known: Bools, ruler: Ruler
) -> _Verdicts:
    one, two, again = pair.champion, pair.challenger, pair.again
    apart = differ(measure, one, two, ruler)
    asked = np.asarray(known[rows].all(axis=1))
    never = np.zeros(len(rows), dtype=np.bool_)
    if again is None or pair.asked == "none":
        return _Verdicts(apart, never, never.astype(np.int64), never, never)
    self_apart, other_apart = differ(measure, one, again, ruler), differ(measure, again, two, ruler)
    odd = (apart & other_apart & ~self_apart).astype(np.int64) - (apart & self_apart & ~other_apart)
    if pair.asked == "all":
        return _Verdicts(apart, self_apart, np.where(asked, odd, 0), asked, asked)
    return _Verdicts(apart, self_apart, np.where(asked, odd, 0), asked | ~apart, never)


def _classes(apart: NDArray[np.float64]) -> tuple[int, ...]:
    counts = np.bincount(np.searchsorted(DELTA_EDGES, apart, side="right"), minlength=len(DELTA_EDGES) + 1)
    return tuple(int(count) for count in counts)
