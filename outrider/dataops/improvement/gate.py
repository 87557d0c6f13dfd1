"""Promotion gate: pure function of a policy and evidence."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from outrider.assertions.estimation import Estimate

SIGNIFICANCE = 0.05


@dataclass(frozen=True, slots=True)
class Policy:
    """Policy of the gate; see ``[models.*.gate]`` in the configuration."""

    max_drop: float = 0.01
    min_gain: float = 0.0
    shadow_rows: int = 0


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Failure rate of one model on a test, from ``low`` to ``high``."""

    cases: int
    failures: int
    low: float = 0.0
    high: float = 1.0
    error: str = ""
    """Why the test could not be run; empty when it could."""
    confidence: float = 0.95
    """Of the interval."""

    @property
    def rate(self) -> float:
        """Share of the cases that failed; 0.0 without cases."""
        return self.failures / self.cases if self.cases else 0.0

    def __str__(self) -> str:
        return (
            f"{self.failures} of {self.cases} cases ({self.rate:.1%}, {100 * self.confidence:.3g} % interval "
            f"{self.low:.1%} to {self.high:.1%})"
        )


@dataclass(frozen=True, slots=True)
class SuiteEvidence:
    """Behavioral test of both models on the same cases.

    ``only_champion_fails`` and ``only_candidate_fails`` count cases that one of them alone fails; ``p`` is
    that of McNemar's exact test on them (of a rule of the whole test: that of its figures), adjusted over all
    tests by Holm's method. ``compared`` is what follows at ``SIGNIFICANCE``; ``note`` says why not, or which
    figure.
    """

    suite: str
    test: str
    capability: str
    kind: str
    tolerance: float
    champion: FailureRate
    candidate: FailureRate
    only_champion_fails: int = 0
    only_candidate_fails: int = 0
    p: float = 1.0
    compared: Literal["regression", "improvement", "same", "not comparable"] = "same"
    note: str = ""
    examples: Sequence[str] = ()
    """Cases that the candidate fails, as text."""


@dataclass(frozen=True, slots=True)
class PairedEvidence:
    """Both models' answers to the same labelled rows.

    ``only_champion`` and ``only_candidate`` count rows that one of them alone gets right.
    """

    dataset: str
    rows: int
    champion_correct: int
    candidate_correct: int
    only_champion: int
    only_candidate: int
    champion_share: Estimate | None = None
    candidate_share: Estimate | None = None
    """Accuracy over the records that the rows were chosen from, by the probabilities of their requests; None
    when no row has one."""
    is_numeric: bool = False
    """The target is a number: whether an answer is right is not a question to ask of it."""


@dataclass(frozen=True, slots=True)
class LevelFlags:
    """Live records that one of the two alone flags at a level."""

    level: str
    only_champion: int
    only_candidate: int


@dataclass(frozen=True, slots=True)
class ShadowEvidence:
    """Flags on the answers of both to the same live records.

    ``only_champion`` and ``only_candidate`` count records that are flagged with one of them alone.
    """

    rows: int = 0
    champion_flagged: int = 0
    candidate_flagged: int = 0
    only_champion: int = 0
    only_candidate: int = 0
    entities: int = 0
    entity_hours: int = 0
    """Hours of entities with such records: what counts as one observation."""
    difference: float = 0.0
    low: float = -1.0
    high: float = 1.0
    """``difference``, ``low`` and ``high``: share flagged more with the candidate, on average over these, and
    its one-sided bounds."""
    levels: Sequence[LevelFlags] = ()
    others: int = 0
    """Further records, judged as answers of other versions than the champion."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for the gate; parts not gathered are empty or None."""

    suites: Sequence[SuiteEvidence] = ()
    held_out: PairedEvidence | None = None
    fresh: PairedEvidence | None = None
    shadow: ShadowEvidence | None = None
    missing: Sequence[str] = ()
    """Evidence that the policy asks for and that could not be gathered, as sentences."""


