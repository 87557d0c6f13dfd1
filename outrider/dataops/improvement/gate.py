"""Promotion gate: a pure function of a policy and evidence.

Each check has the whole error, since a candidate passes wrongly only if the very check that it should fail
lets it through; what the bounds leave open is undecided.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from outrider.assertions.statistics.estimation import Estimate
from outrider.assertions.statistics.loss_bounds import Excess, FloatOrNull
from outrider.behavioral_tests.outcome import UNANSWERED
from outrider.errors import nearest

from .gate_check import Check, Outcome
from .gate_limits import LimitEvidence, PolicyLimits, judge_limits
from .rolling import RollingEvidence

SIGNIFICANCE = 0.05
SPENT = 0.04
"""Share of ``SIGNIFICANCE`` that all tries on the same rows may use up; the rest allows for bounds that
hold only nearly."""
STEP = 0.001
"""Figures of rows that others may try again are rounded to this."""
FRANK = 10
"""After so many verdicts on the same rows, a refused candidate's figures are rounded to the width of its
bounds."""
_MOST_NAMED = 3
LEAST_EFFECT = 0.02
"""Gain to plan rows for, where the policy asks for none."""
Part = Literal["labels", "suites", "shadow"]


def error_of(tries: int) -> float:
    """Error allowed to a verdict on rows already tried, so that all verdicts on them together err with
    ``SIGNIFICANCE`` at most."""
    return SPENT * 6.0 / (math.pi * tries) ** 2


@dataclass(frozen=True, slots=True)
class Policy:
    """Policy that a verdict followed: ``[models.*.gate]`` in the configuration."""

    max_drop: float = 0.02
    min_gain: float = 0.0
    shadow_rows: int = 0
    requires: Sequence[Part] = ("labels",)
    suites: Sequence[str] = ()
    tests: Sequence[str] = ()
    """Behavioral ``suites`` and ``tests`` that must have been judged."""
    limits: PolicyLimits = field(default_factory=PolicyLimits)
    rolling_rows: int = 0
    """Latest labelled rows on which all versions are compared; 0 for none."""
    rolling_p: float = 0.0
    fault: str = ""
    """Why the policy's file cannot be read."""
    file: str = ""
    digest: str = ""
    """SHA-256 of ``text``, in hex."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Share of the cases of a test that fail, with its interval."""

    cases: int
    failures: int
    low: float = 0.0
    high: float = 1.0
    error: str = ""
    """Why the test could not be run; empty when it could."""
    confidence: float = 0.95

    @property
    def is_unanswered(self) -> bool:
        """True where the model gave no answer."""
        return self.error.startswith(UNANSWERED)

    @property
    def rate(self) -> float:
        return self.failures / self.cases if self.cases else 0.0

    def __str__(self) -> str:
        return (
            f"{self.failures} of {self.cases} cases ({self.rate:.1%}, {100 * self.confidence:.3g} % interval "
            f"{self.low:.1%} to {self.high:.1%})"
        )


@dataclass(frozen=True, slots=True)
class SuiteEvidence:
    """One behavioral test of both models on the same cases.

    ``only_champion_fails`` and ``only_candidate_fails`` count cases that one of them alone fails; ``p``
    is that of McNemar's exact test (of a rule of the whole test: that of its figures), adjusted over all
    tests by Holm's method; ``note`` says why nothing follows, or which figure.
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
class SliceEvidence:
    """Excess loss on the rows of one slice; all slices share the error of one bound."""

    name: str
    excess: Excess
    most: float = 1.0
    """Highest lower bound that these rows could give, had the candidate lost all of them."""


@dataclass(frozen=True, slots=True)
class PairedEvidence:
    """Losses of both versions on the same labelled rows."""

    dataset: str
    loss: str
    champion_loss: FloatOrNull
    excess: Excess
    is_relative: bool = False
    """The excess is a share of the champion's loss."""
    tries: int = 1
    """Verdicts that any of the rows has decided, with this one."""
    worn: int = 0
    """Rows left aside because they have decided more often."""
    left_out: int = 0
    """Rows whose label, or whose answer of the champion, has no loss."""
    slices: Sequence[SliceEvidence] = ()
    classes: Sequence[SliceEvidence] = ()
    """Classes so rare that losing all their rows would be allowed."""
    fault: str = ""
    """Why the candidate's losses are unknown."""
    champion_share: Estimate | None = None
    candidate_share: Estimate | None = None
    """Accuracy over the records that the rows were sampled from, weighted by their probabilities; None
    where no row has one."""


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """Losses on a slice that the policy names.

    Upper bounds have the whole error each; the lower ones share it.
    """

    name: str
    max_drop: float
    pair: PairedEvidence


