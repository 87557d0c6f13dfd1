"""Estimates from chosen labels: exact on uniform samples, intervals that cover under every policy."""

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.assertions import select
from outrider.assertions.selection import Policy, SelectionState
from outrider.assertions.statistics.estimation import (
    Estimate,
    certain_picks,
    estimate_share,
    selection_weights,
)
from tests.soak import IS_SOAK, at_least, rounds

RECORDS = 1000
ROUNDS = 2


def test_uniform_draws_weigh_one() -> None:
    population = np.arange(50, 20, -1)
    assert selection_weights(1 / population, population) == pytest.approx(np.ones(30))


def test_a_pick_that_was_all_but_certain_weighs_little() -> None:
    weights = selection_weights([0.9 + 0.1 / 100, 0.1 / 99], [100, 99])
    assert weights[0] < 0.03
    assert weights[1] == pytest.approx(10.0, rel=0.02)


def test_picks_of_no_chance_at_all_are_no_sample() -> None:
    assert selection_weights([1.0, 1.0], [100, 99]).tolist() == [0.0, 0.0]
    assert selection_weights([0.5, 0.5], [100, 99], floor=[0.0, 0.0]).tolist() == [0.0, 0.0]
    assert selection_weights([], []).tolist() == []


def test_what_no_draw_preferred_weighs_the_reciprocal_of_its_inclusion_probability() -> None:
    # Two draws at a tenth of an even chance, then eight even ones, of 100 records.
    left = np.arange(100, 90, -1)
    floor = np.array([0.1] * 2 + [1.0] * 8)
    weights = selection_weights(floor / left, left, floor=floor)
    included = 1 - np.prod(1 - floor / left)
    assert weights == pytest.approx(np.full(10, 1 / included * 10 / 100))


def test_late_records_weigh_what_their_fewer_chances_make_of_them() -> None:
    # 10 of 100 records, then 10 of 90 old and 110 new ones.
    population = np.concatenate([np.arange(100, 90, -1), np.arange(200, 190, -1)])
    rounds = np.repeat([0, 1], 10)
    open_to = np.column_stack([np.arange(20) < 15, np.ones(20)])
    weights = selection_weights(1 / population, population, rounds=rounds, open_to=open_to)
    stands_for = weights / 20 * 100
    assert stands_for[:15] == pytest.approx(np.full(15, 1 / (1 - 0.9 * 0.95)))
    assert stands_for[15:] == pytest.approx(np.full(5, 20.0))


def test_a_sample_of_everything_weighs_alike() -> None:
    left = np.arange(20, 0, -1)
    q = np.concatenate([np.full(5, 0.5), 1 / left[5:]])
    weights = selection_weights(q, left, floor=[0.1] * 5 + [1.0] * 15)
    assert weights == pytest.approx(np.ones(20), abs=1e-9)


def test_a_uniform_sample_gives_the_share_and_a_wilson_interval_a_little_wider() -> None:
    hits = np.arange(100) < 80
    found = estimate_share(hits)
    assert (found.value, found.labels) == (0.8, 100)
    assert found.effective == pytest.approx(99.0, abs=1.1)
    assert [found.low, found.high] == pytest.approx([0.711, 0.867], abs=0.01)


def test_without_labels_nothing_is_known() -> None:
    found = estimate_share([])
    assert np.isnan(found.value)
    assert found == Estimate(found.value, 0.0, 1.0, 0, 0.0, "none")


def test_weights_need_one_value_per_label() -> None:
    with pytest.raises(ValueError, match="one value per label, 2, got 1"):
        estimate_share([True, False], [1.0])


Truth = tuple[NDArray[np.bool_], NDArray[np.float64]]


def world(seed: int, errors: float) -> Truth:
    """Where the model is wrong, and three assertions: precise, loose and rare."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(RECORDS) < errors
    chances = ((0.5, 0.02), (0.25, 0.2), (0.1, 0.01))
    fired = [rng.random(RECORDS) < np.where(wrong, hit, miss) for hit, miss in chances]
    severities = [np.where(f, rng.random(RECORDS) + 0.5 * wrong, 0.0) for f in fired]
    return wrong, np.column_stack(severities)


def estimates(seed: int, policy: Policy, budget: int, errors: float) -> list[tuple[Estimate, float]]:
    """Accuracy and three precisions after some rounds, each with the truth."""
    wrong, severities = world(seed, errors)
    rng = np.random.default_rng([seed, 1])
    unsure = rng.random(RECORDS) + 0.5 * wrong
    state, labelled = SelectionState(), np.zeros(RECORDS, dtype=np.bool_)
    found = []
    for number in range(ROUNDS):
        state = state.observe(severities * (rng.random(RECORDS) < 0.9**number)[:, None])
        found.append(
            select(
                severities,
                budget=budget,
                policy=policy,
                seed=seed,
                state=state,
                labelled=labelled,
                uncertainty=unsure,
                embeddings=np.column_stack([unsure, rng.random((RECORDS, 2))]),
                probabilities=np.column_stack([unsure, 2 - unsure]) / 2,
            )
        )
        rows = found[-1].rows
        labelled[rows] = True
        state = state.bought(severities[rows], wrong[rows])
    rows = np.concatenate([f.rows for f in found])
    weights = selection_weights(
        np.concatenate([f.probability for f in found]),
        np.concatenate([f.population for f in found]),
        floor=np.concatenate([f.floor for f in found]),
    )
    certain = np.concatenate([certain_picks(f.probability, f.population) for f in found])
    result = [(estimate_share(~wrong[rows], weights, certain=certain), float((~wrong).mean()))]
    for code in range(severities.shape[1]):
        fired = severities[:, code] > 0
        within = fired[rows]
        result.append(
            (estimate_share(wrong[rows], weights, within=within, certain=certain), float(wrong[fired].mean()))
        )
    return result


@pytest.mark.parametrize(
    ("policy", "budget", "errors"),
    [
        ("adaptive", 50, 0.15),
        ("adaptive", 20, 0.15),
        ("adaptive", 50, 0.04),
        ("uniform", 50, 0.15),
        ("uniform", 20, 0.3),
        ("bal", 50, 0.15),
        ("badge", 30, 0.15),
        ("uncertainty", 50, 0.15),
        ("random", 30, 0.15),
    ],
)
def test_intervals_cover_the_truth(policy: Policy, budget: int, errors: float) -> None:
    trials = rounds(100, part=3)
    runs = [estimates(seed, policy, budget, errors) for seed in range(trials)]
    covered = np.array([[e.low <= truth <= e.high for e, truth in run] for run in runs]).mean(axis=0)
    assert (covered >= at_least(0.93, trials)).all(), covered
    error = np.array([run[0][0].value - run[0][1] for run in runs])
    luck = 0.0 if IS_SOAK else 3 * error.std(ddof=1) / trials**0.5
    assert abs(error.mean()) < 0.03 + luck


def test_labels_that_all_agree_are_worth_what_their_weights_are() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        weights = rng.uniform(0.1, 9.0, rng.integers(1, 60))
        for hits in (np.ones(len(weights)), np.zeros(len(weights))):
            found = estimate_share(hits, weights)
            assert found.value == pytest.approx(hits[0])
            assert 0.0 <= found.low <= found.value <= found.high <= 1.0
            assert found.effective == pytest.approx(weights.sum() ** 2 / (weights @ weights))
