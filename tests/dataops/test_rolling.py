"""Rolling comparison of versions: against scipy, and what must hold whatever the losses are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from outrider.behavioral_tests.statistics import holm
from outrider.dataops.improvement.gate import Evidence, Policy, decide
from outrider.dataops.improvement.rolling import LOOKS, VersionLosses, compare_versions, least_rows

Losses = NDArray[np.float64]


def apart(version: str, champion: Losses, own: Losses) -> VersionLosses:
    """Rows that are each of its own entity."""
    n = len(own)
    return VersionLosses(version, champion, own, np.arange(1, n + 1), np.zeros(n, dtype=np.int64))


def errors(seed: int, rows: int, rate: float) -> Losses:
    return (np.random.default_rng(seed).random(rows) < rate).astype(float)


@pytest.mark.parametrize("seed", range(5))
def test_p_values_are_those_of_the_exact_sign_test_over_all_versions_and_looks(seed: int) -> None:
    champion = errors(seed, 400, 0.3)
    own = {str(at): errors(100 * seed + at, 400, 0.2 + at / 50) for at in range(4)}
    found = compare_versions([apart(name, champion, one) for name, one in own.items()], rows=400, p=0.01)
    plain = []
    for name, one in own.items():
        better, worse = int((champion > one).sum()), int((champion < one).sum())
        assert (found.of(name).better, found.of(name).worse) == (better, worse)
        plain.append(binomtest(better, better + worse, 0.5, alternative="greater").pvalue)
    expected = [min(1.0, LOOKS * p) for p in holm(plain)]
    assert [one.p for one in found.standings] == pytest.approx(expected, rel=1e-9)


def test_versions_of_the_greatest_gain_win_and_real_losses_count_by_hours() -> None:
    rng = np.random.default_rng(3)
    champion = rng.gamma(2.0, 1.0, 300)
    near, far = champion * 0.95, champion * 0.5
    found = compare_versions([apart("near", champion, near), apart("far", champion, far)], rows=300, p=0.01)
    assert found.winner == "far"
    assert found.of("near").is_better
    hour = np.zeros(300, dtype=np.int64)
    one_hour = VersionLosses("far", champion, far, np.zeros(300, dtype=np.int64), hour)
    assert compare_versions([one_hour], rows=300, p=0.01).of("far").hours == 1


def test_a_version_better_in_most_hours_and_worse_on_average_does_not_win() -> None:
    champion = np.ones(200)
    own = np.where(np.arange(200) < 20, 100.0, 0.9)
    found = compare_versions([apart("2", champion, own)], rows=200, p=0.01).of("2")
    assert found.p < 0.01
    assert not found.is_better


def test_only_the_latest_rows_count_and_too_few_compare_nothing() -> None:
    champion, own = np.ones(1000), np.zeros(1000)
    own[-400:] = 2.0
    assert compare_versions([apart("2", champion, own)], rows=400, p=0.01).winner is None
    few = least_rows(400) - 1
    found = compare_versions([apart("2", champion[:few], np.zeros(few))], rows=400, p=0.01)
    assert found.winner is None
    assert not found.of("2").is_compared
    assert "is compared from 100 on" in found.sentence("2")


def test_rows_without_a_judgeable_answer_of_the_champion_are_left_out_and_a_versions_own_count() -> None:
    champion, own = np.ones(400), np.zeros(400)
    champion[:100] = np.nan
    own[-50:] = np.inf
    found = compare_versions([apart("2", champion, own)], rows=400, p=0.01).of("2")
    assert (found.rows, found.better, found.worse, found.is_better) == (300, 250, 50, False)


losses = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=60)


@given(losses, st.integers(1, 60))
def test_one_row_never_promotes_and_fewer_rows_are_no_more_certain(
    rows: list[tuple[float, float]], count: int
) -> None:
    champion, own = np.array(rows).T
    assert compare_versions([apart("2", champion[:1], own[:1])], rows=2, p=0.1).winner is None
    best = apart("2", np.ones(count), np.zeros(count))
    fewer = apart("2", np.ones(count + 1), np.zeros(count + 1))
    whole = compare_versions([fewer], rows=4, p=0.01).of("2")
    assert whole.p <= compare_versions([best], rows=4, p=0.01).of("2").p


@given(losses, st.floats(0, 1))
def test_order_of_versions_and_rows_changes_nothing_and_less_loss_never_hurts(
    rows: list[tuple[float, float]], less: float
) -> None:
    champion, own = np.array(rows).T
    pairs = [apart("2", champion, own), apart("3", champion, own[::-1].copy())]
    found = compare_versions(pairs, rows=len(rows), p=0.1)
    turned = compare_versions(pairs[::-1], rows=len(rows), p=0.1)
    assert {one.version: one for one in found.standings} == {one.version: one for one in turned.standings}
    assert found.winner == turned.winner
    order = np.random.default_rng(0).permutation(len(rows))
    mixed = compare_versions([apart("2", champion[order], own[order])], rows=len(rows), p=0.1).of("2")
    alone = compare_versions([apart("2", champion, own)], rows=len(rows), p=0.1).of("2")
    assert (mixed.better, mixed.worse, mixed.p) == (alone.better, alone.worse, alone.p)
    lower = compare_versions([apart("2", champion, own * less)], rows=len(rows), p=0.1).of("2")
    assert lower.p <= alone.p
    assert lower.is_better or not alone.is_better


def test_the_gate_passes_what_is_shown_to_be_better_refuses_it_on_all_rows_and_waits_for_more() -> None:
    champion, own = errors(1, 400, 0.4), errors(2, 400, 0.2)
    policy = Policy(rolling_rows=400, rolling_p=0.01)

    def outcome(old: Losses, new: Losses, judged: str = "2") -> str:
        found = compare_versions([apart("2", old, new)], rows=400, p=0.01, champion="1")
        return decide(policy, Evidence(rolling=replace(found, judged=judged))).outcome

    assert outcome(champion, own) == "passed"
    assert outcome(own, champion) == "failed"
    assert outcome(champion, champion) == "failed"
    assert outcome(champion[:300], champion[:300]) == "undecided"
    assert outcome(champion, own, judged="3") == "undecided"
