"""Comparison of a champion's and a challenger's answers, by measure and slice."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.statistics.difference_sequence import PARTS, DifferenceSequence
from outrider.assertions.statistics.rate_sequence import RateSequence

from .agreement import (
    EMBEDDING,
    EVERYTHING,
    ITEMS,
    MOST_SLICES,
    Agreement,
    Measure,
    Tally,
    confidence_of,
    excess,
    held_excess,
    terms_of,
)
from .differences import (
    AnswerReading,
    Bools,
    Floats,
    Ruler,
    classes_of,
    declared,
    deltas,
    differ,
    is_of_items,
    shared_measures,
    subjects,
)

_Key = TypeVar("_Key")
_Counts = TypeVar("_Counts", Tally, RateSequence)
MOST_CLASSES = 48
"""Maximum number of the champion's classes compared on their own records, in order of appearance."""
DELTA_EDGES = 10.0 ** np.arange(-8.0, 0.5, 0.5)
"""Bin edges of score distances: below 1e-8, half a decade each, and 1 or more."""


@dataclass(frozen=True, slots=True)
class PairedAnswers:
    """Answers of two models to the same records, row by row.

    Records of one slice are consecutive.

    Attributes
    ----------
    weight
        1 / probability of having been captured, shape (rows,).
    slices
        Slice of each record; "" without one.
    asked
        Rows, ascending, that both models answered a second time; drawn independently of the answers.
    again, challenger_again
        Second answers of champion and challenger, row by row of ``asked``; None if there are none.
    more_slices
        Slices by further attributes, each as ``slices``, with distinct names.
    entities
        Conversation of each record, "" for a single record; empty if all records are single.
    """

    champion: Batch
    challenger: Batch
    weight: NDArray[np.float64]
    slices: Sequence[str]
    asked: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    again: Batch | None = None
    challenger_again: Batch | None = None
    more_slices: Sequence[Sequence[str]] = ()
    entities: Sequence[str] = ()

    def take(self, rows: NDArray[np.intp]) -> "PairedAnswers":
        """Subset of the records, at ascending row numbers."""
        place = np.full(self.champion.rows, -1, dtype=np.intp)
        place[rows] = np.arange(len(rows))
        kept = np.flatnonzero(place[self.asked] >= 0)
        again, other = self.again, self.challenger_again
        names = [[each[row] for row in rows.tolist()] for each in (self.slices, *self.more_slices)]
        return PairedAnswers(
            self.champion.take(rows),
            self.challenger.take(rows),
            self.weight[rows],
            names[0],
            place[self.asked[kept]],
            None if again is None else again.take(kept),
            None if other is None else other.take(kept),
            names[1:],
            [self.entities[row] for row in rows.tolist()] if len(self.entities) else (),
        )

    def declared_steady(self, *, champion: bool = True, challenger: bool = False) -> "PairedAnswers":
        """Pair whose first answers also serve as second answers.

        For models declared to be deterministic; the other model needs second answers on ``asked``.
        """
        asked = np.arange(self.champion.rows, dtype=np.intp) if champion and challenger else self.asked
        return replace(
            self,
            asked=asked,
            again=self.champion.take(asked) if champion else self.again,
            challenger_again=self.challenger.take(asked) if challenger else self.challenger_again,
        )


