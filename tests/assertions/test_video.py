"""Promises on real videos: precision of flags, corrections that help, faults put into true tracks."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.assertions import learned, video
from tests.requirements import require_data

PAGE = Path(__file__).parents[2] / "docs" / "precision.md"


@pytest.fixture(scope="module")
def lines() -> list[video.Line]:
    require_data("mot15_pedestrians")
    require_data("mot17_dpm")
    return video.precision_lines()[0]


def test_flicker_is_right_in_seven_of_ten_of_at_least_thirty_flags(lines: list[video.Line]) -> None:
    flags, right, naive = video.pooled(lines, "flicker", video.SEQUENCES)
    assert flags >= 30
    assert right >= 0.7 > naive


def test_flicker_is_right_where_truth_is_sparse_too(lines: list[video.Line]) -> None:
    flags, right, _ = video.pooled(lines, "flicker", (*video.SEQUENCES, *video.SPARSE))
    assert flags >= 30
    assert right >= 0.7


def test_appear_is_right_in_eight_of_ten_of_at_least_eighty_flags(lines: list[video.Line]) -> None:
    flags, right, naive = video.pooled(lines, "appear", video.SEQUENCES)
    assert flags >= 80
    assert right >= 0.8 > naive


def test_corrections_raise_f1_on_every_sequence() -> None:
    require_data("mot15_pedestrians")
    found = video.corrections()
    assert len(found) == len(video.SEQUENCES)
    for one in found:
        assert one.after > one.before, one


def test_faults_put_into_true_tracks_are_found() -> None:
    require_data("kitti_tracks")
    for name, one in video.fault_table().items():
        assert one.put_in >= 80, name
        if "class_size" in name:  # a rough net, no promise
            assert one.found / (one.found + one.false) >= 0.6
            continue
        assert one.recall >= 0.95, name
        assert one.false_per_1000 <= 1.0, name


def test_the_page_shows_what_is_measured_now(lines: list[video.Line]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for line in lines:
        shown = re.search(
            rf"^\| {line.sequence} \| {line.assertion} \| (\d+) \| ([\d.]+) \|", text, re.MULTILINE
        )
        assert shown, f"docs/precision.md has no line for {line.assertion} on {line.sequence}"
        assert int(shown[1]) == pytest.approx(line.flags, abs=2)
        assert float(shown[2]) == pytest.approx(line.right, abs=0.1)


@pytest.mark.parametrize("ranking", [learned.box_ranking, learned.track_ranking])
def test_learned_densities_rank_faults_far_above_chance(ranking: object) -> None:
    require_data("kitti_tracks")
    assert callable(ranking)
    found = ranking(0)
    assert found.auroc >= 0.85
    assert found.precision_at_faults >= 3 * found.faults / found.total


def test_a_box_in_the_middle_of_its_gap_is_right_and_one_elsewhere_wrong() -> None:
    truth = np.array([[0.0, 0, 10, 20]])
    assert video.hits(np.array([[1.0, 0, 10, 20], [8, 0, 10, 20]]), truth).tolist() == [True, False]
    assert video.hits(np.array([[0.0, 0, 10, 20], [8, 0, 10, 20]]), np.array([[5.0, 10]])).tolist() == [
        True,
        False,
    ]
