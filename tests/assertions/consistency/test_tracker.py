"""Trackers: identity of boxes, a pure function of what is remembered and the next frame."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions import Frame, IouTracker, MotionTracker, Tracker, Tracks, track
from outrider.assertions.consistency.boxes import overlap_of_pairs, overlaps
from tests.soak import examples

TRACKERS = [IouTracker(), MotionTracker()]


def random_frames(seed: int, count: int = 12) -> list[Frame]:
    rng = np.random.default_rng(seed)
    frames = []
    for n in range(count):
        boxes = np.column_stack([rng.uniform(0, 100, (3, 2)) + 2 * n, rng.uniform(5, 40, (3, 2))])
        shown = rng.random(3) < 0.8
        frames.append(Frame(boxes[shown], rng.random(int(shown.sum())), n / 10))
    return frames


@pytest.mark.parametrize("tracker", TRACKERS)
@settings(max_examples=examples(20))
@given(st.integers(0, 10_000), st.integers(1, 11))
def test_saved_in_the_middle_a_tracker_goes_on_the_same(tracker: Tracker, seed: int, cut: int) -> None:
    frames = random_frames(seed)
    whole = track(frames, tracker)
    tracks, ids = Tracks.none(), []
    for number, frame in enumerate(frames):
        if number == cut:
            tracks = Tracks.from_json(tracks.to_json())
        tracks, found = tracker.step(tracks, frame)
        ids.append(found)
    assert [one.tolist() for one in ids] == [one.tolist() for one in whole]


@pytest.mark.parametrize("tracker", TRACKERS)
def test_no_two_boxes_of_a_frame_are_one_object(tracker: Tracker) -> None:
    for seed in range(20):
        for ids in track(random_frames(seed), tracker):
            assert len(set(ids.tolist())) == len(ids)


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_frame_without_boxes_is_survived(tracker: Tracker) -> None:
    box, none = np.array([[0.0, 0, 10, 20]]), np.zeros((0, 4))
    frames = [Frame(box, np.ones(1), 0.0), Frame(none, np.ones(0), 0.1), Frame(box, np.ones(1), 0.2)]
    assert [ids.tolist() for ids in track(frames, tracker)] == [[0], [], [0]]


def test_motion_finds_again_what_moved_on_while_it_was_gone() -> None:
    places = [(n, 6.0 * n) for n in range(12) if n not in (6, 7)]
    frames = [Frame(np.array([[left, 0.0, 10, 30]]), np.array([0.9]), n / 10) for n, left in places]
    assert {int(ids[0]) for ids in track(frames, MotionTracker())} == {0}
    assert len({int(ids[0]) for ids in track(frames, IouTracker())}) > 1


def test_what_is_forgotten_comes_back_as_another() -> None:
    box = np.array([[0.0, 0, 10, 20]])
    frames = [Frame(box, np.ones(1), 0.0), Frame(box, np.ones(1), 5.0)]
    assert [ids.tolist() for ids in track(frames)] == [[0], [1]]


def test_overlaps_agree_with_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.uniform(0, 10, (20, 4)), rng.uniform(0, 10, (20, 4))
    table = overlaps(first, second)
    for one in range(20):
        for other in range(20):
            (a, b, w, h), (c, d, v, g) = first[one], second[other]
            common = max(0.0, min(a + w, c + v) - max(a, c)) * max(0.0, min(b + h, d + g) - max(b, d))
            assert table[one, other] == pytest.approx(common / (w * h + v * g - common))
    assert overlap_of_pairs(first, second) == pytest.approx(np.diag(table))
