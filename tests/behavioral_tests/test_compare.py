"""Two models on the same tests."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests import INV, MFT, Outcome, expect, perturb
from outrider.behavioral_tests.compare import compare, compare_models
from outrider.behavioral_tests.outcome import Measure, Measured
from outrider.behavioral_tests.statistics import holm, mcnemar_p, paired_difference

Model = Callable[[Batch], Mapping[str, NDArray[Any]]]


def wrong_below(limit: int, *, null_below: int = 0) -> Model:
    """Answers 1 for numbers below the limit, else the right 0; nothing for the first few."""

    def predict(batch: Batch) -> Mapping[str, NDArray[Any]]:
        number = batch.column("inputs.number")
        answer = (number < limit).astype(object)
        answer[number < null_below] = None
        return {"label": answer}

    return predict


def even(name: str, rows: int = 100, **given: Any) -> MFT:
    cases = [{"number": row} for row in range(rows)]
    return replace(MFT(name=name, suite="s", cases=cases, labels=0), **given)


def test_a_regression_is_found_with_its_figures_and_cases() -> None:
    (row,) = compare_models([even("test_a")], wrong_below(5), wrong_below(20)).rows
    assert (row.pairs, row.only_champion_fails, row.only_challenger_fails) == (100, 0, 15)
    assert row.difference == pytest.approx(0.15)
    assert (row.low, row.high) == paired_difference(0, 15, 100)
    assert row.p == row.p_adjusted == mcnemar_p(0, 15) < 0.05
    assert row.verdict == "regression"
    assert row.only_challenger_cases == tuple(range(5, 20))
    mirrored = compare_models([even("test_a")], wrong_below(20), wrong_below(5))
    assert [each.verdict for each in mirrored.rows] == ["improvement"]
    assert mirrored.improvements
    assert not mirrored.regressions


def test_one_small_difference_in_a_large_matrix_is_not_an_alarm() -> None:
    tests = [even(f"test_{number}") for number in range(20)]
    alone = compare_models(tests[:1], wrong_below(0), wrong_below(7))
    many = compare_models(tests, wrong_below(0), wrong_below(0))
    one = compare(
        [test.run(wrong_below(0)) for test in tests],
        [test.run(wrong_below(7 if test.name == "test_3" else 0)) for test in tests],
    )
    assert alone.rows[0].verdict == "regression"
    assert {row.verdict for row in many.rows} == {"same"}
    assert [row.p_adjusted for row in one.rows] == holm([row.p for row in one.rows])
    assert one.rows[3].p < 0.05 < one.rows[3].p_adjusted
    assert one.rows[3].verdict == "same"


def test_each_model_is_asked_once_and_all_cases_whatever_stop_says() -> None:
    asked: list[int] = []

    def counting(batch: Batch) -> Mapping[str, NDArray[Any]]:
        asked.append(batch.rows)
        return wrong_below(900)(batch)

    test = even("test_a", 1000, stop="decided", tolerance=0.1)
    comparison = compare_models([test], counting, counting)
    assert asked == [1000, 1000]
    assert comparison.rows[0].pairs == 1000


def test_cases_that_do_not_apply_to_both_are_left_out() -> None:
    pair = perturb.column("number", lambda values, rng: values + 1000)
    test = INV(name="test_a", cases=[{"number": row} for row in range(100)], perturb=pair)
    (row,) = compare_models([test], wrong_below(0), wrong_below(40, null_below=10)).rows
    assert (row.pairs, row.only_challenger_fails) == (90, 30)


def test_what_cannot_be_compared_is_kept_with_its_reason() -> None:
    tests = [even("test_a"), even("test_b"), even("test_c", tolerance=0.1, stop="decided"), even("test_d")]
    ours = [test.run(wrong_below(0)) for test in tests]

    def broken(batch: Batch) -> Mapping[str, NDArray[Any]]:
        raise RuntimeError("no memory")

    nothing = even("test_d", expect=expect.equal().where("inputs.number", ">", 1000)).run(wrong_below(0))
    failed = compare_models([even("test_b")], broken, wrong_below(0)).rows[0]
    assert failed.champion is not None
    theirs = [
        failed.champion,
        tests[2].run(wrong_below(0)),
        nothing,
        even("test_e").run(wrong_below(0)),
    ]
    reasons = {row.test: row.reason for row in compare(ours, theirs).rows}
    assert reasons == {
        "test_a": "only the champion has this test",
        "test_b": "could not be run on the challenger: RuntimeError: no memory",
        "test_c": "ended early on the champion; run it with stop='never' to compare",
        "test_d": "no case was applicable to the challenger",
        "test_e": "only the challenger has this test",
    }
    read = [Outcome.from_dict(ours[0].to_dict())]
    assert "read from a file" in compare(ours[:1], read).rows[0].reason
    newer = [replace(ours[0], revision="other")]
    assert "was changed" in compare(ours[:1], newer).rows[0].reason


def test_other_questions_are_refused() -> None:
    one = even("test_a").run(wrong_below(0))
    other = MFT(
        name="test_a", suite="s", cases=[{"number": row + (row == 7)} for row in range(100)], labels=0
    )
    with pytest.raises(ValueError, match="asked different inputs, first in case 7"):
        compare([one], [other.run(wrong_below(0))])
    with pytest.raises(ValueError, match="100 examples of 100 cases, the challenger 50 of 50"):
        compare([one], [even("test_a", 50).run(wrong_below(0))])
    with pytest.raises(ValueError, match="one outcome per test expected"):
        compare([one, one], [one])


def gap(value: float, half: float) -> Callable[[Batch], Measured]:
    return lambda examples: Measured(
        max(0.0, value - 0.1),
        (
            Measure("rate", float("nan"), 0.0, 1.0, 0, "nobody"),
            Measure("gap", value, value - half, value + half, 100, "women"),
        ),
    )


@pytest.mark.parametrize(
    ("was", "now", "half", "verdict"),
    [
        (0.05, 0.3, 0.05, "regression"),
        (0.3, 0.05, 0.05, "improvement"),
        (0.05, 0.3, 0.3, "same"),
        (0.01, 0.09, 0.001, "same"),  # both within what is allowed
    ],
)
def test_rules_of_a_whole_test_are_compared_by_their_figures(
    was: float, now: float, half: float, verdict: str
) -> None:
    ours, theirs = (
        even("test_a", expect=expect.suite(gap(value, half))).run(wrong_below(0)) for value in (was, now)
    )
    (row,) = compare([ours], [theirs]).rows
    assert row.verdict == verdict
    assert row.reason == "gap of women"
    assert row.difference == pytest.approx(now - was)
    assert row.low < now - was < row.high


def test_a_figure_of_a_whole_test_is_not_counted_among_the_cases() -> None:
    cases = even("test_a", capability="counting")
    sides = [
        [cases.run(wrong_below(0)), even("test_b", capability="counting", expect=rule).run(wrong_below(0))]
        for rule in (expect.suite(gap(0.3, 0.05)), expect.suite(gap(0.05, 0.05)))
    ]
    assert "counting    0.0%, 0 of 1 met → 0.0%, 1 of 1 met ▼ 1 better" in compare(*sides).lines()[1]
    assert "0 of 1 met → 1 of 1 met ▼ 1 better" in compare(sides[0][1:], sides[1][1:]).lines()[1]


def test_a_verdict_without_figures_is_not_compared() -> None:
    rule = expect.suite(lambda examples: bool(examples.column("outputs.label").sum() == 0))
    tests = [even("test_a", expect=rule)]
    (row,) = compare_models(tests, wrong_below(0), wrong_below(3)).rows
    assert row.verdict == "not comparable"
    assert "without figures" in row.reason


def test_the_matrix_as_text_and_json() -> None:
    tests: list[MFT | INV] = [
        even("test_a", capability="counting"),
        even("test_b", capability="counting"),
        INV(
            name="test_c",
            capability="form",
            cases=[{"number": row} for row in range(50)],
            perturb=perturb.column("number", lambda values, rng: values + 1),
        ),
    ]
    ours = [test.run(wrong_below(5)) for test in tests]
    theirs = [tests[0].run(wrong_below(30)), tests[1].run(wrong_below(5)), tests[2].run(wrong_below(5))]
    comparison = compare(ours, [*theirs, even("test_new").run(wrong_below(0))], names=("v1", "v2"))
    lines = comparison.lines()
    assert lines[0].split() == ["capability", "MFT", "INV"]
    assert "counting    5.0% → 17.5% ▲ 1 worse" in lines[1]
    assert "2.0% → 2.0% =" in lines[2]
    assert any(line.startswith("▲  test_a (MFT, counting): worse, 5.0% → 30.0% failed") for line in lines)
    assert any("test_new" in line and "only the challenger" in line for line in lines)
    assert lines[-1] == "v1 → v2: 1 worse, 0 better of 4 tests (all verdicts at 0.05)"
    written = json.loads(json.dumps(comparison.to_json()))
    assert written["regressions"] == ["test_a"]
    assert written["tests"][0]["champion"]["failures"] == 5
    assert written["tests"][3]["champion"] is None
