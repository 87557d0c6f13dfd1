import dataclasses
from typing import Any

import numpy as np
import pytest

from outrider.assertions.statistics.estimation import Estimate
from outrider.assertions.statistics.loss_bounds import excess, relative_excess
from outrider.behavioral_tests import wilson_interval
from outrider.dataops.improvement.gate import (
    SIGNIFICANCE,
    SPENT,
    Evidence,
    FailureRate,
    LevelFlags,
    NamedSlice,
    PairedEvidence,
    Policy,
    ShadowEvidence,
    SliceEvidence,
    SuiteEvidence,
    could_refuse,
    decide,
    error_of,
    judge_held_out,
    judge_shadow,
    judge_slices,
    judge_suite,
    told,
)
from outrider.dataops.improvement.gate_check import Check
from outrider.dataops.improvement.verdicts import VerdictRow
from tests.gate_evidence import kept_evidence


def pair(champion: int, candidate: int, *, rows: int = 1000, tries: int = 1) -> PairedEvidence:
    """Both right on the first so many rows."""
    right = np.arange(rows)
    error = error_of(tries)
    old, new = ((right >= count).astype(float) for count in (champion, candidate))
    beyond = excess(old, new, error=error)
    loss = float(old.mean()) if rows else 0.0
    return PairedEvidence("held", "error rate", loss, beyond, tries=tries)


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


FINE = pair(950, 950)
ANY = Policy(requires=())


@pytest.mark.parametrize(
    ("policy", "evidence", "outcome", "reason"),
    [
        (Policy(), Evidence(), "failed", "gate.requires names 'labels', and there is no labelled row"),
        (ANY, Evidence(), "failed", "there is no evidence"),
        (Policy(), Evidence(suites=[suite(0, 0)]), "failed", "set gate.held_out, or label flagged records"),
        (ANY, Evidence(suites=[suite(0, 0)]), "passed", "the candidate fails 0 of 100 cases"),
        (Policy(requires=("labels", "suites")), Evidence(held_out=FINE), "failed", "no behavioral test"),
        (Policy(), Evidence(held_out=FINE), "passed", "error rate +0.0 points with the candidate"),
        (Policy(), Evidence(held_out=pair(1, 1, rows=1)), "undecided", "more labelled rows may decide"),
        (Policy(), Evidence(held_out=pair(950, 940)), "passed", "error rate +1.0 points with the candidate"),
        (Policy(), Evidence(held_out=pair(950, 935)), "undecided", "about"),
        (
            Policy(),
            Evidence(held_out=pair(950, 900)),
            "failed",
            "held (1000 rows): error rate +5.0 points",
        ),
        (Policy(), Evidence(held_out=pair(950, 940, tries=30)), "undecided", "30th verdict on these rows"),
        (Policy(), Evidence(held_out=pair(0, 0, rows=0)), "failed", "held has no row to judge by"),
        (Policy(min_gain=0.2), Evidence(fresh=pair(300, 600)), "passed", "-20.0 points or less is needed"),
        (Policy(min_gain=0.2), Evidence(fresh=pair(300, 510)), "undecided", "error rate -21.0 points"),
        (Policy(min_gain=0.2), Evidence(fresh=pair(300, 400)), "failed", "error rate -10.0 points"),
        (Policy(), Evidence(fresh=pair(300, 300)), "undecided", "more labelled rows"),
        (Policy(shadow_rows=200), Evidence(held_out=FINE), "undecided", "0 were judged in time, 200"),
        (
            Policy(shadow_rows=200),
            Evidence(held_out=FINE, shadow=live(-0.11, -0.05)),
            "passed",
            "not proven to be more",
        ),
        (
            Policy(shadow_rows=200),
            Evidence(held_out=FINE, shadow=live(0.11, -0.001)),
            "passed",
            "not proven to be more",
        ),
        (
            Policy(shadow_rows=200),
            Evidence(held_out=FINE, shadow=live(0.11, 0.001)),
            "failed",
            "+0.10% to +20.00%: proven to be",
        ),
        (
            Policy(),
            Evidence(held_out=FINE, missing=["gate.held_out names 'x', which has no version"]),
            "failed",
            "failed: gate.held_out names 'x'",
        ),
        (
            Policy(),
            Evidence(suites=[suite(0, 90)], fresh=pair(1, 9, rows=10)),
            "failed",
            "negation: test_negation (MFT, suite test_mood): the candidate fails 90 of 100 cases (90.0%",
        ),
    ],
)
def test_decisions(policy: Policy, evidence: Evidence, outcome: str, reason: str) -> None:
    verdict = decide(policy, evidence)
    assert verdict.outcome == outcome, verdict.reasons
    assert any(reason in sentence for sentence in verdict.reasons), verdict.reasons