@dataclass(frozen=True, slots=True)
class StreamComparison:
    """Comparison of two models on a stream; comparisons of parts add up.

    Attributes
    ----------
    tallies
        By measure and slice; slice "" is all records.
    apart, noise_apart
        Number of records by score distance (:data:`DELTA_EDGES`): between the models, and between two answers
        of the champion.
    entities
        Hashes of the conversations already counted.
    classes
        Tally by the champion's class, on records of that class only: P(A ≠ B) less P(A ≠ A'), given A.
    held
        By measure that was declared to have to agree: share of the champion's answers that contain it.
    """

    tallies: Mapping[tuple[Measure, str], Tally] = field(default_factory=dict)
    apart: tuple[int, ...] = (0,) * (len(DELTA_EDGES) + 1)
    noise_apart: tuple[int, ...] = (0,) * (len(DELTA_EDGES) + 1)
    entities: frozenset[int] = frozenset()
    classes: Mapping[str, Tally] = field(default_factory=dict)
    held: Mapping[Measure, RateSequence] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        pair: PairedAnswers,
        ruler: Ruler,
        *,
        slices: Sequence[str] = (),
        entities: frozenset[int] = frozenset(),
        classes: Collection[str] = (),
        most_slices: int = MOST_SLICES,
    ) -> Self:
        """Comparison of some records.

        Turns of one conversation are dependent, so each conversation counts with one record: the one with the
        smallest hash of its id among those that arrived first. Counted records are thus independent, and no
        answer influences the choice.

        Parameters
        ----------
        slices
            Known slices in order of appearance; together with those of these records at most ``most_slices``
            are compared.
        entities
            Conversations already counted.
        classes
            Known classes in order of appearance.
        """
        known = entities
        if len(pair.entities):
            rows, known = one_of_each(pair.entities, pair.champion.keys, entities)
            pair = pair.take(rows)
        names = (name for each in (pair.slices, *pair.more_slices) for name in each if name)
        looked_at = list(dict.fromkeys([*slices, *names]))[:most_slices]
        one, two, asked = pair.champion, pair.challenger, pair.asked
        both = shared_measures(one, two, ruler)
        twice = _Twice.of(pair, ruler)
        tallies: dict[tuple[Measure, str], Tally] = {}
        held: dict[Measure, RateSequence] = {}
        must = {*declared(ruler.agree)} - {"text", EMBEDDING}
        readings = _Readings(ruler)
        for measure in both:
            once = _Subjects.of(measure, one, pair.weight, (pair.slices, *pair.more_slices), ruler)
            reading = readings.of(measure, one)
            apart = reading.differs(readings.of(measure, two))
            if measure in must:
                held[measure] = RateSequence.of(reading.items > 0.0, pair.weight)
            four = None if twice is None else twice.compared(measure)
            for name in [EVERYTHING, *looked_at]:
                here = once.of_slice(name)
                if here.any():
                    differs = RateSequence.of(apart[here], once.weight[here])
                    again = (RateSequence(), RateSequence(), DifferenceSequence())
                    tallies[measure, name] = Tally(
                        differs, *(again if four is None else four.sequences(name))
                    )
        new = known - entities
        by_class = _of_classes(pair, ruler, classes) if "label" in both else {}
        found = cls(tallies, entities=new, classes=by_class, held=held)
        if "score" not in both:
            return found
        noise = np.zeros(0) if pair.again is None else deltas(one.take(asked), pair.again, ruler)
        return replace(found, apart=_classes(deltas(one, two, ruler)), noise_apart=_classes(noise))

    def __add__(self, other: "StreamComparison") -> "StreamComparison":
        """Sum of two parts.

        Raises
        ------
        ValueError
            If a conversation has been counted in both.
        """
        if self.entities & other.entities:
            raise ValueError(
                f"{len(self.entities & other.entities)} conversations counted in both parts, none expected: "
                "a conversation counts once, so give StreamComparison.of(entities=) those counted before"
            )
        return StreamComparison(
            _added(self.tallies, other.tallies),
            tuple(a + b for a, b in zip(self.apart, other.apart, strict=True)),
            tuple(a + b for a, b in zip(self.noise_apart, other.noise_apart, strict=True)),
            self.entities | other.entities,
            _added(self.classes, other.classes),
            _added(self.held, other.held),
        )

    @property
    def slices(self) -> tuple[str, ...]:
        """Slices in order of appearance."""
        return tuple(dict.fromkeys(name for _, name in self.tallies if name != EVERYTHING))

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Measures that can be compared, the deciding one first."""
        return tuple(dict.fromkeys(measure for measure, _ in self.tallies))

    @property
    def respects(self) -> int:
        """Number of tests that share the error. The measures, plus one for classes on their own records."""
        return len(self.measures) + ("label" in self.measures)

    def agreements(self, *, margin: float, agree: Sequence[str] = ()) -> dict[tuple[Measure, str], Agreement]:
        """Agreement by measure and slice, with bounds valid at all times together.

        ``agree`` lists what the texts were declared to have to agree in.
        """
        measures, must = self.respects, declared(agree)
        found = {}
        for (measure, name), tally in self.tallies.items():
            each = tally.agreement(
                margin=margin,
                confidence=confidence_of(name, measures),
                terms=terms_of(measure, is_declared=measure in must),
            )
            is_blind = each.verdict in ("same", "close") and not self.sees(measure, margin)
            found[measure, name] = replace(each, verdict="undecided") if is_blind else each
        return found

    def sees(self, measure: Measure, margin: float) -> bool:
        """True if enough of the champion's answers contain a declared part.

        More than a share ``margin``; otherwise a change of that part could go unnoticed.
        """
        return measure not in self.held or self.held[measure].rate > margin

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        tallies = [[*key, tally.to_dict()] for key, tally in self.tallies.items()]
        state = {"tallies": tallies, "apart": list(self.apart), "noise_apart": list(self.noise_apart)}
        state |= {"classes": {name: tally.to_dict() for name, tally in self.classes.items()}}
        state |= {"held": {measure: rates.to_dict() for measure, rates in self.held.items()}}
        return state | ({"entities": sorted(self.entities)} if self.entities else {})

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`. An empty mapping gives an empty object."""
        if not state:
            return cls()
        tallies = {(measure, name): Tally.from_dict(tally) for measure, name, tally in state["tallies"]}
        entities = frozenset(map(int, state.get("entities", ())))
        classes = {name: Tally.from_dict(tally) for name, tally in state["classes"].items()}
        held = {measure: RateSequence.from_dict(rates) for measure, rates in state["held"].items()}
        return cls(tallies, tuple(state["apart"]), tuple(state["noise_apart"]), entities, classes, held)


