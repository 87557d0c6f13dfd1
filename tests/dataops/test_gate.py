import dataclasses
from typing import Any

import pytest

from outrider.assertions.estimation import Estimate
from outrider.behavioral_tests import wilson_interval
from outrider.dataops.improvement.gate import (
    Check,
    Evidence,
    FailureRate,
    LevelFlags,
    PairedEvidence,
    Policy,
    ShadowEvidence,
    SuiteEvidence,
    decide,
    judge_shadow,
    judge_suite,
)


def pair(champion: int, candidate: int, *, rows: int = 1000) -> PairedEvidence:
    return PairedEvidence(
        "held", rows, champion, candidate, max(champion - candidate, 0), max(candidate - champion, 0)
    )


def live(difference: float, low: float) -> ShadowEvidence:
    return ShadowEvidence(300, 10, 43, 2, 35, 40, 80, difference, low, 0.2, (LevelFlags("critical", 0, 9),))


def suite(champion: int, candidate: int, *, p: float = 1.0, compared: Any = None) -> SuiteEvidence:
    """A test of 100 cases; ``champion`` and ``candidate`` fail the first so many."""
    return SuiteEvidence(
        "test_mood",
        "test_negation",
        "negation",
        "MFT",
        0.05,
        FailureRate(100, champion, *wilson_interval(champion, 100)),
        FailureRate(100, candidate, *wilson_interval(candidate, 100)),
        max(champion - candidate, 0),
        max(candidate - champion, 0),
        p,
        compared or ("same" if p > 0.05 else "regression" if candidate > champion else "improvement"),
        "the cases were not kept" if compared else "",
        ("[c1] text='not good' -> label='positive'", "[c2] text='no' -> label='positive'", "[c3] x -> y"),
    )


@pytest.mark.parametrize(
    ("policy", "evidence", "promoted", "reason"),
    [
        (Policy(), Evidence(), False, "failed: there is no evidence"),
        (Policy(), Evidence(held_out=pair(950, 950)), True, "a drop of +0.00%, at most 1.00% is allowed"),
        (Policy(), Evidence(held_out=pair(950, 940)), True, "a drop of +1.00%"),
        (Policy(), Evidence(held_out=pair(950, 939)), False, "failed: held (1000 rows): accuracy 95.00%"),
        (Policy(max_drop=0.0), Evidence(held_out=pair(950, 951)), True, "a drop of -0.10%"),
        (Policy(), Evidence(held_out=pair(0, 0, rows=0)), False, "held has no row to judge by"),
        (Policy(min_gain=0.2), Evidence(fresh=pair(300, 500)), True, "a gain of +20.00%"),
        (Policy(min_gain=0.2), Evidence(fresh=pair(300, 499)), False, "a gain of +19.90%, at least +20.00%"),
        (Policy(), Evidence(fresh=pair(300, 299)), False, "a gain of -0.10%"),
        (Policy(shadow_rows=200), Evidence(held_out=pair(9, 9, rows=9)), False, "0 were judged in time, 200"),
        (Policy(shadow_rows=200), Evidence(shadow=live(-0.11, -0.05)), True, "not proven to be more"),
        (Policy(shadow_rows=200), Evidence(shadow=live(0.11, -0.001)), True, "not proven to be more"),
        (
            Policy(shadow_rows=200),
            Evidence(shadow=live(0.11, 0.001)),
            False,
            "+0.10% to +20.00%: proven to be",
        ),
        (
            Policy(),
            Evidence(held_out=pair(9, 9, rows=9), missing=["gate.held_out names 'x', which has no version"]),
            False,
            "failed: gate.held_out names 'x'",
        ),
        (
            Policy(),
            Evidence(suites=[suite(0, 90)], fresh=pair(1, 9, rows=10)),
            False,
            "negation: test_negation (MFT, suite test_mood): the candidate fails 90 of 100 cases (90.0%",
        ),
    ],
)
def test_decisions(policy: Policy, evidence: Evidence, promoted: bool, reason: str) -> None:
    verdict = decide(policy, evidence)
    assert verdict.promoted is promoted
    assert any(reason in sentence for sentence in verdict.reasons), verdict.reasons
    assert verdict.promoted == all(check.passed for check in verdict.checks)


