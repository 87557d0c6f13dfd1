"""Rates of groups: textbook numbers, slow loops, and coverage by simulation."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.assertions.statistics.group_rates import Limits, Sums, differences, ratios, shares, too_few
from outrider.behavioral_tests import wilson_interval
from tests.soak import rounds

Floats = NDArray[np.float64]
ROUNDS = 4000


def _sums(hits: Floats, weights: Floats) -> Sums:
    """Of many samples at once, shape (rounds, records)."""
    y, w = hits, weights
    rows = np.full(len(y), float(y.shape[1]))
    return Sums(rows, w.sum(1), (w * w).sum(1), (w * y).sum(1), (w * w * y).sum(1), w.max(1))


def _one(hits: int, rows: int) -> Limits:
    y = (np.arange(rows) < hits).astype(np.float64)
    return shares(_sums(y[None], np.ones((1, rows))))


@pytest.mark.parametrize(("hits", "rows"), [(0, 1), (1, 1), (0, 40), (7, 40), (40, 40), (500, 2000)])
@pytest.mark.parametrize("weight", [1.0, 0.1, 7.0])
def test_with_equal_weights_a_share_has_the_wilson_interval(hits: int, rows: int, weight: float) -> None:
    y = (np.arange(rows) < hits).astype(np.float64)
    found = shares(_sums(y[None], np.full((1, rows), weight)))
    assert (found.low[0], found.high[0]) == pytest.approx(wilson_interval(hits, rows), abs=1e-9)


def test_a_group_without_records_is_unknown() -> None:
    value, low, high = shares(Sums.of([], [], np.zeros(0, dtype=np.intp), 1))
    assert np.isnan(value[0])
    assert (low[0], high[0]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [  # Newcombe 1998, table II, method 10
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((10, 10), (0, 20), 0.6791, 1.0),
        ((0, 10), (0, 20), -0.1611, 0.2775),
    ],
)
def test_differences_are_those_of_newcombe(
    first: tuple[int, int], second: tuple[int, int], low: float, high: float
) -> None:
    found = differences(_one(*first), _one(*second))
    assert found.low[0] == pytest.approx(low, abs=6e-5)
    assert found.high[0] == pytest.approx(high, abs=6e-5)


def test_a_ratio_contains_its_estimate_and_turns_round() -> None:
    one, other = _one(30, 100), _one(10, 100)
    there, back = ratios(one, other), ratios(other, one)
    assert there.low[0] < there.value[0] < there.high[0]
    assert there.low[0] == pytest.approx(1 / back.high[0])
    assert there.high[0] == pytest.approx(1 / back.low[0])


def test_nobody_selected_leaves_the_ratio_open_above() -> None:
    found = ratios(_one(5, 50), _one(0, 50))
    assert np.isinf(found.high[0])
    assert 0 < found.low[0] < np.inf


@pytest.mark.parametrize("kind", ["equal", "independent", "of the outcome"])
def test_intervals_of_shares_cover(kind: str) -> None:
    """At 100 records and shares of 5 to 95 %: Wilson's own coverage steps between 93.5 and 97 % along them.

    Weights are 1 and 10, drawn, or by the outcome: misses are captured one time in ten.
    """
    rng = np.random.default_rng(3)
    share = rng.uniform(0.05, 0.95, (ROUNDS, 1))
    hits = (rng.random((ROUNDS, 100)) < share).astype(np.float64)
    weights = np.ones_like(hits)
    if kind == "independent":
        weights = rng.choice([1.0, 10.0], hits.shape)
    if kind == "of the outcome":
        captured = share / (share + (1 - share) * 0.1)
        hits = (rng.random((ROUNDS, 100)) < captured).astype(np.float64)
        weights = np.where(hits > 0, 1.0, 10.0)
    # Others of the same traffic tell how heavy a record can be.
    found = shares(replace(_sums(hits, weights), heaviest=np.full(ROUNDS, weights.max())))
    truth = share[:, 0]
    assert float(((found.low <= truth) & (truth <= found.high)).mean()) >= 0.94


@pytest.mark.parametrize("sizes", [(50, 200), (300, 1000)])
@pytest.mark.parametrize("truth", [(0.3, 0.1), (0.1, 0.1), (0.5, 0.3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_intervals_of_differences_and_ratios_cover(
    sizes: tuple[int, int], truth: tuple[float, float], weighted: bool
) -> None:
    rng = np.random.default_rng(4)
    found = []
    for rows, share in zip(sizes, truth, strict=True):
        hits = (rng.random((ROUNDS, rows)) < share).astype(np.float64)
        found.append(shares(_sums(hits, rng.choice([1.0, 10.0 if weighted else 1.0], hits.shape))))
    gap, ratio = differences(*found), ratios(*found)
    assert ((gap.low <= truth[0] - truth[1]) & (truth[0] - truth[1] <= gap.high)).mean() >= 0.94
    known = ~np.isnan(ratio.value)
    at = truth[0] / truth[1]
    assert ((ratio.low <= at) & (at <= ratio.high))[known].mean() >= 0.94


def of_entities(seed: int, entities: int, *, each: int, rate: float) -> tuple[Sums, Sums]:
    """Records of entities with own rates: sums that know of them, and sums that do not."""
    rng = np.random.default_rng(seed)
    entity = np.repeat(np.arange(entities), each)
    own = rng.beta(4 * rate, 4 * (1 - rate), size=entities)
    hits = rng.random(len(entity)) < own[entity]
    weights = rng.choice([1.0, 4.0], size=entities)[entity]
    codes = np.zeros(len(entity), dtype=np.intp)
    return Sums.of(hits, weights, codes, 1, entities=entity), Sums.of(hits, weights, codes, 1)


@pytest.mark.parametrize("entities", [50, 400])
def test_intervals_of_records_of_few_entities_cover(entities: int) -> None:
    rate, runs, held, naive = 0.2, rounds(300, part=3), 0, 0
    for seed in range(runs):
        clustered, independent = of_entities(seed, entities, each=20, rate=rate)
        inside = [one.low[0] <= rate <= one.high[0] for one in (shares(clustered), shares(independent))]
        held, naive = held + int(inside[0]), naive + int(inside[1])
    # 93 % less three standard errors of that many runs
    assert held / runs >= 0.93 - 3 * (0.93 * 0.07 / runs) ** 0.5
    assert naive / runs < 0.85


def test_too_few_entities_say_nothing_however_many_records() -> None:
    sums, _ = of_entities(0, 8, each=1000, rate=0.2)
    found = shares(sums)
    assert too_few(sums).tolist() == [True]
    assert (found.low[0], found.high[0]) == (0.0, 1.0)
    one_heavy = Sums.of(
        np.arange(400) % 2, np.r_[np.full(20, 1000.0), np.ones(380)], np.zeros(400, dtype=np.intp), 1,
        entities=np.repeat(np.arange(20), 20),
    )  # fmt: skip
    assert too_few(one_heavy).tolist() == [True]


def test_records_of_distinct_entities_have_the_intervals_of_independent_ones() -> None:
    hits, weights = np.arange(40) % 3 == 0, np.tile([1.0, 2.0], 20)
    codes = np.repeat([0, 1], 20)
    known = Sums.of(hits, weights, codes, 2, entities=np.arange(40))
    for one, other in zip(shares(known), shares(Sums.of(hits, weights, codes, 2)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not too_few(known).any()


@pytest.mark.parametrize("hit", [False, True])
def test_all_alike_still_leaves_room_for_other_entities(hit: bool) -> None:
    entity = np.repeat(np.arange(50), 100)
    codes = np.zeros(len(entity), dtype=np.intp)
    found = shares(Sums.of(np.full(len(entity), hit), np.ones(len(entity)), codes, 1, entities=entity))
    width = found.high[0] - found.low[0]
    assert 3 / 50 < width < 0.12  # the rule of three, of 50 entities and not of 5,000 records
