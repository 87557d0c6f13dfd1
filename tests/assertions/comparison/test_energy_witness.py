"""Energy distance of texts: equal systems are not told apart, and the distance is the textbook's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from outrider.assertions import Batch
from outrider.assertions.comparison import PairedAnswers
from outrider.assertions.comparison.energy_witness import KEPT, EnergyWitness, Floats, pair_energies
from tests.soak import at_most, rounds


def is_ever_proven(seed: int, *, spread: float, sharing: float, shift: float = 0.0) -> bool:
    """Looks after each of twelve blocks, at an error of a tenth."""
    rng, witness = np.random.default_rng(seed), EnergyWitness(np.random.default_rng([seed, 1]))
    for _ in range(12):
        question = sharing * rng.normal(size=(50, 4))
        one, two = (question + spread * rng.standard_t(2, size=(50, 4)) for _ in range(2))
        witness.update(one, two + shift)
        if witness.verdict(0.8).is_proven:  # a tenth for each bound
            return True
    return False


@pytest.mark.parametrize(("spread", "sharing"), [(1.0, 0.0), (1.0, 2.0), (0.05, 1.0)])
def test_equal_systems_are_rarely_told_apart_at_any_look(spread: float, sharing: float) -> None:
    runs = rounds(200, part=40)
    found = sum(is_ever_proven(seed, spread=spread, sharing=sharing) for seed in range(runs))
    assert found <= at_most(0.1, runs) * runs


def test_a_shift_is_found() -> None:
    found = [is_ever_proven(seed, spread=1.0, sharing=1.0, shift=1.0) for seed in range(10)]
    assert sum(found) >= 9


def test_equal_texts_and_missing_vectors_prove_nothing() -> None:
    rng, witness = np.random.default_rng(0), EnergyWitness(np.random.default_rng(1))
    for _ in range(4):
        one = rng.normal(size=(60, 3))
        two = one.copy()
        two[::3] = np.nan
        witness.update(one, two)
    found = witness.verdict(0.99)
    assert (found.distance, found.value, found.rows) == (0.0, 0.0, 3 * 40)
    assert not found.is_proven
    with pytest.raises(ValueError, match="vectors of 3 numbers expected"):
        witness.update(np.zeros((2, 4)), np.zeros((2, 4)))


def test_distance_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(5)
    one, two = rng.normal(size=(KEPT, 6)), rng.normal(size=(KEPT, 6)) + 0.7
    witness = EnergyWitness(np.random.default_rng(1))
    witness.update(one, two)
    one, two = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (one, two))
    off = ~np.eye(KEPT, dtype=bool)
    expected = 2 * cdist(one, two)[off].mean() - cdist(one, one)[off].mean() - cdist(two, two)[off].mean()
    assert witness.verdict(0.99).distance == pytest.approx(expected, rel=1e-6)


def test_pair_energies_take_off_what_each_side_differs_from_itself_where_it_was_asked_twice() -> None:
    rng = np.random.default_rng(2)
    one, two, again, other = ({str(at): rng.normal(size=3) for at in range(4)} for _ in range(4))
    asked, rows = np.array([1, 3]), np.array([3, 0, 1])

    def batch(rows: Sequence[int], known: Mapping[str, Floats]) -> Batch:
        vectors = np.array([known[str(row)] for row in rows])
        return Batch.from_columns({"outputs.vector": vectors}, model="m", rows=len(rows))

    sides = batch(range(4), one), batch(range(4), two)
    twice = batch([1, 3], again), batch([1, 3], other)
    pair = PairedAnswers(sides[0], sides[1], np.ones(4), [""] * 4, asked, twice[0], twice[1])
    found = pair_energies(pair, rows, lambda each: each.tensor("outputs.vector"))

    def apart(first: Floats, second: Floats) -> float:
        return float(np.linalg.norm(first / np.linalg.norm(first) - second / np.linalg.norm(second)))

    for energy, row in zip(found.tolist(), map(str, rows), strict=True):
        a, a2, b, b2 = one[row], again[row], two[row], other[row]
        cross = [apart(x, y) for x in (a, a2) for y in (b, b2)]
        within = (apart(a, a2) + apart(b, b2)) / 2
        expected = apart(a, b) if row == "0" else sum(cross) / 4 - within
        assert energy == pytest.approx(expected)
    once = pair_energies(replace(pair, again=None), rows, lambda each: each.tensor("outputs.vector"))
    assert once.tolist() == pytest.approx([apart(one[row], two[row]) for row in map(str, rows)])
