"""Verdict on a candidate from its comparison with production."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from .agreement import EVERYTHING, LEAST, PROPERTIES, Agreement, Measure, Tally, excess
from .comparison import StreamComparison
from .difference_sequence import VALUES, DifferenceSequence
from .rate_sequence import RateSequence

Word = Literal["same", "close", "different", "undecided"]
ERROR = 0.01
"""Probability that a comparison's verdicts on all its candidates are ever wrong, all of them together."""
PARTS: Mapping[Literal["difference", "outcomes", "judge"], float] = {
    "difference": 0.5,
    "outcomes": 0.25,
    "judge": 0.25,
}
"""Shares of this error: of a difference (half of it where), of paired outcomes, of a judge."""
MOST_SLICES = 48
"""Slices that a comparison looks at, of all attributes together."""
_FARTHEST = 10_000_000
"""Records beyond which a forecast says nothing."""
_STEP = 1.05


@dataclass(frozen=True, slots=True)
class MeasureVerdict:
    """Verdict in one respect.

    Attributes
    ----------
    word
        ``different``: a difference beyond noise larger than the margin is proven. ``same``, ``close``: one
        larger than the margin is ruled out; ``close`` where a smaller one is proven, or where production's
        noise is not known. ``undecided``: neither.
    value, low, high
        Share of records on which the candidate differs, beyond noise where that is known.
    rows
        Records that were compared.
    more
        About so many more records until the word is settled at the present rates; 0 where it is, None where
        no number of records is likely to.
    why
        Reason why the word is undecided, empty otherwise.
    is_noise_known
        Whether both were asked twice on some records; otherwise ``low`` is 0.
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
        """True where some difference beyond noise is proven, however small."""
        return self.low > 0.0


@dataclass(frozen=True, slots=True)
class CandidateVerdict:
    """Verdict on a candidate: that of its deciding measures together.

    Attributes
    ----------
    word
        ``different`` if it is in one respect, else ``undecided`` if one is, else ``close`` if one is.
    decided_by
        Measure that the word rests on; None without records.
    more
        As of :class:`MeasureVerdict`, until this word is settled.
    measures
        Verdict by deciding measure.
    """

    word: Word
    decided_by: Measure | None
    more: int | None
    why: str
    measures: Mapping[Measure, MeasureVerdict]

    @property
    def is_settled(self) -> bool:
        """False while more records are needed."""
        return self.word != "undecided"


def deciding_measures(measures: tuple[Measure, ...]) -> tuple[Measure, ...]:
    """Measures that decide: of texts every property, otherwise the first."""
    texts = tuple(each for each in measures if each == "text" or each in PROPERTIES)
    return texts if texts and "label" not in measures else measures[:1]


def verdict_of(
    comparison: StreamComparison,
    *,
    margin: float,
    error: float = ERROR,
    candidates: int = 1,
    beside: int = 0,
    has_forecast: bool = True,
) -> CandidateVerdict:
    """Verdict on one of several candidates.

    It may be asked after every block, and the stream may be stopped at any word: the error is shared with
    outcomes and judge (:data:`PARTS`), and in equal parts by candidates and deciding measures (Bonferroni).

    Parameters
    ----------
    margin
        Share of records on which a candidate may differ beyond noise and still count as close, in (0, 1).
    beside
        Further respects that share the error, judged elsewhere.
    has_forecast
        Whether ``more`` is asked for: it costs ten times the verdict.

    Examples
    --------
    >>> never, equal = RateSequence({0: (2000, 0)}), DifferenceSequence({0: (0, 0, 0, 0, 2000, 0, 0, 0, 0)})
    >>> found = StreamComparison({("label", ""): Tally(never, never, never, equal)})
    >>> verdict_of(found, margin=0.02).word, verdict_of(found, margin=0.001).word
    ('same', 'undecided')
    """
    deciding = deciding_measures(comparison.measures)
    if not deciding:
        why = "no answers of production and candidate can be compared"
        return CandidateVerdict("undecided", None, None, why, {})
    confidence = confidence_in(len(deciding) + beside, error=error, candidates=candidates)
    found = {
        measure: measure_verdict(
            comparison.tallies[measure, EVERYTHING],
            Bounding(confidence, LEAST[measure]),
            margin=margin,
            has_forecast=has_forecast,
        )
        for measure in deciding
    }
    for word in ("different", "undecided", "close", "same"):
        named = [measure for measure in deciding if found[measure].word == word]
        if named:
            break
    # The one that is farthest from its end says why.
    by = max(named, key=lambda measure: math.inf if (more := found[measure].more) is None else more)
    return CandidateVerdict(word, by, found[by].more, found[by].why, found)


def confidence_in(respects: int, *, error: float = ERROR, candidates: int = 1) -> float:
    """Confidence of each respect, so that all of them are right together."""
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
) -> int | None:
    """Records until a verdict is to be expected.

    None if there is none within ten million.


    Parameters
    ----------
    noise
        Share of records on which production, and a candidate like it, differs from itself.
    share_asked_twice
        Share of records that both are asked about twice; 0 where production cannot be asked.
    difference
        Share of records on which the candidate differs beyond noise: 0 for an equal one, which ends as
        *same*; larger than the margin for one that ends as *different*.

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

    bounding = Bounding(confidence, -0.5)
    found = _first(lambda rows: bounding.word(tally(rows), margin), 1.0)
    return None if found is None else math.ceil(found)