@dataclass(frozen=True, slots=True)
class Check:
    """Check of the gate: its result, and a sentence with numbers."""

    name: str
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of the gate, with all checks' ``reasons``, failed ones first."""

    promoted: bool
    checks: list[Check] = field(default_factory=list)

    @property
    def reasons(self) -> list[str]:
        """Sentences of all checks, failed ones first."""
        ordered = sorted(self.checks, key=lambda check: check.passed)
        return [f"{'passed' if check.passed else 'failed'}: {check.reason}" for check in ordered]


def decide(policy: Policy, evidence: Evidence) -> Verdict:
    """Promote when no check fails and evidence about the candidate exists."""
    checks = [Check("evidence", False, sentence) for sentence in evidence.missing]
    checks += [judge_suite(suite) for suite in evidence.suites]
    if evidence.held_out is not None:
        checks.append(judge_held_out(evidence.held_out, policy.max_drop))
    if evidence.fresh is not None:
        checks.append(judge_fresh(evidence.fresh, policy.min_gain))
    if policy.shadow_rows or evidence.shadow is not None:
        checks.append(judge_shadow(evidence.shadow or ShadowEvidence(), policy.shadow_rows))
    if not checks:
        reason = "there is no evidence: declare behavior tests, gate.held_out, held_out_share or shadow_rows"
        checks = [Check("evidence", False, reason)]
    return Verdict(all(check.passed for check in checks), checks)


def judge_suite(suite: SuiteEvidence) -> Check:
    """Check one behavioral test against the champion.

    A test that the champion passes must be passed; one that both fail may not be failed more often. "More
    often" is a question of the cases that one of them alone fails (McNemar), over all tests together (Holm).
    What raises fails, and so does a candidate that leaves nothing to be judged.
    """
    where = f"{suite.capability}: {suite.test} ({suite.kind}, suite {suite.suite})"
    champion, candidate = suite.champion, suite.candidate
    if candidate.error:
        return Check(suite.test, False, f"{where}: it could not be run on the candidate: {candidate.error}")
    if not candidate.cases:
        told = f"no case could be judged for the candidate, the champion fails {champion}"
        return Check(suite.test, False, f"{where}: {told}")
    beside = f"could not be asked: {champion.error}" if champion.error else str(champion)
    allowed = f"up to {suite.tolerance:.1%} may fail"
    numbers = f"{where}: the candidate fails {candidate}, the champion {beside}; {allowed}"
    if candidate.rate <= suite.tolerance:
        return Check(suite.test, True, numbers)
    if champion.error or not champion.cases or champion.rate <= suite.tolerance:
        return Check(suite.test, False, numbers + _shown(suite.examples))
    is_passed = suite.compared in ("same", "improvement")
    if suite.compared == "not comparable":
        is_passed = candidate.rate <= champion.rate
        numbers += f", which both do; {suite.note}"
    else:
        what = suite.note or (
            f"{suite.only_candidate_fails} cases are failed by the candidate alone, "
            f"{suite.only_champion_fails} by the champion alone"
        )
        word = "not significantly" if is_passed else "significantly"
        numbers += f", which both do; {what}: {word} worse (Holm-adjusted p = {suite.p:.3g})"
    return Check(suite.test, is_passed, numbers if is_passed else numbers + _shown(suite.examples))


def _shown(examples: Sequence[str]) -> str:
    """Failing examples, each on a line of its own."""
    return "\n  ".join((". Failing:", *examples)) if examples else ""


def judge_held_out(pair: PairedEvidence, max_drop: float) -> Check:
    """Check for lost accuracy on held-out rows."""
    drop = (pair.champion_correct - pair.candidate_correct) / pair.rows if pair.rows else 0.0
    reason = f"{_accuracies(pair)}: a drop of {drop:+.2%}, at most {max_drop:.2%} is allowed"
    return _needs_rows(pair, Check("held_out", drop <= max_drop + 1e-12, reason))