@dataclass(frozen=True, slots=True)
class LevelFlags:
    """Live records flagged at a level with the answers of one version alone."""

    level: str
    only_champion: int
    only_candidate: int


@dataclass(frozen=True, slots=True)
class ShadowEvidence:
    """Flags on the answers of both to the same live records; ``only_champion`` and ``only_candidate``
    count records flagged with one alone."""

    rows: int = 0
    champion_flagged: int = 0
    candidate_flagged: int = 0
    only_champion: int = 0
    only_candidate: int = 0
    entities: int = 0
    entity_hours: int = 0
    """Hours of entities with such records: the observations."""
    difference: float = 0.0
    low: float = -1.0
    high: float = 1.0
    """``difference``, ``low``, ``high``: share flagged more with the candidate, and its one-sided bounds."""
    levels: Sequence[LevelFlags] = ()
    others: int = 0
    """Records left out, as another version than the champion answered them."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of a verdict."""

    suites: Sequence[SuiteEvidence] = ()
    held_out: PairedEvidence | None = None
    fresh: PairedEvidence | None = None
    shadow: ShadowEvidence | None = None
    missing: Sequence[str] = ()
    """Sentences on evidence that the policy asks for and that could not be gathered."""
    named: Sequence[NamedSlice] = ()
    limits: LimitEvidence = field(default_factory=LimitEvidence)
    rolling: RollingEvidence | None = None
    """All versions on the latest labelled rows, in place of ``fresh``."""

    @property
    def is_labelled(self) -> bool:
        pairs = self.held_out, self.fresh, self.rolling
        return any(pair is not None for pair in pairs) or bool(self.named)


@dataclass(frozen=True, slots=True)
class Verdict:
    checks: list[Check] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        found = {check.outcome for check in self.checks}
        if "failed" in found:
            return "failed"
        return "undecided" if "undecided" in found or "passed" not in found else "passed"

    @property
    def reasons(self) -> list[str]:
        order = ("failed", "undecided", "not judged", "passed")
        ordered = sorted(self.checks, key=lambda check: order.index(check.outcome))
        return [f"{check.outcome}: {check.reason}" for check in ordered]


def decide(policy: Policy, evidence: Evidence) -> Verdict:
    if policy.fault:
        return Verdict([Check("policy", False, policy.fault)])
    checks = [Check("evidence", False, sentence) for sentence in evidence.missing]
    checks += [judge_suite(suite) for suite in evidence.suites]
    if evidence.held_out is not None:
        checks.append(judge_held_out(evidence.held_out, policy.max_drop))
    if evidence.fresh is not None:
        checks.append(judge_fresh(evidence.fresh, policy.min_gain))
    for pair in (evidence.held_out, evidence.fresh):
        if pair is not None and pair.slices:
            checks.append(judge_slices(pair, policy.max_drop))
        if pair is not None and pair.classes:
            checks.append(judge_classes(pair, policy.max_drop))
    checks += map(judge_named, evidence.named)
    if evidence.rolling is not None:
        checks.append(judge_rolling(evidence.rolling))
    if policy.shadow_rows or evidence.shadow is not None:
        checks.append(judge_shadow(evidence.shadow or ShadowEvidence(), policy.shadow_rows))
    checks += judge_limits(policy.limits, evidence.limits, max_drop=policy.max_drop)
    checks += _lacking(policy, evidence) + _unjudged(policy, evidence)
    if not checks:
        reason = "there is no evidence: declare behavior tests, gate.held_out, held_out_share or shadow_rows"
        checks = [Check("evidence", False, reason)]
    return Verdict(checks)


