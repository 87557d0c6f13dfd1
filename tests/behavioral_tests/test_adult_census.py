"""Fairness on real data: a model that fails the suite of examples/fairness, and one that passes it."""

import json
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from benchmarks.behavioral.fairness import EXAMPLE, run, table
from benchmarks.results import RESULTS
from outrider.behavioral_tests import Outcome, group_metrics, load_suite
from outrider.model_reference import load_predictor
from tests.requirements import require_data


@pytest.fixture(scope="module", autouse=True)
def _census() -> Iterator[None]:
    folder = require_data("adult_census")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADULT_CENSUS", str(folder / "adult.parquet"))
        yield


@pytest.fixture(scope="module")
def reference() -> dict[str, Outcome]:
    return run("reference")


@pytest.fixture(scope="module")
def mitigated() -> dict[str, Outcome]:
    return run("mitigated")


def _rates(outcome: Outcome) -> dict[str, float]:
    return {measure.group: measure.value for measure in outcome.measures}


def test_the_reference_model_selects_as_the_data_set_says(reference: dict[str, Outcome]) -> None:
    rates = _rates(reference["test_men_and_women_are_selected_alike"])
    assert rates["sex=Male"] == pytest.approx(0.272, abs=0.003)
    assert rates["sex=Female"] == pytest.approx(0.082, abs=0.003)
    found = _rates(reference["test_men_and_women_who_earn_it_are_found_alike"])
    assert found["sex=Male"] == pytest.approx(0.683, abs=0.003)
    assert found["sex=Female"] == pytest.approx(0.570, abs=0.003)


def test_intervals_of_the_rates_are_narrow_and_hold_them(reference: dict[str, Outcome]) -> None:
    for measure in reference["test_men_and_women_are_selected_alike"].measures:
        assert measure.low < measure.value < measure.high < measure.low + 0.04


def test_the_reference_model_fails_fairness_and_passes_accuracy(reference: dict[str, Outcome]) -> None:
    assert _failed(reference.values()) == [
        "test_the_same_person_of_the_other_sex",
        "test_men_and_women_are_selected_alike",
        "test_men_and_women_who_earn_it_are_found_alike",
    ]
    flips = reference["test_the_same_person_of_the_other_sex"]
    assert 0.01 < flips.low < flips.rate < flips.high


@pytest.mark.costly("a model is trained, which is what it is about")
def test_a_mitigated_model_passes_the_same_suite_at_a_known_cost(
    reference: dict[str, Outcome], mitigated: dict[str, Outcome]
) -> None:
    assert _failed(mitigated.values()) == []
    assert mitigated["test_the_same_person_of_the_other_sex"].failures == 0
    assert mitigated["test_the_same_person_of_the_other_sex"].cases == 8561
    cost = mitigated["test_it_is_still_right"].rate - reference["test_it_is_still_right"].rate
    assert 0.02 < cost < 0.05


def test_metrics_of_races_and_of_both_name_groups_too_small_to_count() -> None:
    suite = load_suite(EXAMPLE / "behavior" / "test_fairness.py")
    batch = suite.tests[-1].examples().batch
    answered = batch.with_outputs(load_predictor("model.py:reference", folder=EXAMPLE)(batch))
    found = group_metrics(answered, by=["sex", "race"], positive=">50K")
    assert len(found.rows) == 10
    gap = found.gap("tpr")
    assert "sex=Female, race=Amer-Indian-Eskimo" in gap.left_out
    assert gap.low <= gap.value <= gap.high
    frame = answered.inputs
    part = (frame["sex"] == "Female") & (frame["race"] == "Black")
    selected = answered.column("outputs.label")[part.to_numpy()] == ">50K"
    (rate,) = [r for r in found.of("selection_rate") if r.group == "sex=Female, race=Black"]
    assert rate.value == pytest.approx(np.mean(selected))


def test_the_flip_is_asked_about_live_records(reference: dict[str, Outcome]) -> None:
    """In the two phases of the service: questions about a block, answers, verdicts."""
    assert reference  # fitted
    suite = load_suite(EXAMPLE / "behavior" / "test_fairness.py")
    (live,) = suite.live
    predict = load_predictor("model.py:reference", folder=EXAMPLE)
    block = suite.tests[-1].examples().batch.slice(0, 2000)
    asked = live.questions(block, rng=np.random.default_rng(0))
    before = block.take(asked.rows).with_outputs(predict(block.take(asked.rows)))
    judged = live.judge(before, asked.batch.with_outputs(predict(asked.batch)))
    assert asked.batch.rows == 2000
    assert 0.01 < judged.failed.mean() < 0.06


def test_the_page_shows_these_figures(reference: dict[str, Outcome], mitigated: dict[str, Outcome]) -> None:
    written = json.loads((RESULTS / "behavioral.fairness.json").read_text(encoding="utf-8"))
    shown = table({"reference": reference, "mitigated": mitigated})
    assert written["tables"]["adult"] == shown, "run `python -m benchmarks.results behavioral.fairness`"


def _failed(outcomes: Iterable[Outcome]) -> list[str]:
    return [outcome.name for outcome in outcomes if outcome.status != "passed"]