def judge_fresh(pair: PairedEvidence, min_gain: float) -> Check:
    """Check for better answers on newly flagged rows."""
    gain = (pair.candidate_correct - pair.champion_correct) / pair.rows if pair.rows else 0.0
    reason = f"{_accuracies(pair)}: a gain of {gain:+.2%}, at least {min_gain:+.2%} is needed"
    reason, is_worse = reason + _weighted(pair), _is_surely_worse(pair)
    return _needs_rows(pair, Check("fresh", gain >= min_gain - 1e-12 and not is_worse, reason))


def judge_shadow(shadow: ShadowEvidence, rows_needed: int) -> Check:
    """Check for a proven surplus of flagged records, on live traffic."""
    if shadow.rows < rows_needed:
        others = f"; {shadow.others} more answers were of other versions than the champion" * (
            shadow.others > 0
        )
        few = f"live records: {shadow.rows} were judged in time, {rows_needed} are needed{others}"
        return Check("shadow", False, few)
    candidate, champion = (
        flagged / max(shadow.rows, 1) for flagged in (shadow.candidate_flagged, shadow.champion_flagged)
    )
    alone = "".join(f", {one.only_candidate} and {one.only_champion} {one.level}" for one in shadow.levels)
    of_whom = f"of {shadow.entities} entities" if shadow.entities else "without entities"
    is_worse = shadow.low > 0
    return Check(
        "shadow",
        not is_worse,
        f"live records: {candidate:.2%} of {shadow.rows} are flagged with the candidate, {champion:.2%} with "
        f"the champion (alone: {shadow.only_candidate} and {shadow.only_champion}{alone}); over "
        f"{shadow.entity_hours} hours {of_whom} {shadow.difference:+.2%}, {shadow.low:+.2%} to "
        f"{shadow.high:+.2%}: {'proven' if is_worse else 'not proven'} to be more",
    )


def _sign_test(hits: int, trials: int, *, alternative: str = "two-sided") -> float:
    """Chance of so uneven a split, or a more uneven one, of trials that fall either way alike."""
    from scipy.stats import binomtest  # a second to load, and every trainer starts with this module

    return float(binomtest(hits, trials, 0.5, alternative=alternative).pvalue) if trials else 1.0


def _accuracies(pair: PairedEvidence) -> str:
    discordant = pair.only_champion + pair.only_candidate
    p = _sign_test(pair.only_candidate, discordant)
    champion, candidate = (
        correct / max(pair.rows, 1) for correct in (pair.champion_correct, pair.candidate_correct)
    )
    return (
        f"{pair.dataset} ({pair.rows} rows): accuracy {champion:.2%} of the champion, {candidate:.2%} of the "
        f"candidate (right alone: {pair.only_champion} and {pair.only_candidate}, McNemar p = {p:.3g})"
    )


def _weighted(pair: PairedEvidence) -> str:
    """Accuracies over what the rows were chosen from: a choice of hard cases flatters and slanders."""
    if pair.champion_share is None or pair.candidate_share is None:
        return ""
    shown = [
        f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"
        for share in (pair.champion_share, pair.candidate_share)
    ]
    word = "; the candidate is significantly worse" if _is_surely_worse(pair) else ""
    return f"; weighted to the records they were chosen from, {shown[0]} and {shown[1]}{word}"


def _is_surely_worse(pair: PairedEvidence) -> bool:
    old, new = pair.champion_share, pair.candidate_share
    return old is not None and new is not None and new.high < old.low


def _needs_rows(pair: PairedEvidence, check: Check) -> Check:
    if not pair.rows:
        return Check(check.name, False, f"{pair.dataset} has no row to judge by")
    if pair.is_numeric:
        return Check(
            check.name,
            False,
            f"{pair.dataset} ({pair.rows} rows): the target is a number, which no answer equals, and the "
            "gate knows no loss to compare the models by: a person decides (`outrider promote`)",
        )
    return check
