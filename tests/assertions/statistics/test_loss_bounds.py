import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq, minimize_scalar

from outrider.assertions.statistics.loss_bounds import excess, relative_excess


def outcomes(lost: int, won: int, rows: int) -> tuple[Any, Any]:
    """Losses of champion and candidate: the candidate alone loses ``lost`` rows."""
    champion, candidate = np.zeros(rows), np.zeros(rows)
    candidate[:lost] = 1.0
    champion[lost : lost + won] = 1.0
    return champion, candidate


def score(lost: int, won: int, rows: int, difference: float) -> float:
    """Score statistic of a difference, with the likelihood's maximum found by search."""

    def unlikely(share: float) -> float:
        """Of P(won) = share and P(lost) = share + difference."""
        shares = share + difference, share, 1.0 - 2.0 * share - difference
        counts = lost, won, rows - lost - won
        return -sum(n * math.log(max(p, 1e-300)) for n, p in zip(counts, shares, strict=True) if n)

    low, high = max(0.0, -difference), (1.0 - difference) / 2.0
    share = minimize_scalar(unlikely, bounds=(low, high), method="bounded", options={"xatol": 1e-13}).x
    variance = (2.0 * share + difference - difference**2) / rows
    return ((lost - won) / rows - difference) / math.sqrt(max(variance, 1e-300))


@pytest.mark.parametrize(("lost", "won", "rows"), [(3, 8, 100), (12, 5, 60), (0, 6, 80), (25, 25, 400)])
@pytest.mark.parametrize("error", [0.05, 0.003])
def test_bounds_of_independent_rows_are_the_score_bounds_or_wider(
    lost: int, won: int, rows: int, error: float
) -> None:
    found = excess(*outcomes(lost, won, rows), error=error)
    quantile = stats.t.ppf(1 - error, rows - 1)
    upper = brentq(lambda d: score(lost, won, rows, d) + quantile, found.value + 1e-6, 0.999)
    difference = np.zeros(rows)
    difference[:lost], difference[lost : lost + won] = 1.0, -1.0
    freedom = 2 / (2 / (rows - 1) + max(stats.kurtosis(difference), 0.0) / rows)
    student = found.value + stats.t.ppf(1 - error, freedom) * difference.std(ddof=1) / math.sqrt(rows)
    assert found.high == pytest.approx(max(upper, student), abs=1e-6)
    turned = excess(*outcomes(won, lost, rows), error=error)
    assert (turned.low, turned.value) == pytest.approx((-found.high, -found.value))


def test_nothing_seen_bounds_by_the_rule_of_three() -> None:
    found = excess(*outcomes(0, 0, 300), error=0.05)
    assert (found.value, found.low) == (0.0, -found.high)
    assert found.high == pytest.approx(stats.norm.ppf(0.95) ** 2 / 300, rel=0.03)
    assert excess(*outcomes(0, 0, 1)).high == 1.0
    assert excess(*outcomes(0, 0, 0)).rows == 0


def test_rows_of_one_entity_count_for_less_the_more_so_the_fewer_differ() -> None:
    rng = np.random.default_rng(0)
    entities = np.arange(2000) % 20
    spread = (rng.random((2, 2000)) < 0.2).astype(float)
    alone, together = (excess(*spread, entities=e) for e in ((), entities))
    assert alone.high < together.high < 2.5 * alone.high
    rare = outcomes(0, 0, 2000)
    assert excess(*rare, entities=entities).high > 20 * excess(*rare).high
    bunched = np.repeat((np.arange(20) < 4).astype(float), 100), np.repeat((np.arange(20) >= 16) * 1.0, 100)
    kept = excess(*bunched, entities=np.repeat(np.arange(20), 100))
    spread_of_entities = np.std([1] * 4 + [0] * 12 + [-1] * 4, ddof=1) / math.sqrt(20)
    assert kept.high > stats.t.ppf(0.95, 19) * spread_of_entities - 1e-9
    assert excess(*spread, entities=["e"] * 2000).high == 1.0


