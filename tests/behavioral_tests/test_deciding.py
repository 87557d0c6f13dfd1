"""Tests that end as soon as their verdict is certain."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests import DIR, INV, MFT, expect, perturb
from outrider.behavioral_tests.statistics import decided, rate_bounds


class Counting:
    """Answers the case's own number; remembers how many rows it was asked about at a time."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, batch: Batch) -> Mapping[str, NDArray[Any]]:
        self.asked.append(batch.rows)
        return {"label": batch.column("inputs.number")}


def numbers(rows: int, *, bad: int) -> list[dict[str, Any]]:
    return [{"number": row, "label": -1 if row < bad else row} for row in range(rows)]


def test_a_good_model_is_asked_about_few_cases() -> None:
    model = Counting()
    test = MFT(name="test_x", cases=numbers(2000, bad=10), tolerance=0.05, stop="decided")
    outcome = test.run(model)
    assert outcome.passed
    assert outcome.interval == "sequence"
    assert outcome.planned == 2000
    assert outcome.cases == outcome.asked == sum(model.asked) < 400
    assert outcome.low <= 10 / 2000 <= outcome.high <= 0.05
    assert f"decided after {outcome.cases} of 2000" in outcome.message


def test_blocks_grow() -> None:
    model = Counting()
    MFT(name="test_x", cases=numbers(500, bad=25), tolerance=0.05, stop="decided").run(model)
    assert model.asked[0] == 64
    assert all(later >= earlier for earlier, later in itertools.pairwise(model.asked[:-1]))


def test_a_bad_model_is_refused_after_few_cases_with_its_own_case_numbers() -> None:
    test = MFT(name="test_x", cases=numbers(1000, bad=400), tolerance=0.05, stop="decided")
    outcome = test.run(Counting())
    assert outcome.status == "failed"
    assert outcome.cases == 64
    assert outcome.low > 0.05
    assert all(example.case == example.inputs["number"] for example in outcome.examples)
    assert outcome.ran is not None
    failed = outcome.ran.numbers[outcome.ran.failed]
    assert (failed < 400).all()
    assert len(failed) == outcome.failures


def test_all_cases_asked_is_an_ordinary_outcome() -> None:
    cases = numbers(60, bad=3)
    early = MFT(name="test_x", cases=cases, tolerance=0.05, stop="decided").run(Counting())
    whole = MFT(name="test_x", cases=cases, tolerance=0.05).run(Counting())
    assert (early.interval, early.low, early.high) == ("wilson", whole.low, whole.high)
    assert (early.cases, early.failures, early.status) == (60, 3, "passed")


def test_without_tolerance_the_first_failure_decides_and_passing_needs_nearly_all() -> None:
    model = Counting()
    one = MFT(name="test_x", cases=numbers(1000, bad=200), stop="decided").run(model)
    assert (one.status, one.asked) == ("failed", 64)
    clean = MFT(name="test_x", cases=numbers(1000, bad=0), stop="decided").run(Counting())
    assert clean.passed
    assert clean.asked == 1000


def test_cases_that_are_not_applicable_are_counted_as_such() -> None:
    rule = expect.equal().where("inputs.number", ">=", 500)
    test = MFT(name="test_x", cases=numbers(1000, bad=520), expect=rule, tolerance=0.2, stop="decided")
    outcome = test.run(Counting())
    assert outcome.passed
    assert outcome.cases + outcome.not_applicable == outcome.asked < 1000
    assert outcome.low <= 20 / 500 <= outcome.high


def test_changed_copies_are_asked_with_their_originals() -> None:
    later = perturb.column("number", lambda values, rng: values + 1)
    test = INV(
        name="test_x", cases=numbers(1000, bad=0), perturb=later, copies=1, tolerance=0.1, stop="decided"
    )
    outcome = test.run(Counting())
    assert (outcome.status, outcome.cases, outcome.asked) == ("failed", 64, 128)
    up = DIR(
        name="test_x", cases=numbers(1000, bad=0), perturb=later, tolerance=0.1, stop="decided",
        expect=expect.monotone("label", direction="increasing"),
    )  # fmt: skip
    assert up.run(Counting()).passed


def test_the_same_cases_are_asked_of_every_model() -> None:
    test = MFT(name="test_x", cases=numbers(1000, bad=300), tolerance=0.1, stop="decided")
    ran = [test.run(Counting(), seed=seed).ran for seed in (3, 3, 4)]
    asked = [each.numbers.tolist() for each in ran if each is not None]
    assert asked[0] == asked[1] != asked[2]


def test_a_test_goes_on_until_something_could_be_judged() -> None:
    rule = expect.equal().where("inputs.number", ">=", 990)
    test = MFT(name="test_x", cases=numbers(1000, bad=0), expect=rule, tolerance=1.0, stop="decided")
    outcome = test.run(Counting())
    assert outcome.passed
    assert outcome.cases > 0


