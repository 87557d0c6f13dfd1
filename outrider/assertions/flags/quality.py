"""Quality of assertions: precision, coverage, false failures, overlap, lead time.

Also advice to keep or suspend an assertion.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from outrider.assertions.statistics.estimation import Estimate, estimate_share
from outrider.assertions.statistics.loss_bounds import FloatOrNull
from outrider.assertions.statistics.wilson import wilson_interval

SUBSUMED_SHARE = 0.9
"""An assertion is subsumed by another that fires on more than this share of its records, with 97.5 %
confidence."""
SUBSUMED_RECORDS = 20
"""Minimum number of shared records for that verdict."""
LEAST_ASKED = 10
"""Minimum number of labels requested by a policy for weighted estimates."""
LEAST_ASKED_SHARE = 0.1
"""Minimum share of requested labels for weighted estimates; below it all labels count equally."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Share with its 95 % Wilson interval.

    Examples
    --------
    >>> rate = Rate(18, 20)
    >>> round(rate.share, 2), round(rate.low, 2), round(rate.high, 2)
    (0.9, 0.7, 0.97)
    """

    hits: int
    trials: int

    @property
    def basis(self) -> str:
        """Number of trials as text."""
        return f"n {self.trials:,}"

    @property
    def method(self) -> Literal["weighted", "none", "plain"]:
        """Estimator of the share."""
        return "plain"

    @property
    def effective(self) -> float:
        """Equivalent number of labels from uniform random draws."""
        return self.trials

    @property
    def share(self) -> FloatOrNull:
        """Share of hits; ``nan`` without trials."""
        return self.hits / self.trials if self.trials else float("nan")

    @property
    def low(self) -> float:
        """Lower end of the interval; 0.0 without trials."""
        return wilson_interval(self.hits, self.trials)[0]

    @property
    def high(self) -> float:
        """Upper end of the interval; 1.0 without trials."""
        return wilson_interval(self.hits, self.trials)[1]


@dataclass(frozen=True, slots=True)
class WeightedRate(Rate):
    """Share of a population, estimated from a policy's labels.

    Labels are weighted by known selection probabilities; ``hits`` and ``trials`` are unweighted counts.
    """

    estimate: Estimate

    @property
    def basis(self) -> str:
        """Number of labels, and equivalent random draws, as text."""
        return f"weighted, n {self.trials:,}, effective n {self.estimate.effective:.0f}"

    @property
    def method(self) -> Literal["weighted", "none", "plain"]:
        """Estimator of the share."""
        return self.estimate.method

    @property
    def effective(self) -> float:
        """Equivalent number of labels from uniform random draws."""
        return round(self.estimate.effective, 1)

    @property
    def share(self) -> FloatOrNull:
        """Estimated share of the population."""
        return self.estimate.value

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.estimate.low

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.estimate.high


@dataclass(frozen=True, slots=True)
class Asked:
    """A policy's request for a record's label.

    Attributes
    ----------
    weight
        Weight from :func:`~outrider.assertions.statistics.estimation.selection_weights`.
    is_certain
        Flag from :func:`~outrider.assertions.statistics.estimation.certain_picks`.
    """

    weight: float
    is_certain: bool = False


def rate_of_labels(outcomes: Sequence[bool], asked: Sequence[Asked | None]) -> Rate:
    """Share of True in the population that the labels come from.

    Requested labels are weighted; unrequested ones (None) are then left out, since their sampling is unknown.
    With too few requested labels, all count equally.

    Examples
    --------
    >>> rate_of_labels([True, False], [None, None])
    Rate(hits=1, trials=2)
    >>> found = rate_of_labels([True] * 9 + [False], [Asked(0.5)] * 9 + [Asked(5.5)])
    >>> round(found.share, 2), found.basis
    (0.45, 'weighted, n 10, effective n 3')
    """
    used = [
        (hit, why) for hit, why in zip(outcomes, asked, strict=True) if why is not None and why.weight > 0
    ]
    enough = len(used) >= max(LEAST_ASKED, LEAST_ASKED_SHARE * len(outcomes))
    if not used or not (enough or all(why is not None for why in asked)):
        return rate_of(outcomes)
    hits = [hit for hit, _ in used]
    found = estimate_share(hits, [why.weight for _, why in used], certain=[why.is_certain for _, why in used])
    return WeightedRate(sum(hits), len(hits), found)


def rate_of(outcomes: Collection[bool]) -> Rate:
    """Share of True values.

    Examples
    --------
    >>> rate_of([True, True, False])
    Rate(hits=2, trials=3)
    """
    return Rate(sum(outcomes), len(outcomes))


@dataclass(frozen=True, slots=True)
class Judged:
    """Labelled record with the correctness of the model's answer."""

    id: str
    wrong: bool
    slice: str = ""
    flagged: bool = False
    """Whether the assertion fired on the record."""
    asked: Asked | None = None
    """Request for the label; None if the label came unrequested."""


