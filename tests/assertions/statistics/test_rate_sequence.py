import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.assertions.statistics.bets import BETS, CAPS, HEAVIEST
from outrider.assertions.statistics.rate_sequence import log_wealth
from outrider.behavioral_tests.statistics import RateSequence, wilson_interval
from tests.soak import at_most, rounds

RUNS, STEPS, EVERY = rounds(2000), 20_000, 100
REACHED = math.log(40)  # half of the error of 95 % on each side


def watch(
    rates: NDArray[np.float64], weights: Sequence[float], *, null: float, seed: int, runs: int = RUNS
) -> tuple[float, float]:
    """Share of streams whose lower, and whose upper, bound ever passes ``null``.

    ``rates`` and (in a cycle) ``weights`` are those of each question, in order; looked at after every 100.
    """
    rng = np.random.default_rng(seed)
    classes = np.unique(weights)
    of = np.searchsorted(classes, np.resize(np.asarray(weights), len(rates)))
    passed = np.zeros((runs, len(classes)), dtype=np.int64)
    failed = passed.copy()
    low, high = np.zeros(runs, dtype=bool), np.zeros(runs, dtype=bool)
    for start in range(0, len(rates), EVERY):
        part = slice(start, start + EVERY)
        for one in range(len(classes)):
            here = rates[part][of[part] == one]
            # sorted into equal rates, so that one binomial draw stands for many questions
            for rate, n in zip(*np.unique(here, return_counts=True), strict=True):
                found = rng.binomial(n, rate, runs)
                failed[:, one] += found
                passed[:, one] += n - found
        low |= log_wealth(passed, failed, classes, null) >= REACHED
        high |= log_wealth(failed, passed, classes, 1 - null) >= REACHED
    return float(low.mean()), float(high.mean())


@pytest.mark.parametrize(
    ("rate", "weights"), [(0.01, (20.0,)), (0.05, (1.0, 1.0, 2.0, 8.0, 64.0, 64.0)), (0.3, (4.0, 512.0))]
)
def test_at_the_boundary_watched_for_ever_hardly_any_stream_alarms(
    rate: float, weights: Sequence[float]
) -> None:
    low, high = watch(np.full(STEPS, rate), weights, null=rate, seed=1)
    assert low <= at_most(0.025, RUNS)
    assert low + high <= at_most(0.05, RUNS)  # so coverage at all times together is at least 95 %


def test_a_rate_that_moves_below_the_boundary_alarms_no_more_often_than_one_at_it() -> None:
    rates = np.where(np.arange(STEPS) % 1000 < 500, 0.05, 0.02)
    low, _ = watch(rates, (1.0, 16.0), null=0.05, seed=2)
    assert low <= at_most(0.025, RUNS)


