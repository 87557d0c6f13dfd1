import dataclasses

import pytest

from outrider.assertions.estimation import Estimate
from outrider.dataops.gate import (
    Evidence,
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
        (Policy(shadow_rows=200), Evidence(shadow=ShadowEvidence(300, 30, 5)), True, "16.7 flags per 1,000"),
        (Policy(shadow_rows=200), Evidence(shadow=ShadowEvidence(300, 5, 30)), False, "(significantly more"),
        (
            Policy(),
            Evidence(held_out=pair(9, 9, rows=9), missing=["gate.held_out names 'x', which has no version"]),
            False,
            "failed: gate.held_out names 'x'",
        ),
        (
            Policy(),
            Evidence(suites=[SuiteEvidence("bright", 0.05, 100, 0, 100, 90)], fresh=pair(1, 9, rows=10)),
            False,
            "failed: bright: the candidate fails 90 of 100 cases (90.0%)",
        ),
    ],
)
def test_decisions(policy: Policy, evidence: Evidence, promoted: bool, reason: str) -> None:
    verdict = decide(policy, evidence)
    assert verdict.promoted is promoted
    assert any(reason in sentence for sentence in verdict.reasons), verdict.reasons
    assert verdict.promoted == all(check.passed for check in verdict.checks)


@pytest.mark.parametrize(
    ("champion", "candidate", "passed"),
    [
        (0, 5, True),  # within the tolerance
        (5, 6, False),  # the champion passes, the candidate does not
        (40, 40, True),  # both fail alike
        (40, 20, True),  # both fail, the candidate less
        (40, 45, True),  # a little more is noise
        (40, 80, False),  # twice as many is not
    ],
)
def test_behavioral_tests_compare_with_the_champion(champion: int, candidate: int, passed: bool) -> None:
    assert judge_suite(SuiteEvidence("t", 0.05, 100, champion, 100, candidate)).passed is passed


def test_failed_reasons_come_first() -> None:
    verdict = decide(Policy(), Evidence(held_out=pair(950, 950), fresh=pair(500, 400)))
    assert [sentence.split(":")[0] for sentence in verdict.reasons] == ["failed", "passed"]


def test_no_flags_at_all_is_no_worse() -> None:
    assert judge_shadow(ShadowEvidence(10, 0, 0), 10).passed


def test_a_candidate_that_is_surely_worse_over_the_traffic_is_refused_whatever_the_chosen_rows_say() -> None:
    better = Estimate(0.9, 0.85, 0.94, 200, 180.0, "weighted")
    worse = Estimate(0.7, 0.62, 0.77, 200, 180.0, "weighted")
    chosen = dataclasses.replace(pair(300, 500), champion_share=better, candidate_share=worse)
    verdict = decide(Policy(), Evidence(fresh=chosen))
    assert not verdict.promoted
    assert (
        "chosen from, 90.0% (85.0% to 94.0%) and 70.0% (62.0% to 77.0%); the candidate is surely worse"
        in (verdict.reasons[0])
    )
    turned = dataclasses.replace(pair(300, 500), champion_share=worse, candidate_share=better)
    assert decide(Policy(), Evidence(fresh=turned)).promoted