@dataclass(frozen=True, slots=True)
class Bounding:
    """Terms of the bounds of one measure, as of :meth:`Tally.agreement`."""

    confidence: float
    least: float
    part_of_excess: float = 0.5
    is_unweighted: bool = True

    def agreement(self, tally: Tally, margin: float) -> Agreement:
        """Agreement on these terms."""
        return tally.agreement(
            margin=margin,
            confidence=self.confidence,
            least=self.least,
            part_of_excess=self.part_of_excess,
            is_unweighted=self.is_unweighted,
        )

    def word(self, tally: Tally, margin: float) -> Word:
        """Word of this agreement."""
        return self.agreement(tally, margin).verdict


def measure_verdict(
    tally: Tally, bounding: Bounding, *, margin: float, has_forecast: bool = True
) -> MeasureVerdict:
    """Verdict in one respect.

    Parameters
    ----------
    margin, has_forecast
        As of :func:`verdict_of`.
    """
    found = bounding.agreement(tally, margin)
    word, known, rows = found.verdict, found.beyond.rows > 0, tally.differs.asked
    told = found.beyond if known else found.raw
    value, low, high = 1.0 - told.value, 1.0 - found.beyond.high, 1.0 - found.beyond.low
    if word != "undecided":
        return MeasureVerdict(word, value, low, high, rows, 0, "", known)
    settled = None
    if has_forecast:
        settled = _first(lambda factor: bounding.word(_scaled(tally, factor), margin), _STEP)
    more = None if settled is None or settled * rows > _FARTHEST else math.ceil((settled - 1.0) * rows)
    why = _reason(value, low, margin, is_known=known)
    return MeasureVerdict(word, value, low, high, rows, more, why, known)


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


def _first(word: Callable[[float], Word], begin: float) -> float | None:
    """Smallest factor, on a grid of a twentieth, whose word is settled."""
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

    beyond = {
        k: tuple(round(count * factor) for count in counts) for k, counts in tally.beyond.counts.items()
    }
    return Tally(
        rates(tally.differs), rates(tally.noise), rates(tally.challenger_noise), DifferenceSequence(beyond)
    )


def _excess_of_close_calls() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Odds of each value of a record on which all four answers are drawn between two alike."""
    a, again, b, other = np.array(list(product([False, True], repeat=4))).T
    found = excess([x != y for x in (a, again) for y in (b, other)], a != again, b != other)
    return np.array([(found == value).mean() for value in VALUES])