def test_rows_that_decided_often_decide_with_less_error_in_all_at_most_one_in_twenty() -> None:
    assert 0.99 * SPENT < sum(map(error_of, range(1, 100_000))) < SPENT < SIGNIFICANCE


def test_the_rows_asked_for_decide_on_an_equal_candidate_nine_times_in_ten() -> None:
    rng = np.random.default_rng(4)

    def verdict(rows: int, tries: int) -> Check:
        drawn = rng.random(rows)
        old, new = ((low <= drawn) & (drawn < low + 0.05) for low in (0.0, 0.04))  # 4 % each alone
        beyond = excess(old.astype(float), new.astype(float), error=error_of(tries))
        held = PairedEvidence("held", "error rate", 0.05, beyond, tries=tries)
        return judge_held_out(held, 0.02)

    asked, decided = [], 0
    for _ in range(200):
        first = verdict(400, 1)
        if first.is_open:
            asked.append(400 + first.rows_missing)
            decided += verdict(asked[-1], 2).passed
    fixed = 0.08 * ((2.51 + 1.28) / 0.02) ** 2  # normal quantiles of 0.0061 and 0.9
    assert 0.8 * fixed < np.median(asked) < 1.5 * fixed
    assert decided / len(asked) > 0.85


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


@pytest.mark.parametrize("who", ["champion", "candidate"])
def test_suite_that_a_model_gave_no_answer_to_is_open_and_no_refusal(who: str) -> None:
    late = FailureRate(0, 0, error="ServerError: http://far gave no answer within 2 s")
    asked, other = suite(0, 40), FailureRate(400, 40)
    pair = (late, other) if who == "champion" else (other, late)
    check = judge_suite(dataclasses.replace(asked, champion=pair[0], candidate=pair[1]))
    assert check.outcome == "undecided"
    assert f"not run, the {who} gave no answer: ServerError: http://far" in check.reason


def test_a_candidate_that_raises_or_leaves_nothing_to_judge_is_refused() -> None:
    broken = dataclasses.replace(suite(0, 0), candidate=FailureRate(0, 0, error="ValueError: no such column"))
    assert judge_suite(broken) == Check(
        "test_negation",
        False,
        "negation: test_negation (MFT, suite test_mood): it could not be run on the candidate: "
        "ValueError: no such column",
    )
    silent = dataclasses.replace(suite(0, 0), candidate=FailureRate(0, 0))
    assert judge_suite(silent).outcome == "failed"
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
    verdict = decide(Policy(), Evidence(held_out=pair(950, 950), fresh=pair(500, 500)))
    assert [sentence.split(":")[0] for sentence in verdict.reasons] == ["undecided", "passed"]


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
    assert verdict.outcome == "failed"
    assert (
        "chosen from, 90.0% (85.0% to 94.0%) and 70.0% (62.0% to 77.0%); the candidate is significantly worse"
        in (verdict.reasons[0])
    )
    turned = dataclasses.replace(pair(300, 500), champion_share=worse, candidate_share=better)
    assert decide(Policy(), Evidence(fresh=turned)).outcome == "passed"