def test_no_applicable_case_at_all_is_skipped() -> None:
    unchanged = INV(name="test_x", cases=numbers(9, bad=0), perturb=lambda batch, rng: batch, stop="decided")
    outcome = unchanged.run(Counting())
    assert (outcome.status, outcome.asked, outcome.not_applicable) == ("skipped", 0, 9)
    nowhere = expect.equal().where("inputs.number", ">", 1000)
    outcome = MFT(name="test_x", cases=numbers(90, bad=0), expect=nowhere, stop="decided").run(Counting())
    assert (outcome.status, outcome.asked, outcome.not_applicable) == ("skipped", 90, 90)


def test_a_rule_of_the_whole_test_cannot_end_early() -> None:
    rule = expect.suite(lambda examples: True)
    with pytest.raises(ValueError, match="cannot end before they are asked"):
        MFT(cases=["a"], expect=rule, stop="decided")
    with pytest.raises(ValueError, match="stop must be one of never, decided"):
        INV(cases=[["a", "b"]], stop="soon")  # type: ignore[arg-type]  # what is tested
    by_case = expect.case(lambda examples, case: np.ones(int(case[-1]) + 1, dtype=bool))
    assert (
        MFT(cases=[["a", "b"]], expect=by_case, stop="decided")
        .run(lambda batch: {"label": np.zeros(batch.rows)})
        .passed
    )


def slow_bounds(
    failures: int, judged: int, possible: int, tolerance: float, confidence: float
) -> tuple[float, float, bool | None]:
    """Every number of cases and failures there could be, one by one, with exact binomial coefficients."""
    rates, verdicts = [], set()
    bets = {passes: mixture(failures, judged, tolerance, other=not passes) for passes in (True, False)}
    for total in range(max(judged, 1), possible + 1):
        for fails in range(total + 1):
            left = fails - failures
            if not 0 <= left <= total - judged:
                continue
            likelihood = math.comb(total - judged, left) / math.comb(total, fails)
            passes = fails / total <= tolerance
            if likelihood > (1 - confidence) * bets[passes]:
                rates.append(fails / total)
                verdicts.add(passes)
    return min(rates), max(rates), verdicts.pop() if len(verdicts) == 1 else None


def mixture(failures: int, judged: int, tolerance: float, *, other: bool) -> float:
    """Probability of the sequence under half Jeffreys' prior, half that on one side of the tolerance."""
    grid = (np.arange(20_000) + 0.5) / 20_000
    rate = np.sin(grid * np.pi / 2) ** 2  # Jeffreys' prior is uniform in the angle
    density = rate**failures * (1 - rate) ** (judged - failures)
    side = rate <= tolerance if other else rate > tolerance
    return float(0.5 * density.mean() + 0.5 * density[side].mean())


@pytest.mark.parametrize("tolerance", [0.05, 0.25, 0.5])
@pytest.mark.parametrize(("judged", "possible"), [(5, 40), (12, 30), (20, 20), (30, 33)])
def test_verdict_and_bounds_agree_with_a_slow_loop(judged: int, possible: int, tolerance: float) -> None:
    for failures in range(judged + 1):
        low, high, verdict = slow_bounds(failures, judged, possible, tolerance, 0.9)
        found = rate_bounds(failures, judged, possible, tolerance=tolerance, confidence=0.9)
        assert decided(failures, judged, possible, tolerance=tolerance, confidence=0.9) is verdict
        assert found[0] <= low + 1e-12
        assert found[1] >= high - 1e-12
        if verdict is not None:
            assert (found[1] <= tolerance) is verdict
            assert (found[0] > tolerance) is not verdict


@given(st.data())
def test_a_verdict_agrees_with_the_rate_so_far(data: st.DataObject) -> None:
    possible = data.draw(st.integers(1, 400))
    judged = data.draw(st.integers(0, possible))
    failures = data.draw(st.integers(0, judged))
    tolerance = data.draw(st.sampled_from([0.0, 0.01, 0.1, 0.29, 0.5, 1.0]))
    verdict = decided(failures, judged, possible, tolerance=tolerance)
    if verdict is not None and judged:
        assert (failures / judged <= tolerance) is verdict
    if judged == possible:
        assert verdict is (failures / judged <= tolerance)
    low, high = rate_bounds(failures, judged, possible, tolerance=tolerance)
    assert 0.0 <= low <= (failures / judged if judged else 0.0) <= high <= 1.0


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="judged <= possible"):
        decided(0, 5, 4, tolerance=0.1)
    with pytest.raises(ValueError, match="confidence in"):
        decided(0, 4, 5, tolerance=0.1, confidence=1.0)