def told(pair: PairedEvidence, *, passed: bool) -> PairedEvidence:
    """Evidence as readers may see it.

    Who puts hundreds of candidates before the same rows can learn the rows from exact figures (Hardt,
    "Climbing a shaky ladder", 2017), so those figures are coarse.
    """
    step = _step(pair, pair.excess, passed=passed)
    if not passed and pair.tries > FRANK:
        pair = replace(pair, champion_share=None, candidate_share=None, slices=(), classes=())
    slices, classes = (
        [replace(one, excess=one.excess.in_steps(step)) for one in parts]
        for parts in (pair.slices, pair.classes)
    )
    shares = [share and _rounded(share) for share in (pair.champion_share, pair.candidate_share)]
    return replace(
        pair,
        excess=pair.excess.in_steps(step),
        slices=slices,
        classes=classes,
        champion_share=shares[0],
        candidate_share=shares[1],
    )


def _rounded(share: Estimate) -> Estimate:
    value, low, high = (
        round(one / STEP) * STEP if math.isfinite(one) else one
        for one in (share.value, share.low, share.high)
    )
    return replace(share, value=value, low=low, high=high, effective=round(share.effective))


def _step(pair: PairedEvidence, found: Excess, *, passed: bool) -> float:
    is_worn = not passed and pair.tries > FRANK and math.isfinite(found.width)
    return max(STEP, found.width) if is_worn else STEP


def could_refuse(policy: Policy, evidence: Evidence) -> bool:
    """True where labelled rows could have refused the candidate: no loss between 0 and 1 rises by more
    than 1."""
    if evidence.rolling is not None:
        return True
    margins = [(evidence.held_out, policy.max_drop), (evidence.fresh, -policy.min_gain)]
    margins += [(one.pair, one.max_drop) for one in evidence.named]
    return any(pair is not None and (pair.is_relative or most < 1.0) for pair, most in margins)


def told_evidence(evidence: Evidence, verdict: Verdict) -> Evidence:
    passed = {check.name: check.passed for check in verdict.checks}
    held_out, fresh = (
        pair and told(pair, passed=passed[name])
        for name, pair in (("held_out", evidence.held_out), ("fresh", evidence.fresh))
    )
    named = [replace(one, pair=told(one.pair, passed=passed[f"slice {one.name}"])) for one in evidence.named]
    return replace(evidence, held_out=held_out, fresh=fresh, named=named)


def _lacking(policy: Policy, evidence: Evidence) -> list[Check]:
    there: dict[Part, bool] = {
        "labels": evidence.is_labelled,
        "suites": bool(evidence.suites),
        "shadow": policy.shadow_rows > 0,
    }
    reasons: dict[Part, str] = {
        "labels": "no labelled row that nobody trained on: set gate.held_out, or label flagged records",
        "suites": "no behavioral test: set behavior",
        "shadow": "no live record: set gate.shadow_rows",
    }
    return [
        Check("evidence", False, f"gate.requires names {part!r}, and there is {reasons[part]}")
        for part in policy.requires
        if not there[part]
    ]


def _unjudged(policy: Policy, evidence: Evidence) -> list[Check]:
    there = {"suites": [one.suite for one in evidence.suites], "tests": [one.test for one in evidence.suites]}
    return [
        Check(
            "evidence", False, f"gate.{key} names {name!r}, which was not judged{nearest(name, set(judged))}"
        )
        for key, judged in there.items()
        for name in (policy.suites if key == "suites" else policy.tests)
        if name not in judged
    ]