def _added(one: Mapping[_Key, _Counts], other: Mapping[_Key, _Counts]) -> dict[_Key, _Counts]:
    found = dict(one)
    for key, counts in other.items():
        found[key] = found[key] + counts if key in found else counts
    return found


def _of_classes(pair: PairedAnswers, ruler: Ruler, known: Collection[str]) -> dict[str, Tally]:
    """Tally by class of the champion's first answers."""
    named = classes_of(pair.champion, ruler)
    apart = differ("label", pair.champion, pair.challenger, ruler)
    asked, again, other = pair.asked, pair.again, pair.challenger_again
    own, beyond = np.zeros(0, dtype=np.bool_), np.zeros(0)
    if again is not None and other is not None and len(asked):
        own = differ("label", pair.champion.take(asked), again, ruler)
        his = differ("label", pair.champion.take(asked), other, ruler)
        beyond = (apart[asked].astype(np.float64) + his) / 2 - own
    else:
        asked = asked[:0]
    found = {}
    for name in list(dict.fromkeys([*known, *named.tolist()]))[:MOST_CLASSES]:
        here, there = named == name, named[asked] == name
        noise = RateSequence.of(own[there], pair.weight[asked][there])
        found[name] = Tally(
            RateSequence.of(apart[here], pair.weight[here]),
            noise,
            noise,
            DifferenceSequence.of(beyond[there], pair.weight[asked][there]),
        )
    return {name: tally for name, tally in found.items() if tally.differs.asked}


def one_of_each(
    entities: Sequence[str], keys: Sequence[Any] | NDArray[Any], counted: frozenset[int]
) -> tuple[NDArray[np.intp], frozenset[int]]:
    """Rows of one record per new conversation, and the counted conversations.

    Records without a conversation ("") are all kept.

    Parameters
    ----------
    keys
        Id of each record; the record is drawn by a hash of it and the conversation.

    Examples
    --------
    >>> rows, counted = one_of_each(["a", "a", "", "b"], ["1", "2", "3", "4"], frozenset())
    >>> len(rows), len(counted), one_of_each(["b", "c"], ["5", "6"], counted)[0].tolist()
    (3, 2, [1])
    """
    from pandas.util import hash_array  # pandas is slow to import

    names = np.asarray(entities, dtype=object)
    conversation = hash_array(names, categorize=False)
    drawn = np.array([f"{name} {key}" for name, key in zip(entities, keys, strict=True)], dtype=object)
    order = np.argsort(hash_array(drawn, categorize=False), kind="stable")
    alone = names == ""
    is_open = ~alone & ~np.isin(conversation, np.fromiter(counted, dtype=np.uint64, count=len(counted)))
    here = order[is_open[order]]
    new, first = np.unique(conversation[here], return_index=True)
    rows = np.sort(np.concatenate([np.flatnonzero(alone), here[first]])).astype(np.intp)
    return rows, counted.union(new.tolist())


def taken_back(measure: Measure, pair: PairedAnswers, ruler: Ruler) -> NDArray[np.intp]:
    """Rows on which a model contradicts its own earlier answer."""
    twice = _Twice.of(pair, ruler)
    four = None if twice is None else twice.compared(measure)
    return pair.asked[:0] if four is None else pair.asked[four.own | four.other]


class _Readings:
    """Answers as each measure reads them; ``text`` and ``words`` share one tokenization."""

    def __init__(self, ruler: Ruler) -> None:
        self._ruler = ruler
        self._last: dict[int, AnswerReading] = {}

    def of(self, measure: Measure, answer: Batch) -> AnswerReading:
        last = self._last.get(id(answer))
        if last is not None and {last.measure, measure} == {"text", "words"}:
            return last.of_measure(measure)
        found = self._last[id(answer)] = AnswerReading.of(measure, answer, self._ruler)
        return found