def test_weights_that_go_with_the_rate_leave_the_weighted_mean_true() -> None:
    # by night one in five fails and everybody is asked, by day nobody fails and few are asked
    counts = np.array([[200, 800]]) * np.arange(1, 40)[:, None]
    failed = np.stack([counts[:, 0] // 5, np.zeros(39, dtype=np.int64)], axis=1)
    for passed, fails in zip(counts - failed, failed, strict=True):
        seen = RateSequence.of(
            np.repeat([True, False, False], [fails[0], passed[0], passed[1]]),
            np.repeat([1.0, 1.0, 64.0], [fails[0], passed[0], passed[1]]),
        )
        low, high = seen.interval()
        assert low <= seen.rate <= high
        assert seen.rate == pytest.approx(0.2 * 200 / (200 + 64 * 800))
        assert not seen.exceeds(0.01)


def test_a_naive_interval_looked_at_again_and_again_alarms_far_more_often() -> None:
    rng = np.random.default_rng(3)
    runs, steps = 400, 3000
    failed = np.cumsum(rng.random((runs, steps)) < 0.05, axis=1, dtype=np.int64)
    looks = np.arange(20, steps, 20)
    naive = np.zeros(runs, dtype=bool)
    sure = np.zeros(runs, dtype=bool)
    for n in looks.tolist():
        at = failed[:, n - 1]
        naive |= wilson_interval(at, n)[0] > 0.05
        sure |= log_wealth((n - at)[:, None], at[:, None], np.ones(1), 0.05) >= REACHED
    assert naive.mean() > 0.2
    assert sure.mean() <= 0.025


def test_a_doubled_rate_alarms_within_twice_the_questions_that_a_bet_on_it_needs() -> None:
    rng = np.random.default_rng(4)
    runs, tolerance, rate = 300, 0.05, 0.1
    failed = np.cumsum(rng.random((runs, 2000)) < rate, axis=1, dtype=np.int64)
    at = np.full(runs, np.inf)
    for n in range(20, 2001, 20):
        k = failed[:, n - 1 : n]
        hit = log_wealth(n - k, k, np.array([32.0]), tolerance) >= REACHED
        at[hit & np.isinf(at)] = n
    # who knew the true rate would bet on it and gain the divergence with every question
    divergence = rate * math.log(rate / tolerance) + (1 - rate) * math.log((1 - rate) / (1 - tolerance))
    assert np.median(at) <= 2.2 * REACHED / divergence
    assert np.isfinite(at).all()


def answers(draw: st.DrawFn, n: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    failed = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    weight = draw(st.lists(st.sampled_from([1.0, 1.3, 20.0, 1e9]), min_size=n, max_size=n))
    return np.array(failed, dtype=np.bool_), np.array(weight)


@given(st.data(), st.integers(0, 40))
def test_cuts_and_order_change_nothing(data: st.DataObject, n: int) -> None:
    failed, weight = data.draw(st.composite(answers)(n))
    whole = RateSequence.of(failed, weight)
    cut = data.draw(st.integers(0, n))
    order = np.array(data.draw(st.permutations(range(n))), dtype=np.intp)
    parts = RateSequence.of(failed[order[:cut]], weight[order[:cut]])
    parts += RateSequence.of(failed[order[cut:]], weight[order[cut:]])
    assert parts.to_dict() == whole.to_dict()
    assert RateSequence.from_dict(whole.to_dict()).to_dict() == whole.to_dict()
    assert (whole.asked, whole.failed) == (n, int(failed.sum()))
    low, high = whole.interval()
    assert 0.0 <= low <= high <= 1.0
    if n:
        assert low - 1e-9 <= whole.rate <= high + 1e-9
    assert whole.exceeds(max(0.0, low * 0.99)) == (low > 0)
    assert not whole.exceeds(min(0.999, low * 1.01 + 1e-6))


def test_the_evidence_is_that_of_a_slow_obvious_loop() -> None:
    answered = [(True, 2.0), (False, 16.0), (True, 16.0), (False, 1.0), (True, 2.0)]
    rate, fortune = 0.07, 0.0
    for cap in CAPS:
        for bet in BETS:
            product = 1.0
            for has_failed, weight in answered:
                product *= 1 + bet / cap * weight * (has_failed - rate) / rate if weight <= cap else 0.0
            fortune += product / (len(CAPS) * len(BETS))
    passed, failed = np.array([1, 0, 1]), np.array([0, 2, 1])
    assert log_wealth(passed, failed, np.array([1.0, 2.0, 16.0]), rate) == pytest.approx(math.log(fortune))


def test_bounds_at_the_ends() -> None:
    nothing = RateSequence()
    assert (nothing.rate, nothing.interval(), nothing.exceeds(0.0)) == (0.0, (0.0, 1.0), False)
    one = RateSequence.of(np.array([True]), np.array([5.0]))
    assert one.exceeds(0.0)  # nothing is tolerated
    assert not one.exceeds(0.01)
    assert one.interval()[1] == 1.0
    clean = RateSequence.of(np.zeros(3000, dtype=np.bool_), np.full(3000, HEAVIEST * 10))
    low, high = clean.interval()
    assert low == 0.0
    assert high < 0.005


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="one positive weight per answer"):
        RateSequence.of(np.array([True]), np.array([0.0]))
    with pytest.raises(ValueError, match="confidence must lie between 0 and 1, got 1"):
        RateSequence().interval(1.0)
