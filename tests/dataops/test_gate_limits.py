"""PolicyLimits of a policy: what keeps them, what breaks them, and what is not there."""

import dataclasses

import numpy as np
import pytest

from outrider.assertions.statistics.loss_bounds import Excess
from outrider.dataops.flags.shadow_flags import CommonRecords
from outrider.dataops.improvement.gate import (
    Evidence,
    FailureRate,
    NamedSlice,
    PairedEvidence,
    Policy,
    SuiteEvidence,
    decide,
    told_evidence,
)
from outrider.dataops.improvement.gate_limits import (
    AgreementFound,
    BytesFound,
    FlagLimit,
    FlagShare,
    LimitEvidence,
    PolicyLimits,
    TimesFound,
    WrongMore,
    judge_limits,
)
from outrider.dataops.improvement.live_evidence import share_flagged

FLAGS = PolicyLimits(flags=[FlagLimit("unsure", 0.02)])
SHARE = FlagShare("unsure", 1000, 1000, 10, 400, 0.01, 0.005, 0.018)
SAME = AgreementFound("same", 0.001, 0.0, 0.004, 5000, 0.01)
CLOSE = dataclasses.replace(SAME, word="close")
TIMES = TimesFound(20_000, 4.0, 41, 1.1, 1.05, 1.15)
BYTES = BytesFound(10_000_000, 5_000_000)


def wrong(low: float, high: float) -> AgreementFound:
    """Answers that differ, with bounds on how many more of them are wrong."""
    found = WrongMore(300, (low + high) / 2, low, high)
    return dataclasses.replace(SAME, word="different", wrong=found)


@pytest.mark.parametrize(
    ("limits", "found", "outcome", "reason"),
    [
        (FLAGS, LimitEvidence(flags=[SHARE]), "passed", "10 of 1000 live records .* up to 2.00% is allowed"),
        (FLAGS, LimitEvidence(), "failed", "asked about no live record"),
        (FLAGS, LimitEvidence(flags=[dataclasses.replace(SHARE, judged=0)]), "failed", "no live record"),
        (FLAGS, LimitEvidence(flags=[dataclasses.replace(SHARE, high=0.03)]), "undecided", "to 3.00%"),
        (FLAGS, LimitEvidence(flags=[dataclasses.replace(SHARE, low=0.021, high=0.1)]), "failed", "2.10%"),
        (FLAGS, LimitEvidence(flags=[dataclasses.replace(SHARE, thinned=9)]), "undecided", "9 more flags"),
        (FLAGS, LimitEvidence(flags=[dataclasses.replace(SHARE, judged=9)]), "undecided", "only 9 were"),
        (PolicyLimits(agreement="same"), LimitEvidence(agreement=SAME), "passed", "answers are same"),
        (PolicyLimits(agreement="close"), LimitEvidence(agreement=SAME), "passed", "answers are same"),
        (PolicyLimits(agreement="same"), LimitEvidence(), "failed", "no live record that both answered"),
        (
            PolicyLimits(agreement="same"),
            LimitEvidence(agreement=dataclasses.replace(SAME, word="close")),
            "failed",
            "'same' within 1.00% is needed",
        ),
        (
            PolicyLimits(agreement="close"),
            LimitEvidence(agreement=dataclasses.replace(SAME, word="different")),
            "failed",
            "answers are different",
        ),
        (
            PolicyLimits(agreement="close"),
            LimitEvidence(agreement=dataclasses.replace(SAME, word="undecided", more=700)),
            "undecided",
            "about 700 more records",
        ),
        (
            PolicyLimits(p99_ms=5.0),
            LimitEvidence(times=TIMES),
            "passed",
            "99 % of 20000 live records took at most 4",
        ),
        (PolicyLimits(p99_ms=3.0), LimitEvidence(times=TIMES), "failed", "up to 3 ms is allowed"),
        (
            PolicyLimits(p99_ms=3.0),
            LimitEvidence(times=dataclasses.replace(TIMES, answered=5000)),
            "undecided",
            "up to 3 ms",
        ),
        (
            PolicyLimits(p99_ms=5.0),
            LimitEvidence(times=dataclasses.replace(TIMES, answered=999)),
            "undecided",
            "1000 records tell",
        ),
        (PolicyLimits(p99_ms=5.0), LimitEvidence(), "failed", "answered no live record"),
        (PolicyLimits(time_ratio=1.2), LimitEvidence(times=TIMES), "passed", "1.10 times .* of 41 rounds"),
        (PolicyLimits(time_ratio=1.1), LimitEvidence(times=TIMES), "undecided", r"\(1.05 to 1.15\)"),
        (PolicyLimits(time_ratio=1.0), LimitEvidence(times=TIMES), "failed", "up to 1 is allowed"),
        (
            PolicyLimits(time_ratio=1.0),
            LimitEvidence(),
            "failed",
            "no labelled row on which both could be timed",
        ),
        (
            PolicyLimits(time_ratio=2.0),
            LimitEvidence(times=TimesFound(rounds=2, ratio=1.0)),
            "undecided",
            r"\(0.00 to any\)",
        ),
        (
            PolicyLimits(max_mb=5.0, bytes_ratio=0.5),
            LimitEvidence(weights=BYTES),
            "passed",
            "5 MB, up to 5 MB",
        ),
        (PolicyLimits(max_mb=4.9), LimitEvidence(weights=BYTES), "failed", "up to 4.9 MB is allowed"),
        (
            PolicyLimits(bytes_ratio=0.4),
            LimitEvidence(weights=BYTES),
            "failed",
            "0.5 of the champion's, up to 0.4",
        ),
        (PolicyLimits(max_mb=9.0), LimitEvidence(weights=BytesFound(None, 1)), "passed", "1e-06 MB"),
        (
            PolicyLimits(bytes_ratio=9.0),
            LimitEvidence(weights=BytesFound(None, 1)),
            "failed",
            "are not known",
        ),
        (PolicyLimits(max_mb=9.0), LimitEvidence(), "failed", "are not known"),
    ],
)
def test_a_limit_is_kept_broken_open_or_without_evidence(
    limits: PolicyLimits, found: LimitEvidence, outcome: str, reason: str
) -> None:
    (check,) = judge_limits(limits, found, max_drop=0.02)
    assert check.outcome == outcome
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(check.reason)
    verdict = decide(Policy(requires=(), limits=limits), Evidence(limits=found))
    assert verdict.outcome == outcome