@dataclass(frozen=True, slots=True)
class Detection:
    """Separation of errors from right answers by an assertion.

    Computed on labelled records.

    Attributes
    ----------
    coverage
        Share of the known errors that are flagged.
    false_failures
        Share of the right answers that are flagged.
    errors
        Share of errors in all records: the rate that a random choice would find.
    """

    coverage: Rate
    false_failures: Rate
    errors: Rate


def detect(records: Sequence[Judged]) -> Detection:
    """Coverage and false-failure rate.

    Examples
    --------
    >>> seen = [Judged("a", True, flagged=True), Judged("b", True), Judged("c", False), Judged("d", False)]
    >>> found = detect(seen)
    >>> found.coverage.share, found.false_failures.share, found.errors.share
    (0.5, 0.0, 0.5)
    """
    errors = [record for record in records if record.wrong]
    right = [record for record in records if not record.wrong]
    return Detection(
        coverage=rate_of_labels([one.flagged for one in errors], [one.asked for one in errors]),
        false_failures=rate_of_labels([one.flagged for one in right], [one.asked for one in right]),
        errors=rate_of_labels([one.wrong for one in records], [one.asked for one in records]),
    )


@dataclass(frozen=True, slots=True)
class Overlap:
    """Number of records that each of two assertions flags, and both."""

    a: str
    b: str
    records_a: int
    records_b: int
    both: int

    @property
    def jaccard(self) -> float:
        """Jaccard index: records with both over records with either. 0.0 if neither fired."""
        either = self.records_a + self.records_b - self.both
        return self.both / either if either else 0.0

    @property
    def b_given_a(self) -> Rate:
        """Share of ``a``'s records on which ``b`` fires."""
        return Rate(self.both, self.records_a)

    @property
    def a_given_b(self) -> Rate:
        """Share of ``b``'s records on which ``a`` fires."""
        return Rate(self.both, self.records_b)

    @property
    def is_subsumed(self) -> bool:
        """True if ``b`` fires on nearly all of ``a``'s records. Then ``a`` adds little."""
        return self.records_a >= SUBSUMED_RECORDS and self.b_given_a.low > SUBSUMED_SHARE

    def reversed(self) -> "Overlap":
        """The same pair with ``a`` and ``b`` exchanged."""
        return Overlap(self.b, self.a, self.records_b, self.records_a, self.both)


def overlaps(fired: Mapping[str, Collection[str]]) -> list[Overlap]:
    """Pairs of assertions that share a record, most similar first.

    Parameters
    ----------
    fired
        Ids of the records on which each assertion fired.

    Examples
    --------
    >>> [pair] = overlaps({"flicker": {"a", "b"}, "jump": {"b", "c"}, "late": {"d"}})
    >>> pair.a, pair.b, pair.both, round(pair.jaccard, 2)
    ('flicker', 'jump', 1, 0.33)
    """
    sets = {name: frozenset(records) for name, records in sorted(fired.items())}
    names = list(sets)
    pairs = [
        Overlap(a, b, len(sets[a]), len(sets[b]), both)
        for at, a in enumerate(names)
        for b in names[at + 1 :]
        if (both := len(sets[a] & sets[b]))
    ]
    return sorted(pairs, key=lambda pair: (-pair.jaccard, pair.a, pair.b))


