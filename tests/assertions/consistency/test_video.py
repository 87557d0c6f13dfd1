"""Promises on real videos, each sequence left out of what was fitted; faults put into true tracks."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.assertions import learned, video
from benchmarks.assertions._track_faults import fault_table
from benchmarks.assertions._videos import FASTER_RCNN, findings_of, kitti_sequences
from benchmarks.results import RESULTS, Result, read
from outrider.assertions import Calibration, Consistency
from outrider.assertions.learn import observations as densities
from outrider.assertions.library import duplicate_boxes
from tests.requirements import require_data

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def lines() -> dict[str, video.Line]:
    require_data("mot15_pedestrians")
    require_data("mot17_dpm")
    return {one.sequence: one for one in video.lines()}


@pytest.mark.costly("goes through a real data set, whose figures are claimed")
def test_flicker_of_every_sequence_is_right_in_seven_of_ten(lines: dict[str, video.Line]) -> None:
    for one in lines.values():
        assert one.right >= 0.7 * one.flags > 0, one
    assert sum(one.flags for one in lines.values()) >= 300
    flags, right = (sum(counts) for counts in zip(*((o.flags, o.right) for o in lines.values()), strict=True))
    naive = [(one.naive_flags, one.naive_right) for one in lines.values()]
    naive_flags, naive_right = (sum(counts) for counts in zip(*naive, strict=True))
    assert right / flags > naive_right / naive_flags


def test_flicker_of_every_sequence_finds_one_true_flicker_in_twenty(lines: dict[str, video.Line]) -> None:
    for one in lines.values():
        assert one.found >= 0.05 * one.flickers > 0, one


def test_appear_is_right_in_seven_of_ten_where_it_speaks(lines: dict[str, video.Line]) -> None:
    spoke = [one for one in lines.values() if one.appear_flags]
    assert {one.sequence for one in spoke} == set(FASTER_RCNN)  # of DPM's boxes nine in ten are people
    for one in spoke:
        assert one.appear_right >= 0.7 * one.appear_flags, one


def test_corrections_lower_f1_on_no_sequence_and_remove_nothing(lines: dict[str, video.Line]) -> None:
    for one in lines.values():
        assert one.after > one.before, one
        assert one.appear_corrections == 0


def test_confidence_of_corrections_is_no_more_than_they_are_right(lines: dict[str, video.Line]) -> None:
    said = sum(one.confidence * one.flags for one in lines.values())
    assert said <= sum(one.right for one in lines.values()) * 1.02


def test_without_calibration_nothing_is_corrected() -> None:
    require_data("mot15_pedestrians")
    seen = video.loaded("KITTI-13")
    for judge in video.uncalibrated_rule().assertions:
        found = findings_of(judge, seen.batch)
        assert len(found) > 50
        assert len(found.weak_labels) == 0


@pytest.mark.costly("goes through a real data set, whose figures are claimed")
def test_trusted_chosen_on_the_other_sequences_is_the_products() -> None:
    require_data("mot15_pedestrians")
    require_data("mot17_dpm")
    product = video.rule(video.calibration("KITTI-13")).least_trusted
    assert {video.chosen_elsewhere(name, 0.8) for name in video.SEQUENCES} == {product}


def test_the_setting_is_that_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "Consistency(" in one)
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    shown, chance = names["steady"], names["chance"]
    assert isinstance(shown, Consistency)
    assert isinstance(chance, Calibration)
    measured = video.rule(chance)
    for field in ("tracker", "within", "calibration", "trusted", "corrects", "checks", "explode", "id"):
        assert getattr(shown, field) == getattr(measured, field), field


@pytest.mark.costly("goes through a real data set, whose figures are claimed")
def test_faults_put_into_true_tracks_are_found() -> None:
    require_data("kitti_tracks")
    for name, one in fault_table().items():
        assert one.put_in >= 80, name
        if "class_size" in name:  # a rough net, no promise
            assert one.found / (one.found + one.false) >= 0.6
            continue
        assert one.recall >= 0.95, name
        assert one.false_per_1000 <= 1.0, name


def test_duplicate_boxes_overlap_is_the_one_chosen_on_other_sequences() -> None:
    require_data("kitti_tracks")
    require_data("mot15_pedestrians")
    require_data("mot17_dpm")
    assert duplicate_boxes.__kwdefaults__ is not None
    overlap = duplicate_boxes.__kwdefaults__["overlap"]
    assert {video.overlap_elsewhere(one.sequence) for one in video.duplicates()} == {overlap}
    boxes = sum(one.boxes for one in video.duplicates())
    assert 1000 * sum(one.false[overlap] for one in video.duplicates()) <= boxes
    assert video.visible_duplicates().value <= 1.0


def test_written_results_are_what_is_measured_now(lines: dict[str, video.Line]) -> None:
    written = read(video.NAME)
    for name, one in lines.items():
        for now in video._of_sequence(one, name, video.DATA[name]):
            assert written[now.name].n == pytest.approx(now.n, abs=2), now.name
            assert written[now.name].value == pytest.approx(now.value, abs=0.02, nan_ok=True), now.name


def test_written_tables_are_those_of_the_written_results() -> None:
    """``tests/test_figures.py`` holds docs/precision.md to them."""
    held = json.loads((RESULTS / f"{video.NAME}.json").read_text(encoding="utf-8"))
    assert held["tables"] == video.tables(read(video.NAME))


@pytest.mark.parametrize("what", learned.KINDS)
def test_learned_densities_rank_faults_far_above_chance(what: str) -> None:
    require_data("kitti_tracks")
    names = kitti_sequences()
    found = learned.ranking(learned.fitted(names[1:]), names[0], what, 0)
    assert found.auroc >= 0.85
    assert found.precision_at_faults >= 3 * found.faults / found.total


def test_the_constants_of_learned_densities_are_the_best_tried() -> None:
    written: dict[str, Result] = read("assertions.learned")
    tried = {name: one.value for name, one in written.items() if name.startswith("learned.precision width=")}
    width, worst = densities.WIDTH, densities.WORST
    assert tried[f"learned.precision width={width:g} worst={worst:g}"] == max(tried.values())


def test_a_box_in_the_middle_of_its_gap_is_right_and_one_elsewhere_wrong() -> None:
    truth = np.array([[0.0, 0, 10, 20]])
    assert video.hits(np.array([[1.0, 0, 10, 20], [8, 0, 10, 20]]), truth).tolist() == [True, False]
    assert video.hits(np.array([[1.0, 0, 10, 20]]), np.zeros((0, 4))).tolist() == [False]
