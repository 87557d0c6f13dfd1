"""Thresholds fitted on a few labelled examples: what they find, and whether their intervals hold."""

import numpy as np
import pytest

from outrider.assertions.flags.threshold import fit_threshold


def _examples(rng: np.random.Generator, n: int, *, apart: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose log odds are normal, ``apart`` standard deviations higher where the example is wrong."""
    wrong = rng.random(n) < 0.4
    return 1 / (1 + np.exp(-rng.normal(np.where(wrong, apart, 0.0) - 3.0, 1.0))), wrong


def test_fifty_examples_come_near_the_best_threshold_there_is() -> None:
    rng = np.random.default_rng(0)
    score, wrong = _examples(rng, 20_000)
    best = max(_f1(score > at, wrong) for at in np.quantile(score, np.linspace(0.2, 0.9, 71)))
    reached = []
    for _ in range(8):
        drawn = rng.choice(len(score), 50, replace=False)
        reached.append(_f1(score > fit_threshold(score[drawn], wrong[drawn]).score, wrong))
    assert np.mean(reached) > best - 0.015
    assert _f1(score > 0.5, wrong) < best - 0.2  # what a default of one half does on such scores


@pytest.mark.costly("goes through a real data set, whose figures are claimed")
def test_intervals_hold_on_examples_never_seen() -> None:
    rng = np.random.default_rng(1)
    score, wrong = _examples(rng, 20_000)
    held = []
    for _ in range(30):
        drawn = rng.choice(len(score), 60, replace=False)
        found = fit_threshold(score[drawn], wrong[drawn])
        fired = score > found.score
        hits = (fired & wrong).sum()
        held.append(found.precision.low <= hits / fired.sum() <= found.precision.high)
        held.append(found.recall.low <= hits / wrong.sum() <= found.recall.high)
    assert np.mean(held) >= 0.9


def test_asked_precision_is_reached_on_the_whole_population() -> None:
    rng = np.random.default_rng(2)
    score, wrong = _examples(rng, 5000, apart=3.0)
    found = fit_threshold(score[:2000], wrong[:2000], precision=0.95)
    fired = score[2000:] > found.score
    assert wrong[2000:][fired].mean() >= 0.93
    assert fired.any()


def test_score_that_says_nothing_is_not_informative() -> None:
    rng = np.random.default_rng(3)
    informative = [fit_threshold(rng.random(60), np.arange(60) < 25).is_informative for _ in range(8)]
    assert sum(informative) <= 2


def test_reversed_score_is_not_turned_round() -> None:
    wrong = np.arange(60) < 25
    assert not fit_threshold(np.where(wrong, 0.2, 0.8), wrong).is_informative


@pytest.mark.parametrize(
    ("wrong", "message"),
    [([True] * 4 + [False] * 20, "got 4 and 20"), ([True] * 24, "got 24 and 0")],
)
def test_too_few_of_either_kind_are_refused(wrong: list[bool], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_threshold(np.linspace(0.1, 0.9, 24), wrong)


def test_precision_out_of_reach_is_refused() -> None:
    rng = np.random.default_rng(4)
    with pytest.raises(ValueError, match=r"no threshold reaches a precision of 0\.99"):
        fit_threshold(rng.random(60), np.arange(60) < 25, precision=0.99)


def _f1(fired: np.ndarray, wrong: np.ndarray) -> float:
    return float(2 * (fired & wrong).sum() / max(1, fired.sum() + wrong.sum()))
