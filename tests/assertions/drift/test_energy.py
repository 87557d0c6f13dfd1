"""Energy distance of vectors: the textbook's value, few false alarms, runs that are no proof."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from outrider.assertions.drift import drift_report, energy_distance
from outrider.assertions.drift.energy import vector_evidence
from tests.soak import at_most, rounds


def test_energy_distance_is_that_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(40, 3)), rng.normal(0.7, size=(60, 3))
    own = [cdist(each, each).sum() / (len(each) * (len(each) - 1)) for each in (one, two)]
    expected = 2 * cdist(one, two).mean() - sum(own)
    found = energy_distance(one, two)
    assert found.distance == pytest.approx(expected, abs=1e-6)
    assert found.coefficient == pytest.approx(expected / (2 * cdist(one, two).mean()), abs=1e-6)


def vectors(rng: np.random.Generator, *, run: int) -> NDArray[np.float64]:
    topics = np.repeat(rng.standard_t(3, size=(400 // run, 6)), run, axis=0)
    found: NDArray[np.float64] = topics + 0.1 * rng.normal(size=(400, 6))
    return found


@pytest.mark.parametrize("run", [1, 10])
def test_alike_vectors_are_rarely_told_apart(run: int) -> None:
    draws, alarms = rounds(1000, part=10), 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        found = vector_evidence(vectors(rng, run=run), vectors(rng, run=run), least=0.0)
        alarms += found.chance <= 0.05
    assert alarms <= at_most(0.05, draws) * draws


def test_moved_embeddings_are_drift_and_odd_ones_are_said() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 1000, 8))
    before, same = {"e": list(one)}, {"e": list(two)}
    assert drift_report(before, same).columns[0].status == "no drift shown"
    two = two + 0.5
    two[3, 0] = np.nan
    found = drift_report(before, {"e": list(two)}).columns[0]
    assert found.status == "drift"
    assert found.words.startswith("vectors moved by an energy distance of ")
    assert found.problems == ("current: finite vectors expected, found 1 others, left out",)
    few = drift_report(before, {"e": list(two[:50])}).columns[0]
    assert few.status == "undecided"
    other = drift_report(before, {"e": list(np.zeros((200, 3)))}).columns[0]
    assert other.problems == ("current: vectors of 8 expected, found 3",)