def test_no_limit_is_skipped_for_want_of_evidence() -> None:
    every = PolicyLimits([FlagLimit("a", 0.1), FlagLimit("b", 0.1)], "close", 1.0, 1.0, 1.0, 1.0)
    checks = list(judge_limits(every, LimitEvidence(), max_drop=0.02))
    assert [check.outcome for check in checks] == ["failed"] * 6
    assert list(judge_limits(PolicyLimits(), LimitEvidence(flags=[SHARE], times=TIMES), max_drop=0.02)) == []


def of_slice(low: float, high: float, *, tries: int = 1) -> NamedSlice:
    found = Excess((low + high) / 2, low, high, 500, 500, 0.024, variance=0.05)
    return NamedSlice("night", 0.02, PairedEvidence("held@1, night", "error rate", 0.1, found, tries=tries))


@pytest.mark.parametrize(
    ("low", "high", "outcome"), [(-0.01, 0.02, "passed"), (-0.01, 0.05, "undecided"), (0.021, 0.05, "failed")]
)
def test_a_named_slice_must_be_shown_to_be_no_worse(low: float, high: float, outcome: str) -> None:
    verdict = decide(Policy(), Evidence(named=[of_slice(low, high)]))
    assert verdict.outcome == outcome
    assert "held@1, night (500 rows)" in verdict.reasons[0]
    assert "up to +2.0 points is allowed in slice night" in verdict.reasons[0]
    assert (verdict.checks[0].rows_missing > 0) == (outcome == "undecided")


def test_a_named_slice_is_told_coarsely_after_many_verdicts() -> None:
    evidence = Evidence(named=[of_slice(-0.0123, 0.0567, tries=11)])
    verdict = decide(Policy(requires=()), evidence)
    (kept,) = told_evidence(evidence, verdict).named
    assert kept.pair.excess.high - kept.pair.excess.low > 2 * (0.0567 + 0.0123) / 2


def test_named_tests_and_suites_that_were_not_judged_refuse_with_the_nearest() -> None:
    rate = FailureRate(10, 0, 0.0, 0.1)
    judged = SuiteEvidence("test_digits", "test_noise", "robust", "INV", 0.1, rate, rate)
    named = Policy(requires=(), suites=("test_digits",), tests=("test_noise",))
    assert decide(named, Evidence(suites=[judged])).outcome == "passed"
    wrong = Policy(requires=(), suites=("test_digit",), tests=("test_nois",))
    verdict = decide(wrong, Evidence(suites=[judged]))
    assert verdict.reasons[:2] == [
        "failed: gate.suites names 'test_digit', which was not judged; nearest: test_digits",
        "failed: gate.tests names 'test_nois', which was not judged; nearest: test_noise",
    ]
    assert decide(named, Evidence()).outcome == "failed"


def test_a_policy_that_is_none_refuses_whatever_the_evidence() -> None:
    rate = FailureRate(10, 0, 0.0, 0.1)
    judged = SuiteEvidence("s", "t", "c", "MFT", 0.1, rate, rate)
    broken = Policy(requires=(), fault="gate.toml, line 3: max_drop: a number expected, got true")
    assert decide(broken, Evidence(suites=[judged])).reasons == [f"failed: {broken.fault}"]


def common(entities: int, hours: int, each: int) -> CommonRecords:
    n = np.arange(entities * hours * each)
    none = np.zeros(len(n), dtype=np.uint8)
    return CommonRecords(n // (hours * each) + 1, n // each % hours, none, none)


def test_bounds_of_a_share_hold_the_truth_whatever_entities_prefer() -> None:
    """A tenth of the entities is flagged in half of its stretches, the others never: 5 % in all."""
    rng = np.random.default_rng(3)
    found = common(40, 72, 3)
    outside = 0
    for _ in range(200):
        flagged = (found.entity % 10 == 0) & rng.integers(0, 2, (40, 12)).astype(bool)[
            found.entity - 1, found.hour // 6
        ]
        _, low, high, stretches = share_flagged(found, flagged, error=0.05)
        outside += not low <= 0.05 <= high
        assert stretches == 480
    assert outside <= 20
    assert share_flagged(common(0, 1, 1), np.zeros(0, dtype=bool), error=0.05) == (0.0, 0.0, 1.0, 0)


def test_a_storm_of_one_entity_is_one_observation() -> None:
    found = common(50, 120, 1)
    entity, hour = (np.concatenate([of, np.full(5000, of[0])]) for of in (found.entity, found.hour))
    none = np.zeros(11_000, dtype=np.uint8)
    storm = CommonRecords(entity, hour, none, none)
    flagged = np.arange(11_000) >= 6000
    value, _, high, stretches = share_flagged(storm, flagged, error=0.05)
    assert (round(value, 4), stretches) == (0.001, 1000)
    assert high < 0.01
