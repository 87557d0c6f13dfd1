"""The world of benchmarks.assertions.labels_saved is the one that its protocol describes."""

import numpy as np
import pytest

from benchmarks.assertions._digits_devices import FRAMES, make
from benchmarks.assertions._rounds import Arm, bootstrap, labels_to, run
from benchmarks.assertions.labels_saved import DigitsTask


def test_pool_and_test_have_the_protocols_devices_and_tracks() -> None:
    world = make(3)
    assert (len(world.y), len(world.pool.y), len(world.test.y)) == (300, 6000, 3000)
    shares = np.bincount(world.pool.device) / 6000
    assert shares == pytest.approx([0.72, 0.07, 0.07, 0.06, 0.08])
    assert np.bincount(world.test.device).tolist() == [1200, 450, 450, 450, 450]
    assert (np.bincount(world.pool.track) == FRAMES).all()
    for frames in (world.pool, world.test):
        assert frames.x.min() >= -0.5
        assert frames.x.max() <= 1.5
        per_track = frames.device.reshape(-1, FRAMES), frames.y.reshape(-1, FRAMES)
        assert all((column == column[:, :1]).all() for column in per_track)


def test_assertions_fire_as_the_protocol_saw_them() -> None:
    task = DigitsTask(0)
    seen = task.look(task.fit([]))
    fired = seen.severities > 0
    precision = [seen.wrong[column].mean() for column in fired.T]
    # Track consistency, mirror confidence, ink, stuck column, total variation, nuisance; another generator.
    assert fired.sum(axis=0) == pytest.approx([3320, 897, 385, 1067, 431, 643], rel=0.25)
    assert precision == pytest.approx([0.43, 0.66, 0.97, 0.54, 0.51, 0.27], abs=0.08)
    assert seen.wrong.mean() == pytest.approx(0.30, abs=0.03)


def test_labels_to_a_goal_are_interpolated_between_rounds() -> None:
    curve = np.array([0.1, 0.2, 0.4, 0.3])
    assert labels_to(curve, 0.3) == pytest.approx(150)
    assert labels_to(curve, 0.05) == 0.0
    assert labels_to(curve, 0.5) == float("inf")


def test_an_interval_over_equal_seeds_has_no_width() -> None:
    runs = {"a": np.ones((4, 2, 1)), "b": np.zeros((4, 2, 1))}
    assert bootstrap(runs, lambda c: float(c["a"][-1, 0] - c["b"][-1, 0]), draws=50) == (1.0, 1.0)


@pytest.mark.costly("a model is trained, which is what it is about")
def test_a_run_repeats_and_labels_help() -> None:
    task = DigitsTask(5)
    arm = Arm("adaptive", "adaptive", audit_share=0.1)
    scores = run(task, arm, 5)
    assert scores.shape == (6, 2)
    assert scores[-1, 0] > scores[0, 0] + 0.05
    assert scores[-1, 1] > scores[0, 1] + 0.2
    assert np.array_equal(scores, run(task, arm, 5))
