"""A risen loss is found by labelled observations; while nothing changes, seldom."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.assertions.detection import LossBlocks, known_mix, loss_rise, onset_shares, rise_bound
from outrider.assertions.detection.loss_rises import dispersion

Floats = NDArray[np.float64]
NEEDED = math.log(101)


def blocks_of(lost: NDArray[Any], size: float = 50.0) -> LossBlocks:
    return LossBlocks(lost[:, None], np.full((len(lost), 1), size), np.ones(1))


def shares(blocks: int, horizon: float = 200.0) -> Floats:
    return onset_shares(np.arange(blocks, dtype=np.float64), np.arange(blocks), horizon_s=horizon)


def test_shares_of_a_horizon_have_a_sum_of_at_most_one_however_blocks_come() -> None:
    rng = np.random.default_rng(0)
    for gaps in (np.ones(500), rng.exponential(size=5_000), np.r_[np.zeros(99), 1.0, np.zeros(100)]):
        begun = np.cumsum(gaps)
        share = onset_shares(begun, np.arange(len(begun)), horizon_s=float(begun[-1] - begun[0]) or 1.0)
        assert 0.0 < share.sum() <= 1.0


def test_missing_blocks_add_nothing_to_the_shares_of_the_others() -> None:
    begun, numbers = np.arange(600.0), np.arange(600)
    whole = onset_shares(begun, numbers, horizon_s=600.0)
    kept = (numbers < 5) | (numbers >= 400)
    assert np.all(onset_shares(begun[kept], numbers[kept], horizon_s=600.0) <= whole[kept])


@pytest.mark.parametrize("usual", [0.01, 0.05, 0.2, 0.5])
def test_a_steady_loss_seldom_alarms_though_it_is_looked_at_after_every_block(usual: float) -> None:
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(60):
        lost = rng.binomial(50, usual, 120).astype(np.float64)
        alarms += any(
            loss_rise(blocks_of(lost[:end]), shares(120)[:end], needed=NEEDED) > NEEDED
            for end in range(3, 120, 2)
        )
    assert alarms <= 3  # of 240 in all, 2.4 are allowed on average


def test_the_expectation_of_the_evidence_is_at_most_the_sum_of_the_shares() -> None:
    rng = np.random.default_rng(2)
    share = shares(12, 12.0)
    found = [
        math.exp(loss_rise(blocks_of(rng.binomial(20, 0.2, 12) * 1.0, 20.0), share, needed=-math.inf))
        for _ in range(2_000)
    ]
    assert np.mean(found) <= share.sum()


def test_evidence_depends_on_weights_by_their_ratio_alone() -> None:
    lost = np.r_[np.full(40, 5.0), np.full(10, 15.0)][:, None]
    seen = np.full((50, 1), 50.0)
    found = [
        loss_rise(LossBlocks(lost, seen, np.array([weight])), shares(50), needed=0.0)
        for weight in (1.0, 37.0)
    ]
    assert found[0] == pytest.approx(found[1])
    assert found[0] > NEEDED
    split = LossBlocks(np.hstack([lost / 2, lost / 2]), np.hstack([seen / 2, seen / 2]), np.array([3.0, 3.0]))
    assert loss_rise(split, shares(50), needed=0.0) == pytest.approx(found[0])


def test_one_label_that_is_a_thousand_times_heavier_proves_nothing() -> None:
    lost, seen = np.full((50, 2), [5.0, 0.0]), np.full((50, 2), [50.0, 0.0])
    lost[45, 1] = seen[45, 1] = 1.0
    weight = np.array([1.0, 1_000.0])
    assert loss_rise(LossBlocks(lost, seen, weight), shares(50), needed=-math.inf) < 0.0


def test_unequal_weights_find_what_equal_ones_find_later() -> None:
    rng = np.random.default_rng(3)
    seen = np.full((60, 2), [25.0, 25.0])
    lost = np.vstack([rng.binomial(25, 0.1, (40, 2)), rng.binomial(25, 0.4, (20, 2))]).astype(np.float64)
    assert loss_rise(LossBlocks(lost, seen, np.array([1.0, 4.0])), shares(60), needed=NEEDED) > NEEDED


def test_the_cheap_bound_lies_above_the_evidence() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        lost = rng.binomial(50, np.where(np.arange(30) < 20, 0.1, rng.uniform(0.05, 0.4))).astype(np.float64)
        evidence = loss_rise(blocks_of(lost), shares(30), needed=-math.inf)
        assert evidence <= rise_bound(lost, np.full(30, 50.0), shares(30)) + 1e-9


def test_a_mix_that_changes_is_no_rise_beside_what_slices_had_before() -> None:
    seen = np.vstack([np.r_[np.full(40, 45.0), np.full(20, 5.0)], np.r_[np.full(40, 5.0), np.full(20, 45.0)]])
    lost = seen * np.array([[0.02], [0.4]])
    whole = blocks_of(lost.sum(axis=0))
    assert loss_rise(whole, shares(60), needed=NEEDED) > NEEDED
    known = known_mix(lost, seen)
    assert known[0][40] / known[1][40] == pytest.approx(0.362, abs=0.07)
    assert loss_rise(whole, shares(60), needed=NEEDED, known=known) < NEEDED


def test_errors_that_come_in_runs_prove_less() -> None:
    rng = np.random.default_rng(5)
    assert dispersion(rng.binomial(50, 0.2, 200).astype(np.float64), np.full(200, 50.0)) == pytest.approx(
        1.0, abs=0.2
    )
    days = rng.beta(2.0, 8.0, 200)
    runs = rng.binomial(50, days).astype(np.float64)
    assert dispersion(runs, np.full(200, 50.0)) > 3.0
    alarms = sum(
        loss_rise(blocks_of(rng.binomial(50, rng.beta(2.0, 8.0, 100)) * 1.0), shares(100), needed=NEEDED)
        > NEEDED
        for _ in range(40)
    )
    assert alarms <= 2


def test_nothing_and_one_side_alone_are_no_evidence() -> None:
    for lost in (np.zeros(0), np.zeros(1), np.zeros(2), np.zeros(50)):
        assert loss_rise(blocks_of(lost), shares(len(lost)), needed=0.0) <= 0.0
    empty = LossBlocks(np.zeros((5, 1)), np.zeros((5, 1)), np.ones(1))
    assert loss_rise(empty, shares(5), needed=0.0) == -math.inf
    full = blocks_of(np.full(20, 50.0))
    assert loss_rise(full, shares(20), needed=-math.inf) <= 0.0
