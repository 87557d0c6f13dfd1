"""Calibration: isotonic, never sure of little, and of boxes paired one to one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions import Batch, Calibration, Checker, Consistency, calibrate_boxes


def box(left: float, **fields: Any) -> dict[str, Any]:
    return {"left": left, "top": 0.0, "width": 20.0, "height": 40.0, **fields}


def labelled(found: list[Any], true: Any, *, times: int = 40) -> Batch:
    frame = {"outputs": {"detections": found}, "label": {"detections": true}}
    return Batch.from_records([frame] * times, model="m")


def test_calibration_recovers_the_chance_within_its_noise() -> None:
    rng = np.random.default_rng(7)
    scores = rng.uniform(-2, 3, 20_000)
    true = 1 / (1 + np.exp(-scores))
    fitted = Calibration.fit(scores, rng.random(20_000) < true)
    grid = np.linspace(-1.8, 2.8, 50)
    assert np.abs(fitted(grid) - 1 / (1 + np.exp(-grid))).max() < 0.06


def test_calibration_agrees_with_scikit_learn_where_steps_are_long() -> None:
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(3)
    scores = rng.choice(np.linspace(0, 1, 11), 5000)
    right = rng.random(5000) < 0.1 + 0.8 * scores
    reference = IsotonicRegression(out_of_bounds="clip").fit(scores, right)
    assert Calibration.fit(scores, right)(scores) == pytest.approx(reference.predict(scores), abs=0.005)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.booleans()), min_size=30, max_size=120))
def test_calibration_never_falls_and_is_never_sure(labels: list[tuple[float, bool]]) -> None:
    scores, right = (np.array(side) for side in zip(*labels, strict=True))
    fitted = Calibration.fit(scores, right)
    chances = fitted(np.sort(scores))
    assert (np.diff(chances) >= 0).all()
    assert 0 < chances.min() <= chances.max() < 1
    assert Calibration.from_json(fitted.to_json()) == fitted
    assert eval(repr(fitted)) == fitted


def test_calibration_of_any_finite_scores_stays_between_its_chances() -> None:
    for scores in ((0.0, 5e-324), (-1e308, 1e308), (1.0, 1.0)):
        made = Calibration(scores=scores, chances=(0.2, 0.8))
        found = made(np.array([-np.inf, *scores, np.inf]))
        assert found[0] in (0.2, 0.8)
        assert found[-1] == 0.8
        assert ((found >= 0.2) & (found <= 0.8)).all()
        assert float(made(scores[1])) == 0.8


def test_calibration_of_few_scores_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 30"):
        Calibration.fit(np.r_[np.ones(29), np.nan], np.ones(30))
    with pytest.raises(ValueError, match="shapes"):
        Calibration.fit(np.ones(40), np.ones(41))


@pytest.mark.parametrize(
    ("scores", "chances"),
    [((), ()), ((1.0,), (0.5, 0.6)), ((2.0, 1.0), (0.1, 0.2)), ((1.0, 2.0), (0.2, 0.1)), ((1.0,), (1.2,))],
)
def test_calibration_that_makes_no_sense_is_refused(scores: Any, chances: Any) -> None:
    with pytest.raises(ValueError, match=r"scores|chances"):
        Calibration(scores=scores, chances=chances)


def test_calibrate_boxes_second_box_on_an_object_is_wrong() -> None:
    found = [box(0.0, score=0.9), box(3.0, score=0.4), box(500.0, score=0.2)]
    fitted = calibrate_boxes(labelled(found, [box(0.0)]))
    assert fitted(np.array([0.2, 0.4, 0.9])) == pytest.approx([1 / 82, 1 / 82, 41 / 42], abs=1e-4)


def test_calibrate_boxes_frames_without_label_are_left_out_and_empty_ones_are_all_wrong() -> None:
    found = [box(0.0, score=0.9)]
    frames = [
        {"outputs": {"detections": found}, "label": {"detections": true}} for true in (found, []) * 30
    ] + [{"outputs": {"detections": found}}] * 50
    fitted = calibrate_boxes(Batch.from_records(frames, model="m"))
    assert fitted(np.array([0.9])) == pytest.approx([0.5])


def test_calibrate_boxes_another_class_is_wrong() -> None:
    found, true = [box(0.0, score=0.9, kind="car")], [box(0.0, kind="van")]
    assert calibrate_boxes(labelled(found, true))(0.9) > 0.9
    assert calibrate_boxes(labelled(found, true), same="kind")(0.9) < 0.1


def test_calibrate_boxes_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match=r"label\.detections"):
        calibrate_boxes(Batch.from_records([{"outputs": {"detections": [box(0.0)]}}], model="m"))
    found = [box(0.0, score=0.9, kind="car")]
    with pytest.raises(ValueError, match="'sure'"):
        calibrate_boxes(labelled(found, [box(0.0)]), score="sure")
    with pytest.raises(ValueError, match=r"label\.detections has no field 'kind'"):
        calibrate_boxes(labelled(found, [box(0.0)]), same="kind")
    with pytest.raises(ValueError, match=r"label\.detections has no field 'width'"):
        calibrate_boxes(labelled(found, [{"left": 0.0, "top": 0.0}]))


def test_calibration_is_part_of_the_revision() -> None:
    def revisions(chance: float) -> list[str]:
        calibration = Calibration(scores=[0.5, 1.0], chances=[0.1, chance])
        rule = Consistency(id="outputs.label", within=3, score="outputs.score", calibration=calibration)
        return [judge.revision for judge in rule.assertions]

    assert revisions(0.9) == revisions(0.9)
    assert set(revisions(0.9)).isdisjoint(revisions(0.8))


def test_records_are_corrected_with_calibrated_scores() -> None:
    rows = [
        {
            "id": f"r{n}",
            "entity": "p",
            "ts": f"2026-01-05T10:00:{10 * n:02}Z",
            "outputs": {"label": label, "score": 0.9},
        }
        for n, label in enumerate("NNANN")
    ]
    chance = Calibration.fit(np.repeat([0.4, 0.9], 30), np.r_[np.zeros(30), np.ones(30)])
    rule = Consistency(id="outputs.label", within=30, score="outputs.score", calibration=chance)
    flags = Checker([rule]).check(Batch.from_records(rows, model="m"))
    assert [
        (one, value) for one, value in zip(flags.weak_labels.kind, flags.weak_labels.value, strict=True)
    ] == [("replace", "N")]