def test_three_entities_that_gain_all_do_not_carry_a_bound() -> None:
    champion = np.concatenate([np.zeros(750), np.ones(252)])
    few = np.concatenate([np.arange(750) % 50, 50 + np.arange(252) % 3])
    many = np.concatenate([np.arange(750) % 50, np.arange(252) % 17])
    found = [excess(champion, np.zeros(1002), entities=entities, error=0.02) for entities in (few, many)]
    assert [one.value < -0.2 for one in found] == [True, True]
    assert [one.high < 0.0 for one in found] == [False, True]


def test_rows_without_an_entity_are_entities_of_their_own() -> None:
    losses = outcomes(5, 9, 200)
    assert excess(*losses, entities=[None] * 200) == excess(*losses)
    assert excess(*losses, entities=["a", *[None] * 199]) == excess(*losses)


def drawn(rng: Any, groups: int, rows: int, lost: float, won: float, correlation: float) -> Any:
    """Numbers of rows that one of both alone loses, of entities that correlate."""
    shares = np.broadcast_to([lost, won, 1 - lost - won], (groups, 3))
    if correlation:
        shares = rng.dirichlet(np.maximum(shares[0] * (1 / correlation - 1), 1e-9), size=groups)
    kinds = [rng.choice(3, size=rows // groups, p=share) for share in shares]
    return np.concatenate(kinds), np.repeat(np.arange(groups), rows // groups)


@pytest.mark.parametrize(("groups", "correlation"), list(product((5, 10, 50), (0.0, 0.1, 0.5))))
def test_a_candidate_at_the_margin_is_seldom_bounded_below_it(groups: int, correlation: float) -> None:
    rng = np.random.default_rng(groups)
    for lost, won in ((0.02, 0.0), (0.06, 0.04)):
        wrong = 0
        for _ in range(200):
            kind, entities = drawn(rng, groups, 500, lost, won, correlation)
            wrong += excess(kind == 1, kind == 0, entities=entities).high <= 0.02
        assert wrong <= stats.binom.ppf(0.9999, 200, 0.05)


def test_relative_bounds_are_those_of_students_test_at_the_share_they_say() -> None:
    rng = np.random.default_rng(1)
    old, new = rng.gamma(2.0, size=(2, 400))
    found = relative_excess(old, new, error=0.05)
    assert found.value == pytest.approx(new.mean() / old.mean() - 1.0)

    def upper(values: Any) -> float:
        worst = max(values.max() - values.mean(), 0.0) / 401
        spread = values.std(ddof=1) / math.sqrt(400)
        return float(values.mean() + stats.t.ppf(0.95, 399) * spread + worst)

    assert upper(new - (1 + found.high) * old) == pytest.approx(0.0, abs=1e-3)
    assert upper((1 + found.low) * old - new) == pytest.approx(0.0, abs=1e-3)


def test_a_unit_is_no_matter_and_a_constant_answer_is_bounded_away() -> None:
    rng = np.random.default_rng(2)
    old, new = rng.gamma(2.0, size=(2, 300))
    found, thousandfold = relative_excess(old, new), relative_excess(1000 * old, 1000 * new)
    assert (found.low, found.high) == pytest.approx((thousandfold.low, thousandfold.high))
    far = relative_excess(np.square(old), np.square(new + 1e4))
    assert far.low > 1e5
    assert relative_excess(np.zeros(50), np.ones(50)).value == math.inf
    assert relative_excess(np.zeros(50), np.zeros(50)).value == 0.0


def test_rows_needed_are_those_of_the_fixed_size_test() -> None:
    found = excess(*outcomes(50, 50, 1000))
    fixed = 0.1 * ((1.645 + 1.282) / 0.02) ** 2
    assert 1.0 <= found.rows_needed(0.02, error=0.05) / fixed < 1.15
    nothing = excess(*outcomes(0, 0, 1000))
    needed = nothing.rows_needed(0.02, error=0.05)
    assert excess(*outcomes(0, 0, needed)).high <= 0.02 < excess(*outcomes(0, 0, needed // 2)).high


@pytest.mark.parametrize("wild", [1e308, 1e200, 1e12])
def test_losses_that_no_sum_can_hold_are_bounded_all_the_same(wild: float) -> None:
    usual = np.random.default_rng(0).random(500)
    few = np.where(np.arange(500) < 3, wild, usual)
    assert relative_excess(usual, np.full(500, wild), error=0.024).low > 1.0
    assert relative_excess(usual, few, error=0.024).high > 1.0
    assert relative_excess(np.full(500, wild), usual, error=0.024).high < -0.9
    twins = relative_excess(np.full(500, wild), np.full(500, wild), error=0.024)
    assert twins.value == 0.0
    assert twins.high == pytest.approx(0.0, abs=1e-6)


def differing(rng: Any, entities: int, rows: int, lost: float, won: float) -> Any:
    """Losses of both by row, and entities of many rows each whose rows err apart."""
    kinds = rng.choice(3, size=entities * rows, p=[lost, won, 1 - lost - won])
    return (kinds == 1) * 1.0, (kinds == 0) * 1.0, np.repeat(np.arange(entities), rows)


@pytest.mark.parametrize("rows", [20, 60, 200])
def test_equal_candidates_that_seldom_differ_pass_with_three_times_the_rows_that_suffice(rows: int) -> None:
    rng = np.random.default_rng(rows)
    passed = 0
    for _ in range(40):
        *losses, entities = differing(rng, 1800 // rows, rows, 0.01, 0.01)
        passed += excess(*losses, entities=entities, error=0.0243).high <= 0.02
    assert passed >= 32


def test_few_differing_rows_are_taken_for_correlated() -> None:
    entities = np.repeat(np.arange(30), 20)
    some = [excess(*outcomes(lost, 0, 600), entities=entities) for lost in (0, 1)]
    assert min(one.high - one.value for one in some) > 0.02
    one_carries_all = np.zeros(600), (entities == 0) * 1.0
    assert excess(*one_carries_all, entities=entities).high > 0.1


def by_days(rng: Any, days: int, rows: int, lost: float, won: float, scatter: float) -> Any:
    """Losses of lone rows by day, and their times; rates of a day differ by a factor."""
    day = np.arange(rows) % days
    lose, win = (
        np.exp(scatter * rng.normal(size=days) - scatter**2 / 2)[day] * share for share in (lost, won)
    )
    drawn = rng.random(rows)
    alone, other = drawn < lose, (drawn >= lose) & (drawn < lose + win)
    times = np.datetime64("2026-01-05T08:00", "us") + day * np.timedelta64(1, "D")
    return other * 1.0, alone * 1.0, times


def test_days_that_scatter_seldom_pass_a_candidate_at_the_margin() -> None:
    rng = np.random.default_rng(3)
    wrong = np.zeros(2)
    for _ in range(120):
        *losses, times = by_days(rng, 10, 1500, 0.15, 0.13, 0.4)
        found = excess(*losses, error=0.0243), excess(*losses, times=times, error=0.0243)
        wrong += [one.high <= 0.02 for one in found]
        assert found[1].stretch == ""
    assert wrong[0] > stats.binom.ppf(0.999, 120, 0.05) >= wrong[1]


def test_too_few_stretches_of_time_change_no_bound_but_are_named() -> None:
    rng = np.random.default_rng(4)
    *losses, times = by_days(rng, 3, 600, 0.02, 0.02, 0.0)
    found = excess(*losses, times=times)
    assert (found.low, found.high) == (excess(*losses).low, excess(*losses).high)
    assert found.stretch == "2026-01-05 to 2026-01-07, 3 days"


def test_bounds_of_relative_losses_widen_with_days_that_scatter() -> None:
    rng = np.random.default_rng(5)
    day = np.arange(2000) % 10
    old, new = rng.gamma(2.0, size=(2, 2000))
    new = new * np.exp(0.3 * rng.normal(size=10))[day]
    times = np.datetime64("2026-01-05", "us") + day * np.timedelta64(1, "D")
    alone, by_day = relative_excess(old, new), relative_excess(old, new, times=times)
    assert by_day.width > 2 * alone.width


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_relative_excess_refuses_losses_that_are_no_numbers(loss: float) -> None:
    with pytest.raises(ValueError, match="finite numbers expected"):
        relative_excess(np.ones(3), np.array([1.0, loss, 1.0]))