def judge_suite(suite: SuiteEvidence) -> Check:
    """Check one behavioral test against the champion: what the champion passes must be passed; what
    both fail may not be failed more often. "More often" is McNemar's test of the cases that one alone
    fails, Holm-adjusted over all tests. A test that raises fails; one without an answer is open."""
    where = f"{suite.capability}: {suite.test} ({suite.kind}, suite {suite.suite})"
    champion, candidate = suite.champion, suite.candidate
    for who, asked in (("candidate", candidate), ("champion", champion)):
        if asked.is_unanswered:
            return Check(
                suite.test, False, f"{where}: not run, the {who} gave no answer: {asked.error}", True
            )
    if candidate.error:
        return Check(suite.test, False, f"{where}: it could not be run on the candidate: {candidate.error}")
    if not candidate.cases:
        why = f"no case could be judged for the candidate, the champion fails {champion}"
        return Check(suite.test, False, f"{where}: {why}")
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
    return "\n  ".join((". Failing:", *examples)) if examples else ""


def judge_held_out(pair: PairedEvidence, max_drop: float) -> Check:
    allowed = f"up to {_change(pair, max_drop)} is allowed"
    return _judge(pair, "held_out", most=max_drop, step=max_drop or LEAST_EFFECT, allowed=allowed)


def judge_fresh(pair: PairedEvidence, min_gain: float) -> Check:
    gain = -told(pair, passed=False).excess.value
    distance = max(gain - min_gain, min_gain, LEAST_EFFECT)
    allowed = f"{_change(pair, -min_gain)} or less is needed"
    check = _judge(pair, "fresh", most=-min_gain, step=distance, allowed=allowed)
    reason = check.reason + _weighted(told(pair, passed=check.passed))
    if _is_surely_worse(pair):
        return Check("fresh", False, reason)
    return replace(check, reason=reason)


def judge_named(part: NamedSlice) -> Check:
    allowed = f"up to {_change(part.pair, part.max_drop)} is allowed in slice {part.name}"
    step = part.max_drop or LEAST_EFFECT
    return _judge(part.pair, f"slice {part.name}", most=part.max_drop, step=step, allowed=allowed)


def judge_rolling(found: RollingEvidence) -> Check:
    """Check that the judged version is shown to beat the champion.

    One with all its rows that is not shown to is refused, and compared again with the next rows.
    """
    own = found.of(found.judged)
    reason = "; ".join((found.sentence(found.judged), *found.left_out))
    if own.is_better:
        if found.winner != found.judged:
            reason += f"; version {found.winner} gains more"
        return Check("rolling", True, reason)
    missing = found.rows - own.rows
    if missing > 0:
        return Check("rolling", False, f"{reason}; {missing} more labelled rows may decide", True, missing)
    return Check("rolling", False, reason)


def judge_slices(pair: PairedEvidence, max_drop: float) -> Check:
    return _judge_parts(pair, "slices", pair.slices, max_drop)


def judge_classes(pair: PairedEvidence, max_drop: float) -> Check:
    check = _judge_parts(pair, "classes", pair.classes, max_drop)
    if check.outcome != "passed":
        return check
    worst = max(pair.classes, key=lambda one: one.excess.high)
    found = worst.excess.in_steps(_step(pair, worst.excess, passed=False))
    hidden = f"; up to {_change(pair, found.high)} of {worst.name} ({found.rows} rows) may be lost unseen"
    return replace(check, reason=check.reason + hidden * (found.high > max_drop))


def _judge_parts(pair: PairedEvidence, name: str, parts: Sequence[SliceEvidence], max_drop: float) -> Check:
    lost = [one for one in parts if one.excess.low > max_drop]
    allowed = f"up to {_change(pair, max_drop)} is allowed in each"
    one, many = {"slices": ("slice", "slices"), "classes": ("rare class", "rare classes")}[name]
    where = f"{pair.dataset}, {len(parts)} {one if len(parts) == 1 else many}"
    blind = [one for one in parts if one.most <= (0.0 if pair.is_relative else max_drop)]
    unseen = _unseen(blind)
    if not lost and len(blind) == len(parts):
        return Check(name, False, f"{where}{unseen}", is_judged=False)
    if not lost:
        return Check(name, True, f"{where}: {pair.loss} is shown to rise too far in none; {allowed}{unseen}")
    worst = max(lost, key=lambda one: one.excess.low)
    found = worst.excess.in_steps(_step(pair, worst.excess, passed=False))
    told = f"{pair.loss} {_change(pair, found.value)} in {worst.name} ({found.rows} rows, at least "
    others = f", and too far in {len(lost) - 1} more" if len(lost) > 1 else ""
    return Check(name, False, f"{where}: {told}{_change(pair, found.low)}){others}; {allowed}{unseen}")