@pytest.mark.parametrize(
    ("champion", "candidate", "p", "passed"),
    [
        (0, 5, 0.001, True),  # within the tolerance
        (5, 6, 1.0, False),  # the champion passes, the candidate does not
        (40, 40, 1.0, True),  # both fail alike
        (40, 20, 0.001, True),  # both fail, the candidate significantly less
        (40, 45, 0.06, True),  # a little more is noise
        (40, 80, 0.001, False),  # twice as many is not
    ],
)
def test_behavioral_tests_compare_with_the_champion(
    champion: int, candidate: int, p: float, passed: bool
) -> None:
    assert judge_suite(suite(champion, candidate, p=p)).passed is passed


def test_where_answers_cannot_be_paired_the_rates_decide() -> None:
    assert judge_suite(suite(40, 40, compared="not comparable")).passed
    refused = judge_suite(suite(40, 41, compared="not comparable"))
    assert not refused.passed
    assert "which both do; the cases were not kept. Failing:" in refused.reason


def test_a_refusal_names_capability_test_both_rates_with_intervals_and_three_examples() -> None:
    sentence = decide(Policy(), Evidence(suites=[suite(3, 12)])).reasons[0]
    assert sentence.splitlines() == [
        "failed: negation: test_negation (MFT, suite test_mood): the candidate fails 12 of 100 cases (12.0%, "
        "95 % interval 7.0% to 19.8%), the champion 3 of 100 cases (3.0%, 95 % interval 1.0% to 8.5%); "
        "up to 5.0% may fail. Failing:",
        "  [c1] text='not good' -> label='positive'",
        "  [c2] text='no' -> label='positive'",
        "  [c3] x -> y",
    ]
    both = judge_suite(suite(40, 80, p=0.0004)).reason
    assert "40 cases are failed by the candidate alone, 0 by the champion alone: significantly worse" in both
    assert "Holm-adjusted p = 0.0004" in both
    assert "[c1]" not in judge_suite(suite(3, 5)).reason


def test_a_candidate_that_raises_or_leaves_nothing_to_judge_is_refused() -> None:
    broken = dataclasses.replace(suite(0, 0), candidate=FailureRate(0, 0, error="ValueError: no such column"))
    assert judge_suite(broken) == Check(
        "test_negation",
        False,
        "negation: test_negation (MFT, suite test_mood): it could not be run on the candidate: "
        "ValueError: no such column",
    )
    silent = dataclasses.replace(suite(0, 0), candidate=FailureRate(0, 0))
    assert not judge_suite(silent).passed
    assert "no case could be judged for the candidate" in judge_suite(silent).reason


def test_where_the_champion_could_not_be_asked_the_candidate_must_pass() -> None:
    def beside(failures: int) -> Check:
        broken = FailureRate(0, 0, error="KeyError: 'x'")
        return judge_suite(
            dataclasses.replace(suite(0, failures), champion=broken, compared="not comparable")
        )

    assert beside(5).passed
    assert not beside(6).passed
    assert "the champion could not be asked: KeyError: 'x'" in beside(6).reason


def test_failed_reasons_come_first() -> None:
    verdict = decide(Policy(), Evidence(held_out=pair(950, 950), fresh=pair(500, 400)))
    assert [sentence.split(":")[0] for sentence in verdict.reasons] == ["failed", "passed"]


def test_no_flags_at_all_is_no_worse() -> None:
    assert judge_shadow(ShadowEvidence(10), 10).passed


def test_live_evidence_is_told_in_a_sentence() -> None:
    assert judge_shadow(live(0.11, 0.05), 300).reason == (
        "live records: 14.33% of 300 are flagged with the candidate, 3.33% with the champion "
        "(alone: 35 and 2, 9 and 0 critical); "
        "over 80 hours of 40 entities +11.00%, +5.00% to +20.00%: proven to be more"
    )


def test_a_candidate_that_is_surely_worse_over_the_traffic_is_refused_whatever_the_chosen_rows_say() -> None:
    better = Estimate(0.9, 0.85, 0.94, 200, 180.0, "weighted")
    worse = Estimate(0.7, 0.62, 0.77, 200, 180.0, "weighted")
    chosen = dataclasses.replace(pair(300, 500), champion_share=better, candidate_share=worse)
    verdict = decide(Policy(), Evidence(fresh=chosen))
    assert not verdict.promoted
    assert (
        "chosen from, 90.0% (85.0% to 94.0%) and 70.0% (62.0% to 77.0%); the candidate is significantly worse"
        in (verdict.reasons[0])
    )
    turned = dataclasses.replace(pair(300, 500), champion_share=worse, candidate_share=better)
    assert decide(Policy(), Evidence(fresh=turned)).promoted
