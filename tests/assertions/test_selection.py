"""select: budget, groups, determinism, and the probabilities that it reports."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.assertions import select
from outrider.assertions.selection import POLICIES, Policy

severity_rows = st.lists(st.lists(st.sampled_from([0.0, 0.0, 0.5, 2.0]), min_size=2, max_size=2), max_size=12)


def matrix(rows: list[list[float]]) -> NDArray[np.float64]:
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def chosen(severities: NDArray[np.float64], policy: Policy, budget: int, **more: Any) -> list[int]:
    uncertainty = np.arange(len(severities), dtype=np.float64)
    found = select(severities, budget=budget, policy=policy, uncertainty=uncertainty, **more)
    return [int(row) for row in found.rows]


@given(severity_rows, st.sampled_from(POLICIES), st.integers(0, 15), st.integers(0, 9))
def test_no_record_twice_and_never_more_than_the_budget(
    rows: list[list[float]], policy: Policy, budget: int, seed: int
) -> None:
    severities = matrix(rows)
    found = chosen(severities, policy, budget, seed=seed)
    candidates = int((severities > 0).any(axis=1).sum()) if policy == "uniform" else len(severities)
    assert len(found) == len(set(found)) == min(budget, candidates)
    assert found == chosen(severities, policy, budget, seed=seed)


@given(severity_rows, st.integers(0, 9))
def test_uniform_never_takes_a_record_that_was_not_flagged(rows: list[list[float]], seed: int) -> None:
    severities = matrix(rows)
    selection = select(severities, budget=20, seed=seed)
    assert (severities[selection.rows, selection.reason] > 0).all()
    assert ((selection.probability > 0) & (selection.probability <= 1)).all()


@given(severity_rows, st.sampled_from(POLICIES), st.data())
def test_a_group_is_chosen_once(rows: list[list[float]], policy: Policy, data: st.DataObject) -> None:
    names = st.sampled_from(["card 1", "card 2", None])
    groups = np.array([data.draw(names) for _ in rows], dtype=object)
    found = [groups[row] for row in chosen(matrix(rows), policy, 20, groups=groups)]
    named = [group for group in found if group is not None]
    assert len(named) == len(set(named))


def test_other_seeds_choose_other_records() -> None:
    severities = np.ones((200, 2))
    assert chosen(severities, "uniform", 5, seed=0) != chosen(severities, "uniform", 5, seed=1)


def test_uniform_draws_assertions_alike_and_records_by_severity_rank() -> None:
    # Assertion 0 fired on three records, assertion 1 on one: 1/2 · (1, 2, 3)/6 and 1/2.
    severities = np.array([[5.0, 0], [0.1, 0], [0.2, 0], [0, 0.3], [0, 0]])
    expected = {1: 1 / 12, 2: 2 / 12, 0: 3 / 12, 3: 1 / 2}
    trials = 4000
    counts: Counter[int] = Counter()
    for seed in range(trials):
        selection = select(severities, budget=1, seed=seed)
        row = int(selection.rows[0])
        counts[row] += 1
        assert selection.probability[0] == pytest.approx(expected[row])
        assert selection.reason.tolist() == [int(row == 3)]
    for row, probability in expected.items():
        noise = 4 * np.sqrt(probability * (1 - probability) / trials)
        assert counts[row] / trials == pytest.approx(probability, abs=noise)


def test_random_takes_every_record_alike() -> None:
    trials = 3000
    counts = Counter(chosen(np.zeros((5, 2)), "random", 1, seed=seed)[0] for seed in range(trials))
    assert set(counts) == set(range(5))
    assert all(abs(count / trials - 0.2) < 4 * np.sqrt(0.16 / trials) for count in counts.values())
    assert select(np.zeros((5, 2)), budget=1, policy="random").reason.tolist() == [-1]


def test_uncertainty_takes_the_least_sure_first() -> None:
    unsure = np.array([0.1, 0.9, 0.5])
    found = select(np.zeros((3, 1)), budget=2, policy="uncertainty", uncertainty=unsure)
    assert found.rows.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"policy": "best"}, "uniform, uncertainty, random, got 'best'"),
        ({"budget": -1}, "budget must be >= 0, got -1"),
        ({"policy": "uncertainty"}, r"needs uncertainty= of shape \(3,\)"),
        ({"policy": "uncertainty", "uncertainty": np.zeros(2)}, r"shape \(3,\)"),
    ],
)
def test_wrong_arguments_say_what_was_expected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select(np.zeros((3, 1)), **({"budget": 1} | wrong))
