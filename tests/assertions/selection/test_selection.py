"""select: what every policy keeps to, what each does, and the probabilities that are reported."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.assertions import select
from outrider.assertions.selection import AUDIT, POLICIES, Policy, Selection, SelectionState
from tests.soak import rounds

severity_rows = st.lists(st.lists(st.sampled_from([0.0, 0.0, 0.5, 2.0]), min_size=2, max_size=2), max_size=12)
policies = st.sampled_from(POLICIES)


def matrix(rows: list[list[float]]) -> NDArray[np.float64]:
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def choose(severities: NDArray[np.float64], policy: Policy, budget: int, **more: Any) -> Selection:
    rng = np.random.default_rng(3)
    columns = {
        "uncertainty": np.arange(len(severities), dtype=np.float64),
        "embeddings": rng.normal(size=(len(severities), 3)),
        "probabilities": rng.dirichlet(np.ones(3), len(severities)),
    }
    return select(severities, budget=budget, policy=policy, **(columns | more))


def chosen(severities: NDArray[np.float64], policy: Policy, budget: int, **more: Any) -> list[int]:
    return [int(row) for row in choose(severities, policy, budget, **({"audit_share": 0.0} | more)).rows]


@given(severity_rows, policies, st.integers(0, 15), st.integers(0, 9))
def test_no_record_twice_never_above_the_budget_and_a_seed_repeats(
    rows: list[list[float]], policy: Policy, budget: int, seed: int
) -> None:
    severities = matrix(rows)
    before = severities.copy()
    found = chosen(severities, policy, budget, seed=seed)
    flagged_only = policy in ("uniform", "bal")
    candidates = int((severities > 0).any(axis=1).sum()) if flagged_only else len(severities)
    assert len(found) == len(set(found)) == min(budget, candidates)
    assert found == chosen(severities, policy, budget, seed=seed)
    assert np.array_equal(severities, before)


@given(severity_rows, policies, st.integers(0, 9))
def test_probabilities_are_probabilities_and_the_population_shrinks_by_one(
    rows: list[list[float]], policy: Policy, seed: int
) -> None:
    found = choose(matrix(rows), policy, 20, seed=seed, audit_share=0.3)
    assert ((found.probability > 0) & (found.probability <= 1 + 1e-9)).all()
    assert found.population.tolist() == [len(rows) - k for k in range(len(found.rows))]


@given(severity_rows, st.integers(0, 9))
def test_uniform_takes_flagged_records_for_an_assertion_that_fired(
    rows: list[list[float]], seed: int
) -> None:
    severities = matrix(rows)
    found = select(severities, budget=20, policy="uniform", audit_share=0.0, seed=seed)
    assert (severities[found.rows, found.reason] > 0).all()


@given(severity_rows, policies, st.data())
def test_a_policy_takes_one_of_a_group_and_nothing_labelled_or_blocked(
    rows: list[list[float]], policy: Policy, data: st.DataObject
) -> None:
    names = st.sampled_from(["card 1", "card 2", None])
    groups = np.array([data.draw(names) for _ in rows], dtype=object)
    labelled = np.array([data.draw(st.booleans()) for _ in rows], dtype=np.bool_)
    blocked = np.array([data.draw(st.booleans()) for _ in rows], dtype=np.bool_)
    found = chosen(matrix(rows), policy, 20, groups=groups, labelled=labelled, blocked=blocked)
    assert not (labelled | blocked)[found].any()
    named = [groups[row] for row in [*found, *np.flatnonzero(labelled)] if groups[row] is not None]
    assert len([groups[row] for row in found if groups[row] is not None]) == len(
        {groups[row] for row in found if groups[row] is not None}
    )
    assert not {groups[row] for row in found if groups[row] is not None} & {
        groups[row] for row in np.flatnonzero(labelled)
    }
    assert len(named) >= len(set(named))


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "uncertainty"])
def test_other_seeds_choose_other_records(policy: Policy) -> None:
    severities = np.ones((200, 2))
    assert chosen(severities, policy, 5, seed=0) != chosen(severities, policy, 5, seed=1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_tenth_of_every_budget_is_an_audit_of_all_records(policy: Policy) -> None:
    severities = np.zeros((400, 2))
    severities[:100, 0] = 1.0
    audits: Counter[bool] = Counter()
    for seed in range(20):
        found = choose(severities, policy, 50, seed=seed)
        assert found.audit.sum() == 5
        assert (found.audit == (found.reason == AUDIT)).all()
        audits.update((found.rows[found.audit] >= 100).tolist())
    assert audits[True] / 100 == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 100))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_reported_probability_is_how_often_a_draw_picks_the_record(policy: Policy) -> None:
    severities = np.array([[5.0, 0], [0.1, 0.2], [0.2, 0], [0, 0.3], [0, 0]])
    trials = rounds(1500, part=5)
    counts: Counter[int] = Counter()
    said: dict[int, float] = {}
    for seed in range(trials):
        found = choose(severities, policy, 1, seed=seed, audit_share=0.2)
        row = int(found.rows[0])
        counts[row] += 1
        if policy != "adaptive":  # its shares are themselves estimated by draws
            assert said.setdefault(row, float(found.probability[0])) == pytest.approx(found.probability[0])
        said[row] = float(found.probability[0])
    assert sum(said.values()) == pytest.approx(1.0, abs=0.02)
    for row, probability in said.items():
        noise = 4.5 * np.sqrt(probability * (1 - probability) / trials) + 0.005
        assert counts[row] / trials == pytest.approx(probability, abs=noise)


def test_uniform_draws_assertions_alike_and_records_by_severity_rank() -> None:
    # Assertion 0 fired on three records, assertion 1 on one: 1/2 · (1, 2, 3)/6 and 1/2.
    severities = np.array([[5.0, 0], [0.1, 0], [0.2, 0], [0, 0.3], [0, 0]])
    expected = {1: 1 / 12, 2: 2 / 12, 0: 3 / 12, 3: 1 / 2}
    for seed in range(50):
        found = select(severities, budget=1, policy="uniform", seed=seed, audit_share=0.0)
        row = int(found.rows[0])
        assert found.probability[0] == pytest.approx(expected[row])
        assert found.reason.tolist() == [int(row == 3)]


def test_random_takes_every_record_alike() -> None:
    trials = rounds(3000, part=5)
    counts = Counter(chosen(np.zeros((5, 2)), "random", 1, seed=seed)[0] for seed in range(trials))
    assert set(counts) == set(range(5))
    assert all(abs(count / trials - 0.2) < 4 * np.sqrt(0.16 / trials) for count in counts.values())
    found = select(np.zeros((5, 2)), budget=1, policy="random", audit_share=0.0)
    assert found.reason.tolist() == [-1]


def test_uncertainty_takes_the_least_sure_first() -> None:
    unsure = np.array([0.1, 0.9, 0.5])
    found = select(np.zeros((3, 1)), budget=2, policy="uncertainty", uncertainty=unsure, audit_share=0.0)
    assert found.rows.tolist() == [1, 2]


def fires(*counted: tuple[int, ...], records: int = 1000) -> SelectionState:
    state = SelectionState()
    for counts in counted:
        state = state.count(records, counts)
    return state


def shares(state: SelectionState, assertions: int, fallback: Any = "random") -> NDArray[np.float64]:
    severities = np.kron(np.eye(assertions), np.ones((60, 1)))  # each fires on 60 records of its own
    found = Counter[int]()
    for seed in range(20):
        picks = select(
            severities, budget=50, policy="bal", state=state, seed=seed, audit_share=0.0, fallback=fallback
        )
        found.update(picks.reason.tolist())
    return np.array([found[code] for code in range(assertions)]) / 1000


def test_bal_is_uniform_in_the_first_round() -> None:
    assert shares(fires((100, 100, 100)), 3) == pytest.approx([1 / 3] * 3, abs=0.05)


def test_bal_draws_by_marginal_reduction_and_explores_with_a_quarter() -> None:
    # r = 0.3, 0.1, 0 (rose): 0.75 · (0.75, 0.25, 0) + 0.25 / 3.
    found = shares(fires((100, 200, 50), (70, 180, 60)), 3)
    assert found == pytest.approx([0.75 * 0.75 + 0.25 / 3, 0.75 * 0.25 + 0.25 / 3, 0.25 / 3], abs=0.05)


def test_bal_counts_fires_per_record() -> None:
    state = SelectionState().count(1000, (100, 100)).count(500, (50, 40))
    assert shares(state, 2) == pytest.approx([0.125, 0.875], abs=0.05)


@pytest.mark.parametrize("fallback", ["random", "uncertainty"])
def test_bal_falls_back_when_no_assertion_fell_by_a_hundredth(fallback: Any) -> None:
    state = fires((1000, 1000), (991, 1000))
    severities = np.zeros((10, 2))
    severities[0, 0] = 1.0
    found = select(
        severities,
        budget=5,
        policy="bal",
        state=state,
        audit_share=0.0,
        fallback=fallback,
        uncertainty=np.arange(10.0),
    )
    assert (found.reason == -1).all()
    if fallback == "uncertainty":
        assert found.rows.tolist() == [9, 8, 7, 6, 5]


def test_badge_spreads_over_what_differs() -> None:
    # Three clusters of equal answers, one far larger than the others.
    centres = np.eye(3) * 10
    codes = np.repeat([0, 1, 2], [300, 5, 5])
    found = select(
        np.zeros((310, 1)),
        budget=3,
        policy="badge",
        embeddings=centres[codes],
        probabilities=np.full((310, 2), 0.5),
        audit_share=0.0,
    )
    assert sorted(codes[found.rows].tolist()) == [0, 1, 2]


def test_gradient_distances_are_those_of_the_outer_products() -> None:
    from outrider.assertions.selection.badge import Gradients

    rng = np.random.default_rng(0)
    h, p = rng.normal(size=(20, 5)), rng.dirichlet(np.ones(4), 20)
    a = p.copy()
    a[np.arange(20), p.argmax(axis=1)] -= 1
    outer = np.einsum("id,ic->idc", h, a).reshape(20, -1)
    expected = ((outer - outer[7]) ** 2).sum(axis=1)
    assert Gradients(h, p).squared_distance(7) == pytest.approx(expected, abs=1e-4)


def test_adaptive_buys_where_labels_found_errors() -> None:
    severities = np.kron(np.eye(3), np.ones((200, 1)))
    severities = np.vstack([severities, np.zeros((400, 3))])
    state = SelectionState().observe(severities)
    state = state.bought(severities[:20], np.ones(20)).bought(severities[200:220], np.zeros(20))
    state = state.bought(severities[400:420], np.arange(20) % 2).observe(severities)
    found = select(severities, budget=100, state=state, audit_share=0.0)
    count = Counter(found.reason.tolist())
    assert count[0] > 40 > count[1] + count[2]
    assert 30 < count[-1] < 70  # half of the draws stay open


def test_adaptive_believes_assertions_that_agree_before_there_are_labels() -> None:
    rng = np.random.default_rng(0)
    wrong = rng.random(4000) < 0.05
    good = [wrong & (rng.random(4000) < 0.7) for _ in range(2)]
    noise = rng.random(4000) < 0.05
    severities = np.column_stack([*good, noise]).astype(float)
    reasons = Counter(select(severities, budget=100, audit_share=0.0).reason.tolist())
    assert reasons[2] < 20 < min(reasons[0], reasons[1])
    assert reasons[-1] == 0


def test_adaptive_does_not_starve_an_assertion_on_inputs() -> None:
    severities = np.kron(np.eye(2), np.ones((100, 1)))
    state = SelectionState().observe(severities).bought(severities[[0, 1, 100, 101]], [1, 1, 0, 1])
    faded = severities.copy()
    faded[150:] = 0.0  # the other one's fires fall, the input's never do
    reasons = Counter(select(severities, budget=40, state=state.observe(faded)).reason.tolist())
    assert reasons[0] >= 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"policy": "best"}, "badge, uncertainty, random, got 'best'"),
        ({"budget": -1}, "budget must be >= 0, got -1"),
        ({"audit_share": 2.0}, r"audit_share must be in \[0, 1\], got 2.0"),
        ({"policy": "uncertainty"}, r"needs uncertainty= of shape \(3,\)"),
        ({"policy": "uncertainty", "uncertainty": np.zeros(2)}, r"shape \(3,\)"),
        ({"policy": "badge"}, "needs embeddings= and probabilities="),
        ({"groups": np.array(["a"], dtype=object)}, "one value per record, 3, got 1"),
    ],
)
def test_wrong_arguments_say_what_was_expected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select(np.zeros((3, 1)), **({"budget": 1} | wrong))


def test_a_state_survives_json_and_gives_the_same_choice() -> None:
    severities = np.random.default_rng(0).random((50, 3)) - 0.5
    state = SelectionState().observe(severities).bought(severities[:5], [1, 0, 1, 0, 1]).observe(severities)
    again = SelectionState.from_json(state.to_json())
    assert again == state
    for policy in ("bal", "adaptive"):
        first = select(severities, budget=9, policy=policy, state=state)
        assert select(severities, budget=9, policy=policy, state=again).rows.tolist() == first.rows.tolist()


def test_a_state_refuses_another_number_of_assertions() -> None:
    with pytest.raises(ValueError, match="knows 2 assertions, got 3"):
        SelectionState().count(5, (1, 2)).count(5, (1, 2, 3))
    with pytest.raises(ValueError, match="observe"):
        SelectionState().bought(np.zeros((1, 2)), [True])