@dataclass(frozen=True, slots=True)
class _Subjects:
    """Comparisons of one measure: single records, or pairs of records for ranks.

    Attributes
    ----------
    weight
        Weight of each comparison, shape (comparisons,).
    slices
        Slice of each comparison by attribute; None if the two records of a pair differ in it.
    """

    weight: NDArray[np.float64]
    slices: Sequence[NDArray[np.object_]]

    @classmethod
    def of(
        cls,
        measure: Measure,
        answer: Batch,
        weight: NDArray[np.float64],
        slices: Sequence[Sequence[str]],
        ruler: Ruler,
    ) -> Self:
        rows = subjects(measure, answer, ruler)
        by_attribute = []
        for names in (np.asarray(each, dtype=object)[rows] for each in slices):
            first = names[:, 0].copy()
            first[(names != names[:, :1]).any(axis=1)] = None
            by_attribute.append(first)
        return cls(weight[rows].max(axis=1), by_attribute)

    def of_slice(self, name: str) -> Bools:
        if name == EVERYTHING:
            return np.ones(len(self.weight), dtype=np.bool_)
        return np.asarray(np.any([names == name for names in self.slices], axis=0), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class _Twice:
    """First and second answers of both models, on the records that both answered twice."""

    champion: tuple[Batch, Batch]
    challenger: tuple[Batch, Batch]
    weight: NDArray[np.float64]
    slices: Sequence[Sequence[str]]
    ruler: Ruler
    readings: _Readings

    @classmethod
    def of(cls, pair: PairedAnswers, ruler: Ruler) -> Self | None:
        asked, again, other = pair.asked, pair.again, pair.challenger_again
        if again is None or other is None or not len(asked):
            return None
        one, two = pair.champion.take(asked), pair.challenger.take(asked)
        names = [[each[row] for row in asked] for each in (pair.slices, *pair.more_slices)]
        return cls((one, again), (two, other), pair.weight[asked], names, ruler, _Readings(ruler))

    def compared(self, measure: Measure) -> "_Four | None":
        (one, again), (two, other) = self.champion, self.challenger
        if any(measure not in shared_measures(one, answer, self.ruler) for answer in (again, two, other)):
            return None
        a, a2, b, b2 = (self.readings.of(measure, answer) for answer in (one, again, two, other))
        of = _Subjects.of(measure, one, self.weight, self.slices, self.ruler)
        pairs = [(x, y) for x in (a, a2) for y in (b, b2)]
        if measure != "words" or not is_of_items(measure, self.ruler):
            own, others = a.differs(a2), b.differs(b2)
            return _Four(of, own, others, excess([x.differs(y) for x, y in pairs], own, others))
        cross, own_items, other_items = [x.exchanged(y) for x, y in pairs], a.exchanged(a2), b.exchanged(b2)
        # One item counts alike in short and long texts, and in all four answers to a record alike.
        size = np.maximum(ITEMS, np.max([each.items for each in (a, a2, b, b2)], axis=0))
        beyond = held_excess(
            [each / size for each in cross], own_items / size, other_items / size, one=1.0 / ITEMS
        )
        return _Four(of, own_items > 0.0, other_items > 0.0, _rounded(beyond, one.keys), ITEMS)


@dataclass(frozen=True, slots=True)
class _Four:
    """Self-disagreement of each model, and their net difference, in steps of 1 / ``parts``."""

    of: _Subjects
    own: Bools
    other: Bools
    beyond: Floats
    parts: int = PARTS

    def sequences(self, name: str) -> tuple[RateSequence, RateSequence, DifferenceSequence]:
        """Self-disagreement of both models, and their net difference, on a slice."""
        here = self.of.of_slice(name)
        weight = self.of.weight[here]
        return (
            RateSequence.of(self.own[here], weight),
            RateSequence.of(self.other[here], weight),
            DifferenceSequence.of(self.beyond[here], weight, parts=self.parts),
        )


def _rounded(values: Floats, keys: NDArray[Any]) -> Floats:
    """Values rounded to steps of 1 / ``ITEMS``, up or down by a hash of the id, which keeps the mean."""
    from pandas.util import hash_array  # pandas is slow to import

    draw = hash_array(np.array([f"{key} rounded" for key in keys], dtype=object), categorize=False) / 2.0**64
    found: Floats = np.floor(values * ITEMS + draw) / ITEMS
    return found


def _classes(apart: NDArray[np.float64]) -> tuple[int, ...]:
    counts = np.bincount(np.searchsorted(DELTA_EDGES, apart, side="right"), minlength=len(DELTA_EDGES) + 1)
    return tuple(int(count) for count in counts)
