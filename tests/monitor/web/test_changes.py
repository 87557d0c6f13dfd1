import dataclasses

import pytest

from outrider.dataops.improvement.suite_outcomes import OutcomeRow
from outrider.monitor.views.suites.changes import Direction, PairedOutcomes, change_of

BEFORE = OutcomeRow(
    version="1", suite="s", test="t", revision="r", kind="INV", capability="c", description="",
    status="passed", cases=100, failures=5, not_applicable=0, tolerance=0.1, rate=0.05, low=0.02, high=0.11,
    measures=(), source="gate", at_us=1,
)  # fmt: skip
EVIDENCE = {
    "suite": "s",
    "test": "t",
    "champion": {"cases": 100, "failures": 5},
    "candidate": {"cases": 100, "failures": 9},
    "only_champion_fails": 1,
    "only_candidate_fails": 5,
    "p": 0.01,
    "compared": "regression",
    "note": "",
}


def now(failures: int, *, status: str = "passed", revision: str = "r") -> OutcomeRow:
    rate = failures / 100
    return dataclasses.replace(
        BEFORE, version="2", failures=failures, rate=rate, low=max(0.0, rate - 0.04), high=rate + 0.06,
        status=status, revision=revision,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("after", "verdict", "basis"),
    [
        (now(9), "same", "the intervals overlap; not paired"),
        (now(30), "regression", "the intervals do not overlap; not paired"),
        (now(11, status="failed"), "regression", "passed before, failed now; the intervals overlap"),
        (now(11, revision="q"), "unknown", "the test was edited in between"),
        (now(0, status="error"), "regression", "passed before, cannot be run now"),
    ],
)
def test_without_pairs_the_intervals_speak(after: OutcomeRow, verdict: Direction, basis: str) -> None:
    change = change_of(BEFORE, after, None)
    assert (change.verdict, change.against, change.p) == (verdict, "1", None)
    assert change.basis.startswith(basis)


def test_pairs_of_the_gate_speak_for_the_outcomes_they_are_of_alone() -> None:
    paired = PairedOutcomes.read(EVIDENCE)
    change = change_of(BEFORE, now(9), paired)
    assert (change.verdict, change.p) == ("regression", 0.01)
    assert change.basis == "same cases: 5 newly failed, 1 mended; McNemar, Holm-adjusted p = 0.01"
    assert change_of(BEFORE, now(8), paired).p is None  # published since
    assert PairedOutcomes.read({**EVIDENCE, "compared": "not comparable"}) is None


def test_what_could_not_be_run_before_is_not_compared() -> None:
    broken = dataclasses.replace(BEFORE, status="error")
    assert change_of(broken, now(0), None).verdict == "unknown"
    assert change_of(broken, dataclasses.replace(broken, version="2"), None).verdict == "same"


def test_a_verdict_on_the_whole_test_is_not_compared_by_its_one_case() -> None:
    gap = {"name": "gap", "group": "a - b", "value": 0.1, "low": 0.0, "high": 0.2, "rows": 9}
    whole = dataclasses.replace(BEFORE, cases=1, failures=0, rate=0.0, low=0.0, high=0.79, measures=(gap,))
    failed = dataclasses.replace(whole, version="2", failures=1, rate=1.0, low=0.8, high=1.0, status="failed")
    change = change_of(whole, failed, None)
    assert (change.verdict, change.basis) == ("regression", "passed before, failed now; not paired")
    assert change_of(whole, dataclasses.replace(whole, version="2"), None).verdict == "same"