@pytest.mark.parametrize(
    ("policy", "part", "could"),
    [
        (Policy(max_drop=0.02), "held_out", True),
        (Policy(max_drop=1.0), "held_out", False),
        (Policy(min_gain=-1.0), "fresh", False),
        (Policy(max_drop=1.0, min_gain=0.0), "fresh", True),
    ],
)
def test_margins_that_allow_any_loss_could_not_have_refused(policy: Policy, part: str, could: bool) -> None:
    found = pair(1, 0, rows=1)
    evidence = Evidence(held_out=found) if part == "held_out" else Evidence(fresh=found)
    assert could_refuse(policy, evidence) is could
    assert (decide(policy, evidence).outcome == "passed") is not could


def test_a_loss_without_end_or_a_slice_may_still_refuse_where_any_rise_of_the_whole_is_allowed() -> None:
    policy = Policy(max_drop=1.0)
    assert could_refuse(policy, Evidence(held_out=dataclasses.replace(pair(1, 0), is_relative=True)))
    assert could_refuse(policy, Evidence(named=[NamedSlice("night", 0.02, pair(1, 0))]))
    assert not could_refuse(policy, Evidence())


def of_perfect_champion(loss: float) -> Check:
    beyond = relative_excess(np.zeros(500), np.full(500, loss), error=0.024)
    found = PairedEvidence("held", "mean absolute error", 0.0, beyond, is_relative=True)
    return judge_held_out(found, 0.02)


def test_what_loses_where_the_champion_loses_nothing_is_refused() -> None:
    assert of_perfect_champion(9.0).outcome == "failed"
    open_check = of_perfect_champion(0.0)
    assert open_check.outcome == "undecided"
    assert open_check.reason.endswith(
        "the champion loses nothing on these rows, so that no share of its loss tells: "
        "label rows on which it errs"
    )


@pytest.mark.parametrize(
    ("low", "high", "most", "outcome"),
    [(None, None, 0.02, "failed"), (-1.0, None, 1.0, "watched"), (-0.5, -0.1, 0.0, "passed")],
)
def test_bounds_without_end_are_drawn(
    low: float | None, high: float | None, most: float, outcome: str
) -> None:
    excess = {"value": low, "low": low, "high": high, "rows": 9}
    part = {"dataset": "held", "fault": "", "excess": excess}
    evidence = kept_evidence(policy=Policy(max_drop=most), held_out=part)
    (shown,) = VerdictRow("v", "m", "2", "1", False, [], evidence, 0).bounds
    assert shown.outcome == outcome
    assert np.isfinite([shown.value, shown.low, shown.high]).all()


def test_rows_that_nobody_can_compare_are_named() -> None:
    nothing = dataclasses.replace(pair(0, 0, rows=0), left_out=7)
    assert judge_held_out(nothing, 0.02).reason == (
        "held has no row to judge by: in 7 rows label or champion's answer is missing, or of another type"
    )


@pytest.mark.parametrize(("tries", "is_exact"), [(1, True), (11, False)])
def test_after_ten_verdicts_a_lost_slice_is_told_as_coarsely_as_all_else(tries: int, is_exact: bool) -> None:
    whole = pair(990, 905, tries=tries)
    lost = dataclasses.replace(whole, slices=[SliceEvidence("old", whole.excess)])
    check = judge_slices(lost, 0.02)
    assert not check.passed
    assert ("+8.5 points in old" in check.reason) is is_exact


def test_no_exact_figure_of_a_candidate_is_told() -> None:
    shares = [Estimate(1 / 3, 0.31234, 0.41234, 200, 180.4, "weighted") for _ in range(2)]
    entities = np.arange(1000) // 10
    rng = np.random.default_rng(0)
    beyond = excess(rng.random(1000), rng.random(1000), entities=entities)
    found = told(
        dataclasses.replace(pair(1, 0), excess=beyond, champion_share=shares[0], candidate_share=shares[1]),
        passed=True,
    )
    assert found.candidate_share is not None
    figures = [found.candidate_share.value, found.candidate_share.low, found.candidate_share.high]
    assert figures == pytest.approx([0.333, 0.312, 0.412], abs=1e-12)
    assert f"{found.excess.effect:.2g}" == f"{found.excess.effect:.6g}"