def _unseen(slices: Sequence[SliceEvidence]) -> str:
    if not slices:
        return ""
    named = [f"{one.name} ({one.excess.rows} rows{_of_entities(one.excess)})" for one in slices[:_MOST_NAMED]]
    more = f" and {len(slices) - len(named)} more" if len(slices) > len(named) else ""
    return f"; not judged, since so few rows or entities could not show a loss: {', '.join(named)}{more}"


def _judge(pair: PairedEvidence, name: str, *, most: float, step: float, allowed: str) -> Check:
    """Check of an excess against the most that is allowed.

    Parameters
    ----------
    step
        Distance that rows must tell apart.
    """
    found = pair.excess
    where = f"{pair.dataset} ({found.rows} rows{_of_entities(found)})"
    if pair.fault:
        return Check(name, False, f"{where}: {pair.fault}")
    if not found.rows:
        why = f": in {pair.left_out} rows label or champion's answer is missing, or of another type"
        return Check(name, False, f"{pair.dataset} has no row to judge by{why if pair.left_out else ''}")
    is_passed = found.high <= most
    reason = f"{where}: {_told(told(pair, passed=is_passed))}: {allowed}"
    if is_passed or found.low > most:
        return Check(name, is_passed, reason)
    if pair.is_relative and pair.champion_loss <= 0.0:
        why = "the champion loses nothing on these rows, so that no share of its loss tells"
        return Check(name, False, f"{reason}; {why}: label rows on which it errs", True)
    found = told(pair, passed=False).excess
    missing = max(found.rows_needed(step, error=error_of(pair.tries + 1)) - found.rows, 1)
    whose = ", of other entities," if found.entities < found.rows else ""
    return Check(
        name, False, f"{reason}; about {missing} more labelled rows{whose} may decide", True, missing
    )


def _of_entities(found: Excess) -> str:
    if found.entities >= found.rows:
        return ""
    return f" of {found.entities} {'entity' if found.entities == 1 else 'entities'}"


def _told(pair: PairedEvidence) -> str:
    found = pair.excess
    beside = f", of {pair.champion_loss:.3g} with the champion" if pair.is_relative else ""
    tries = f", {_ordinal(pair.tries)} verdict on these rows" if pair.tries > 1 else ""
    left_out = f"; {pair.left_out} rows could not be compared" if pair.left_out else ""
    worn = f"; {pair.worn} rows that decided oftener left aside" if pair.worn else ""
    value, low, high = (_change(pair, one) for one in (found.value, found.low, found.high))
    stretch = f"; holds for {found.stretch}" if found.stretch else ""
    return (
        f"{pair.loss} {value} with the candidate{beside} (one-sided bounds {low} and {high} at "
        f"{found.error:.2g}{tries}{worn}{left_out}{stretch})"
    )


def _change(pair: PairedEvidence, share: float) -> str:
    return f"{share:+.1%}" if pair.is_relative else f"{100 * share:+.1f} points"


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"} if number // 10 % 10 != 1 else {}
    return f"{number}{ends.get(number % 10, 'th')}"


def judge_shadow(shadow: ShadowEvidence, rows_needed: int) -> Check:
    if shadow.rows < rows_needed:
        others = f"; {shadow.others} more answers were of other versions than the champion" * (
            shadow.others > 0
        )
        few = f"live records: {shadow.rows} were judged in time, {rows_needed} are needed{others}"
        return Check("shadow", False, few, is_open=True)
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


def _weighted(pair: PairedEvidence) -> str:
    """Accuracies over the records that the rows were sampled from: a sample of hard cases misleads."""
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
