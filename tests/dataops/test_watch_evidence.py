"""Evidence on a new champion: bounds against a slow loop, one entity alone, numbers, order."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from outrider.assertions.comparison.matching import is_numeric
from outrider.assertions.statistics.loss_bounds import bound_of_mean
from outrider.dataops.flags.shadow_flags import CommonRecords
from outrider.dataops.improvement.entity_hours import LEAST_STAKE, EntityHours
from outrider.dataops.improvement.paired_labels import LabelledPairs, _paired, _Rows
from outrider.dataops.improvement.watch_evidence import BETS, look_at_flags, look_at_labels


def pairs(entity: list[int], hour: list[int], worse: list[float]) -> LabelledPairs:
    return LabelledPairs(np.array(entity), np.array(hour), np.array(worse, dtype=float))


def is_refuted(entity: list[int], hour: list[int], worse: list[float], error: float) -> bool:
    """Whether a mean of at most 0 is refuted, hour by hour."""
    hours: dict[tuple[int, int], list[float]] = {}
    for who, when, value in zip(entity, hour, worse, strict=True):
        hours.setdefault((who, when), []).append(value)
    wealth, last = np.ones(len(BETS)), dict[int, float]()
    for (who, _), values in sorted(hours.items()):
        mean = math.fsum(values) / len(values)
        stake = max(1 - abs(last[who]), LEAST_STAKE) if who in last else 1.0
        wealth *= 1 + stake * BETS * mean
        last[who] = mean
    return bool(wealth.mean() >= 1 / error)


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 9), st.sampled_from([-1.0, 0.0, 1.0, 1.0])), max_size=80
    )
)
def test_bounds_refute_what_a_loop_refutes(records: list[tuple[int, int, float]]) -> None:
    entity, hour, worse = [list(column) for column in zip(*records, strict=True)] if records else ([], [], [])
    found = look_at_labels(pairs(entity, hour, worse), error=0.25)
    assert (found.low > 1e-6) == is_refuted(entity, hour, worse, 0.2)
    assert found.only_champion - found.only_former == sum(worse)


def test_one_entity_alone_proves_nothing() -> None:
    loud = pairs([1] * 200, list(range(200)), [1.0] * 200)
    found = look_at_labels(loud, error=0.01)
    assert found.low > 0
    assert not found.is_proven
    others = pairs(
        [1] * 200 + list(range(2, 40)) * 5,
        [*range(200), *(n // 38 for n in range(190))],
        [1.0] * 200 + [0.0] * 190,
    )
    assert not look_at_labels(others, error=0.01).is_proven


def test_many_entities_prove_it_and_records_without_one_are_one_source() -> None:
    n = np.arange(400)
    worse = np.where(n % 3 == 0, 1.0, 0.0)
    assert look_at_labels(LabelledPairs(n + 1, n % 7, worse), error=0.01).is_proven
    assert not look_at_labels(LabelledPairs(n * 0, n % 7, worse), error=0.01).is_proven
    assert look_at_labels(LabelledPairs(n * 0, n // 2, worse), error=0.01).is_proven  # it takes days


def test_a_lasting_preference_of_few_entities_proves_nothing() -> None:
    """Four of five entities that lose for good, one that gains: chance, where each has a taste of its own."""
    n = np.arange(2000)
    entity, sign = n % 5 + 1, np.where(n % 5 < 4, 1.0, -1.0)
    worse = sign * (n // 5 % 3 == 0)
    found = look_at_labels(LabelledPairs(entity, n // 5, worse), error=0.01)
    assert min(found.low, found.low_without) > 0
    assert found.low_across < 0
    assert not found.is_proven


def test_bound_across_entities_is_that_of_a_t_test_over_their_means() -> None:
    rng = np.random.default_rng(0)
    entity = np.repeat(np.arange(12) + 1, 40)
    values = rng.choice([-1.0, 0.0, 1.0], len(entity), p=[0.05, 0.8, 0.15])
    hours = EntityHours.of(entity, np.tile(np.arange(40), 12), values)
    flat = EntityHours(hours.entity, hours.value, np.ones(len(hours.value)))
    means = values.reshape(12, 40).mean(axis=1)
    assert flat.low_across(0.01) == pytest.approx(means.mean() - bound_of_mean(means, 0.01))
    assert bound_of_mean(means, 0.01) > stats.sem(means) * stats.norm.ppf(0.99)
    assert EntityHours.of(entity[:40], np.arange(40), values[:40]).low_across(0.01) == -1.0


def test_equal_flags_prove_nothing() -> None:
    marks = np.where(np.arange(600) % 3 == 0, 5, 1).astype(np.uint8)
    found = look_at_flags(CommonRecords(np.arange(600), np.arange(600) // 50, marks, marks), error=0.01)
    assert (found.only_champion, found.only_former, found.difference, found.is_proven) == (0, 0, 0.0, False)


def test_nothing_is_told_of_no_records() -> None:
    found = look_at_labels(pairs([], [], []), error=0.01)
    assert (found.records, found.low, found.high, found.is_proven) == (0, -1.0, 1.0, False)


def test_the_loudest_entity_goes_and_the_nameless_stay() -> None:
    hours = EntityHours.of(
        np.array([0, 0, 1, 2, 2]), np.array([1, 2, 1, 1, 2]), np.array([1.0, 1, 0.5, 1, 1])
    )
    assert sorted(set(hours.without_loudest().entity.tolist())) == [0, 1]
    quiet = EntityHours.of(np.array([1, 2]), np.array([1, 1]), np.array([-1.0, 0.0]))
    assert quiet.without_loudest() is quiet


@pytest.mark.parametrize(
    ("label", "champion", "other", "worse"),
    [
        (1, 0, 1, 1.0),
        ("1", True, 0, -1.0),
        (2.5, 2.75, 2.0, -1.0),
        (2.5, 9.25, 2.0, 1.0),
        (2.5, 2.25, 2.75, 0.0),
        (2.5, None, 2.75, 1.0),
        (2.5, float("inf"), None, 0.0),
    ],
)
def test_who_is_worse(label: object, champion: object, other: object, worse: float) -> None:
    """Numbers are compared by which is farther off: one wild answer weighs no more than any other."""
    rows = _Rows([0], [0], [label], [champion], [other])
    numeric = is_numeric([champion]) or is_numeric([other])
    assert _paired(rows, {}, numeric).worse.tolist() == [worse]
