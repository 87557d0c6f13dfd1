"""Verdict on a candidate from its comparison with production."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

import numpy as np

from outrider.assertions.statistics.difference_sequence import VALUES, DifferenceSequence
from outrider.assertions.statistics.rate_sequence import RateSequence

from .agreement import (
    EMBEDDING,
    EVERYTHING,
    PART_OF_EXCESS,
    PROPERTIES,
    Agreement,
    Measure,
    Tally,
    Terms,
    confidence_of,
    excess,
    terms_of,
)
from .comparison import MOST_CLASSES, StreamComparison
from .differences import Ruler, declared, text_measures

Word = Literal["same", "close", "different", "undecided"]
ERROR = 0.01
"""Probability that any verdict of a comparison, over all its candidates, is ever wrong."""
PARTS: Mapping[Literal["difference", "outcomes", "judge"], float] = {
    "difference": 0.5,
    "outcomes": 0.25,
    "judge": 0.25,
}
"""Share of ``ERROR`` by kind of test: answer difference, paired failures, judge."""
MOST_SLICES = 48
"""Maximum number of slices that a comparison looks at, over all attributes."""
FREE: frozenset[Measure] = frozenset(("text", "words", "facts", "length", "structure"))
"""Measures of the wording of a text; ignored if parts that have to agree were declared."""
GENERAL: tuple[Measure, ...] = ("facts", "structure", "length", EMBEDDING, "text", "words", "score", "rank")
"""Measures that explain little, the least telling last; named only if no other measure differs."""
CALLS: tuple[Measure, ...] = ("tools", "arguments")
_DECLARE = "say with --agree what must agree"
_WORDS = "words cannot show a change; say with --agree what must agree, or ask at temperature 0"
_HIDDEN = "the embedding does not tell an answer from one with a number or word exchanged"
_FARTHEST = 10_000_000
"""Maximum forecast of required records; above it there is no forecast."""
_STEP = 1.05


@dataclass(frozen=True, slots=True)
class MeasureVerdict:
    """Verdict by one measure.

    Attributes
    ----------
    word
        ``different``: a net difference larger than the margin is proven. ``same``, ``close``: one larger than
        the margin is ruled out; ``close`` if a smaller one is proven, or if production's noise is
        unknown. ``undecided``: neither.
    value, low, high
        Share of records on which the candidate differs, net of noise if that is known.
    rows
        Number of compared records.
    more
        Approximate number of further records until the verdict is final at the present rates; 0 if it is,
        None if no number is likely to suffice.
    why
        Reason for ``undecided``; empty otherwise.
    is_noise_known
        Whether both models answered some records twice; otherwise ``low`` is 0.
    """

    word: Word
    value: float
    low: float
    high: float
    rows: int
    more: int | None
    why: str
    is_noise_known: bool

    @property
    def is_proven(self) -> bool:
        """True if a difference beyond noise is proven, however small."""
        return self.low > 0.0


@dataclass(frozen=True, slots=True)
class CandidateVerdict:
    """Verdict on a candidate, combined over its deciding measures.

    Attributes
    ----------
    word
        ``different`` if any measure is, else ``undecided`` if any is, else ``close`` if any is.
    decided_by
        Measure that determines ``word``; None without records.
    more
        As in :class:`MeasureVerdict`, until ``word`` is final.
    measures
        Verdict by deciding measure.
    apart
        Classes of production that are rarer than the margin and differ on their own records.
    unseen
        Rare classes with too few records to decide, with their number of records.
    shown
        Verdicts by measures that cannot cause ``different``, such as the score next to a label. A proven
        difference turns ``same`` into ``close``.
    """

    word: Word
    decided_by: Measure | None
    more: int | None
    why: str
    measures: Mapping[Measure, MeasureVerdict]
    apart: Mapping[str, MeasureVerdict] = field(default_factory=dict)
    unseen: Mapping[str, int] = field(default_factory=dict)
    shown: Mapping[Measure, MeasureVerdict] = field(default_factory=dict)

    @property
    def deciding(self) -> MeasureVerdict:
        """Verdict of the measure that determines ``word``."""
        assert self.decided_by is not None, "records expected"
        return self.measures[self.decided_by]

    @property
    def is_settled(self) -> bool:
        """False while more records are needed."""
        return self.word != "undecided"


def deciding_measures(measures: Sequence[Measure], agree: Sequence[str] = ()) -> tuple[Measure, ...]:
    """Measures that can cause the verdict ``different``.

    For texts all, for scores also their ranks, otherwise the first. If parts that have to agree were
    declared, measures of wording are left out.
    """
    if not _are_texts(measures):
        return tuple(measures[: 2 if measures[:2] == ("score", "rank") else 1])
    free = FREE - {*declared(agree)} if agree else frozenset[Measure]()
    texts = {*declared(agree), "text", "words", "facts", *PROPERTIES} - free
    return tuple(each for each in measures if each in texts)


def _are_texts(measures: Sequence[Measure]) -> bool:
    """True for measures of texts, or of tool calls without text."""
    return "label" not in measures and not {"text", *CALLS}.isdisjoint(measures)


def shown_measures(measures: Sequence[Measure]) -> tuple[Measure, ...]:
    """Measures that cannot cause the verdict ``different``.

    For example the score next to a label: a quantized model's score often exceeds the tolerance where its
    labels are equal.
    """
    return ("score",) if {"label", "score"} <= {*measures} else ()


def talk_measures(agree: Sequence[str] = ()) -> tuple[Measure, ...]:
    """Deciding measures of texts with tool calls."""
    return deciding_measures((*text_measures(Ruler(agree=tuple(agree))), *PROPERTIES), agree)


def vouching_measures(measures: Sequence[Measure], agree: Sequence[str] = ()) -> tuple[Measure, ...]:
    """Measures that must agree for the verdict ``same``.

    The declared parts, else whole texts; tool calls always.
    """
    deciding = deciding_measures(measures, agree)
    must = {*(declared(agree) or ("text",)), *CALLS}
    return tuple(each for each in deciding if each in must) if _are_texts(measures) else deciding[:1]


def verdict_of(
    comparison: StreamComparison,
    *,
    margin: float,
    agree: Sequence[str] = (),
    error: float = ERROR,
    candidates: int = 1,
    further_tests: int = 0,
    hidden: float = 0.0,
    has_forecast: bool = True,
) -> CandidateVerdict:
    """Verdict on one of several candidates.

    Valid after every block and at any stopping time: the error is shared with outcomes and judge
    (:data:`PARTS`), and equally among candidates and deciding measures (Bonferroni).

    Parameters
    ----------
    margin
        Share of changed answers up to which a candidate counts as close, in (0, 1).
    agree
        Parts of texts that were declared to have to agree; see :class:`~.differences.Ruler`.
    further_tests
        Number of further tests, judged elsewhere, that share the error.
    hidden
        Share of production's answers in which the embedding would miss a change.
    has_forecast
        Whether to compute ``more``, which costs ten times the verdict.

    Examples
    --------
    >>> never, equal = RateSequence({0: (2000, 0)}), DifferenceSequence({0: (0, 0, 0, 0, 2000, 0, 0, 0, 0)})
    >>> found = StreamComparison({("label", ""): Tally(never, never, never, equal)})
    >>> verdict_of(found, margin=0.02).word, verdict_of(found, margin=0.001).word
    ('same', 'undecided')
    """
    respects = len(deciding_measures(comparison.measures, agree)) + further_tests
    respects += "label" in comparison.measures  # for its classes
    respects += len(shown_measures(comparison.measures))
    confidence = confidence_in(max(1, respects), error=error, candidates=candidates)
    bounding = Bounding(confidence)
    return _verdict(comparison, bounding, agree, margin=margin, hidden=hidden, has_forecast=has_forecast)


def stream_verdict(
    comparison: StreamComparison, *, margin: float, agree: Sequence[str] = ()
) -> CandidateVerdict:
    """Verdict on a challenger in the service, by the bounds of :meth:`StreamComparison.agreements`."""
    confidence = confidence_of(EVERYTHING, max(1, comparison.respects))
    bounding = Bounding(confidence, part_of_excess=PART_OF_EXCESS, is_unweighted=False)
    return _verdict(comparison, bounding, agree, margin=margin, has_forecast=True)


def _verdict(
    comparison: StreamComparison,
    bounding: "Bounding",
    agree: Sequence[str],
    *,
    margin: float,
    hidden: float = 0.0,
    has_forecast: bool,
) -> CandidateVerdict:
    deciding = deciding_measures(comparison.measures, agree)
    vouching, must = vouching_measures(comparison.measures, agree), declared(agree)
    if not deciding:
        why = "no answers of production and candidate can be compared"
        return CandidateVerdict("undecided", None, None, why, {})

    def verdict_by(measure: Measure) -> MeasureVerdict:
        return measure_verdict(
            comparison.tallies[measure, EVERYTHING],
            replace(bounding, terms=terms_of(measure, is_declared=measure in must, hidden=hidden)),
            margin=margin,
            has_forecast=has_forecast and measure in vouching,
        )

    found = {measure: verdict_by(measure) for measure in deciding}
    shown = {measure: verdict_by(measure) for measure in shown_measures(comparison.measures)}
    for measure in vouching:
        if found[measure].word in ("same", "close") and not comparison.sees(measure, margin):
            share = percent(comparison.held[measure].rate)
            why = f"only {share} of production's answers hold {measure}: a change would not show; {_DECLARE}"
            found[measure] = replace(found[measure], word="undecided", more=None, why=why)
    rare = _rare_classes(comparison, bounding, margin=margin)
    classes = {name: each for name, each in rare.items() if each.word == "different"}
    unseen = {name: each.rows for name, each in rare.items() if each.word == "undecided"}
    apart = [measure for measure in deciding if found[measure].word == "different"]
    if apart:
        by = min(apart, key=lambda measure: GENERAL.index(measure) if measure in GENERAL else -1)
        return CandidateVerdict("different", by, 0, "", found, classes, unseen, shown)
    if classes:
        return CandidateVerdict("different", "label", 0, "", found, classes, unseen, shown)
    order: tuple[Word, ...] = ("undecided", "close", "same")
    word = min((found[measure].word for measure in vouching), key=order.index)
    named = [measure for measure in vouching if found[measure].word == word]
    # The one that is farthest from its end says why.
    by = max(named, key=lambda measure: math.inf if (more := found[measure].more) is None else more)
    if word == "same" and any(each.is_proven for each in (*found.values(), *shown.values())):
        word = "close"
    return CandidateVerdict(word, by, found[by].more, found[by].why, found, {}, unseen, shown)


def _rare_classes(
    comparison: StreamComparison, bounding: "Bounding", *, margin: float
) -> dict[str, MeasureVerdict]:
    """Verdict on each class that is rarer than the margin, on its own records; classes share one error."""
    if len(comparison.classes) >= MOST_CLASSES:
        return {}
    error = (1.0 - bounding.confidence) / MOST_CLASSES
    # Given A, the four answers are no longer exchangeable: their excess may be -1.
    terms = replace(bounding, confidence=1.0 - error, terms=Terms())
    rows = comparison.tallies["label", EVERYTHING].differs.asked if comparison.classes else 0
    return {
        name: measure_verdict(tally, terms, margin=margin, has_forecast=False)
        for name, tally in comparison.classes.items()
        if tally.differs.asked < margin * rows
    }


def confidence_in(respects: int, *, error: float = ERROR, candidates: int = 1) -> float:
    """Confidence of each test, so that all tests share ``error``."""
    return 1.0 - error * PARTS["difference"] / 2 / candidates / respects


def records_needed(
    margin: float,
    noise: float,
    share_asked_twice: float,
    *,
    difference: float = 0.0,
    error: float = ERROR,
    candidates: int = 1,
    measures: int = 1,
    is_exact: bool = False,
) -> int | None:
    """Approximate number of records until a verdict. None if above ten million.

    Parameters
    ----------
    noise
        Share of records on which production, or an equal candidate, differs from its own second answer.
    share_asked_twice
        Share of records that both models answer twice; 0 if production cannot be asked.
    difference
        Net difference of the candidate as a share of records: 0 for an equal one, which ends as *same*;
        larger than the margin for one that ends as *different*.
    is_exact
        Whether texts are compared without declared parts that have to agree.

    Examples
    --------
    >>> records_needed(0.02, 0.0, 1.0) < records_needed(0.02, 0.01, 1.0) < records_needed(0.02, 0.01, 0.1)
    True
    """
    confidence = confidence_in(measures, error=error, candidates=candidates)
    values = _excess_of_close_calls() * min(1.0, 2 * noise) * (1 - difference)
    values[VALUES == 0.0] += (1 - min(1.0, 2 * noise)) * (1 - difference)
    values[VALUES == 1.0] += difference

    def tally(rows: float) -> Tally:
        twice = rows * share_asked_twice
        own = RateSequence({0: (round(twice), round(twice * noise))} if twice else {})
        differs = RateSequence({0: (round(rows), round(rows * (difference + (1 - difference) * noise)))})
        beyond = DifferenceSequence({0: tuple(np.rint(values * twice).astype(int).tolist())} if twice else {})
        return Tally(differs, own, own, beyond)

    bounding = Bounding(confidence, Terms(-0.5, is_exact=is_exact))
    found = _first(lambda rows: bounding.word(tally(rows), margin), 1.0)
    return None if found is None else math.ceil(found)


@dataclass(frozen=True, slots=True)
class Bounding:
    """Arguments of :meth:`Tally.agreement` for one measure."""

    confidence: float
    terms: Terms = field(default_factory=lambda: Terms(-0.5))
    part_of_excess: float = 0.5
    is_unweighted: bool = True

    def agreement(self, tally: Tally, margin: float) -> Agreement:
        """Agreement with these arguments."""
        return tally.agreement(
            margin=margin,
            confidence=self.confidence,
            terms=self.terms,
            part_of_excess=self.part_of_excess,
            is_unweighted=self.is_unweighted,
        )

    def word(self, tally: Tally, margin: float) -> Word:
        """Verdict word of this agreement."""
        return self.agreement(tally, margin).verdict


def measure_verdict(
    tally: Tally, bounding: Bounding, *, margin: float, has_forecast: bool = True
) -> MeasureVerdict:
    """Verdict by one measure. ``margin`` and ``has_forecast`` are as for :func:`verdict_of`."""
    found = bounding.agreement(tally, margin)
    word, known, rows = found.verdict, found.beyond.rows > 0, tally.differs.asked
    share = found.beyond if known else found.raw
    value, low, high = 1.0 - share.value, 1.0 - found.beyond.high, 1.0 - found.beyond.low
    if word != "undecided":
        return MeasureVerdict(word, value, low, high, rows, 0, "", known)
    more = None
    if has_forecast:
        more = more_records(lambda factor: bounding.word(_scaled(tally, factor), margin), rows)
    why = _reason(value, low, margin, is_known=known)
    varies = found.noise.value
    if known and bounding.terms.is_exact and varies >= margin:
        more, why = None, f"wording varies in {percent(varies)} of production's own answers: {_WORDS}"
    elif bounding.terms.hidden >= margin:
        more, why = None, f"{_HIDDEN} in {percent(bounding.terms.hidden)} of production's answers"
    elif known and varies >= 0.5 and low <= 0.0:
        why = f"production differs from itself in {percent(varies)} of its answers: little of a change shows"
    return MeasureVerdict(word, value, low, high, rows, more, why, known)


def percent(share: float) -> str:
    """Share as text, with few digits.

    Examples
    --------
    >>> percent(0.034), percent(0.0004), percent(0.5)
    ('3.4 %', '0.04 %', '50 %')
    """
    value = 100.0 * share
    digits = (
        f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"
    )
    return f"{digits} %"


def _reason(value: float, low: float, margin: float, *, is_known: bool) -> str:
    if not is_known and value > margin:
        return (
            "production's own noise is not known: the difference may be noise, and is larger than the margin"
        )
    if not is_known:
        return "too few records; production's own noise is not known, so at best this ends as close"
    if low > 0.0:
        return "a difference beyond noise is proven; whether it is larger than the margin is open"
    return "too few records, or too few on which both were asked twice"


def more_records(word: Callable[[float], str], rows: int) -> int | None:
    """Approximate number of further records until a verdict is final.

    None if no number is likely to suffice. ``word(k)`` is the verdict with k times the records at the present
    rates.
    """
    settled = _first(word, _STEP)
    return None if settled is None or settled * rows > _FARTHEST else math.ceil((settled - 1.0) * rows)


def _first(word: Callable[[float], str], begin: float) -> float | None:
    """Smallest factor on a geometric grid from ``begin`` whose verdict is final; None if none is."""
    low, high = 0, math.ceil(math.log(_FARTHEST / begin, _STEP))
    if word(begin * _STEP**high) == "undecided":
        return None
    while low < high:
        middle = (low + high) // 2
        if word(begin * _STEP**middle) == "undecided":
            low = middle + 1
        else:
            high = middle
    return begin * _STEP**low


def _scaled(tally: Tally, factor: float) -> Tally:
    def rates(one: RateSequence) -> RateSequence:
        return RateSequence(
            {k: (round(asked * factor), round(n * factor)) for k, (asked, n) in one.counts.items()}
        )

    return Tally(
        rates(tally.differs), rates(tally.noise), rates(tally.challenger_noise), tally.beyond.scaled(factor)
    )


def _excess_of_close_calls() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Probability of each value of :func:`excess` if the four answers are fair coin flips."""
    a, again, b, other = np.array(list(product([False, True], repeat=4))).T
    found = excess([x != y for x in (a, again) for y in (b, other)], a != again, b != other)
    return np.array([(found == value).mean() for value in VALUES])