@dataclass(frozen=True, slots=True)
class KnownError:
    """Wrong answer, with event time and label time in µs."""

    happened_us: int
    known_us: int


@dataclass(frozen=True, slots=True)
class LeadTime:
    """Time between an assertion's first flag and the first label.

    Attributes
    ----------
    episodes
        Number of runs of flags.
    known
        Number of episodes within which a label showed an error.
    median_s
        Median seconds from the first flag of a known episode to its first label; negative if labels came
        first. None without any.
    """

    episodes: int = 0
    known: int = 0
    median_s: float | None = None


def lead_time(
    flagged_us: Mapping[str, Sequence[int]], errors: Mapping[str, Sequence[KnownError]], *, quiet_s: float
) -> LeadTime:
    """Lead time of flags over labels; both arguments are by slice.

    An episode is a run of flags in one slice without a gap of ``quiet_s``. It becomes known when the first
    label arrives that shows an error of the same slice and period.

    Examples
    --------
    >>> flags = {"till-2": [0, 1_000_000, 900_000_000]}
    >>> labels = {"till-2": [KnownError(500_000, 60_000_000)]}
    >>> lead_time(flags, labels, quiet_s=60.0)
    LeadTime(episodes=2, known=1, median_s=60.0)
    """
    episodes, leads = 0, []
    for part, times in flagged_us.items():
        for first, last in _episodes(sorted(times), int(quiet_s * 1e6)):
            episodes += 1
            label_times = [e.known_us for e in errors.get(part, ()) if first <= e.happened_us <= last]
            if label_times:
                leads.append((min(label_times) - first) / 1e6)
    return LeadTime(episodes, len(leads), median(leads) if leads else None)


def _episodes(times: Sequence[int], quiet_us: int) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for at in times:
        if runs and at - runs[-1][1] <= quiet_us:
            runs[-1] = runs[-1][0], at
        else:
            runs.append((at, at))
    return runs


@dataclass(frozen=True, slots=True)
class SuspensionRule:
    """Thresholds for proposing an assertion's suspension.

    Attributes
    ----------
    min_precision
        Suspend if the upper end of the precision's interval is below this.
    min_outcomes
        Minimum number of reviewed or labelled flags for a statement about precision.
    max_fire_rate
        Suspend if the share of flagged records is above this, unless precision is known to be good.
    """

    min_precision: float = 0.2
    min_outcomes: int = 20
    max_fire_rate: float = 0.3


def reasons_to_suspend(fire_rate: Rate, precision: Rate, rule: SuspensionRule) -> tuple[str, ...]:
    """Reasons to suspend a noisy assertion; empty for none.

    These are proposals; nothing is suspended automatically.

    Examples
    --------
    >>> reasons_to_suspend(Rate(10, 1000), Rate(1, 40), SuspensionRule())
    ('precision 2.5 % (0.4 % to 12.9 %, 40 outcomes): even the upper end lies below 20 %',)
    >>> reasons_to_suspend(Rate(10, 1000), Rate(30, 40), SuspensionRule())
    ()
    """
    reasons = []
    is_judged = precision.trials >= rule.min_outcomes
    if is_judged and precision.high < rule.min_precision:
        interval = f"{_percent(precision.low)} to {_percent(precision.high)}"
        reasons.append(
            f"precision {_percent(precision.share)} ({interval}, {precision.trials} outcomes): "
            f"even the upper end lies below {_percent(rule.min_precision)}"
        )
    is_good = is_judged and precision.low >= rule.min_precision
    if fire_rate.low > rule.max_fire_rate and not is_good:
        reasons.append(
            f"fires on {_percent(fire_rate.share)} of {fire_rate.trials} records, "
            f"more than {_percent(rule.max_fire_rate)}"
        )
    return tuple(reasons)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"
