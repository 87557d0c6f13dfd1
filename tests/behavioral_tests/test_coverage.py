"""How often the statistics are right, by simulation with fixed seeds.

Sizes and rates are round numbers, the bounds are what the docstrings promise.
"""

from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import binom

from outrider.behavioral_tests.running import FIRST_CASES
from outrider.behavioral_tests.statistics import (
    decided,
    holm,
    mcnemar_p,
    paired_difference,
    rate_bounds,
    wilson_interval,
)
from tests.soak import at_most, rounds

RUNS = rounds(2000)


def watch(
    severity: np.ndarray[tuple[int], np.dtype[np.float64]], tolerance: float, first: int
) -> tuple[bool | None, int, tuple[float, float]]:
    """Verdict on cases in the given order, how many it took, and the bounds when it stopped."""
    asked, verdict = 0, None
    while asked < len(severity) and verdict is None:
        asked += max(first, asked // 2)
        seen = severity[:asked]
        asked = len(seen)
        counts = int(np.nansum(seen)), int((~np.isnan(seen)).sum())
        possible = len(severity) - (asked - counts[1])
        verdict = decided(*counts, possible, tolerance=tolerance)
    return verdict, asked, rate_bounds(*counts, possible, tolerance=tolerance)


@pytest.mark.parametrize(
    ("cases", "failing", "absent", "tolerance", "first"),
    [
        (300, 15, 0, 0.05, FIRST_CASES),  # as many failures as are allowed: the hardest to pass
        (300, 16, 0, 0.05, FIRST_CASES),  # one more: the hardest to refuse
        (300, 16, 0, 0.05, 5),  # somebody looks all the time
        (400, 60, 100, 0.2, 20),  # some are not applicable, which nobody knows before they are asked
        (400, 61, 100, 0.2, 20),
        (200, 101, 0, 0.5, 10),
    ],
)
def test_a_verdict_given_early_is_right(
    cases: int, failing: int, absent: int, tolerance: float, first: int
) -> None:
    rng = np.random.default_rng(20)
    population = np.zeros(cases)
    population[:failing] = 1.0
    population[failing : failing + absent] = np.nan
    rate = failing / (cases - absent)
    wrong = missed = 0
    for _ in range(RUNS):
        verdict, _, (low, high) = watch(rng.permutation(population), tolerance, first)
        wrong += verdict is not (rate <= tolerance)
        missed += not low <= rate <= high
    assert wrong / RUNS <= at_most(0.05, RUNS)
    assert missed / RUNS <= at_most(0.05, RUNS)


def test_looking_all_the_time_at_a_wilson_interval_would_be_wrong_more_often() -> None:
    """The simulation can see a fault: a rule that ignores the looks breaks the promise."""
    rng = np.random.default_rng(21)
    population = np.zeros(2000)
    population[:400] = 1.0
    wrong, runs = 0, rounds(300, part=3)
    for _ in range(runs):
        failures = np.cumsum(rng.permutation(population))
        for asked in range(5, 2000, 5):
            low, high = wilson_interval(int(failures[asked - 1]), asked)
            if high <= 0.2 or low > 0.2:
                wrong += low > 0.2
                break
    assert wrong / runs > 0.05 + 3 * np.sqrt(0.05 * 0.95 / min(runs, RUNS))


def test_wilson_covers() -> None:
    """Exact coverage, summed over all counts, at many true rates and sizes."""
    rates = np.linspace(0.001, 0.999, 333)
    average, least = [], []
    for cases in (10, 30, 100, 300, 1000):
        low, high = wilson_interval(np.arange(cases + 1)[:, None], cases)
        inside = (low <= rates) & (rates <= high)  # (counts, rates)
        chance = binom.pmf(np.arange(cases + 1)[:, None], cases, rates)
        coverage = (inside * chance).sum(axis=0)
        average.append(coverage.mean())
        least.append(coverage.min())
    assert min(average) >= 0.94
    # Wilson's dips where the rate is about 1 / cases are known (Brown, Cai and DasGupta 2001).
    assert 0.85 <= min(least) < 0.86


@pytest.mark.parametrize("cases", [20, 60, 200, 1000])
def test_the_paired_difference_covers(cases: int) -> None:
    """Exact coverage, summed over all pairs of counts, on a grid of true chances."""
    chances = [(one, other) for one in (0.01, 0.05, 0.15, 0.3) for other in (0.01, 0.05, 0.15, 0.3)]
    most = min(cases, 450)
    counts = np.arange(most + 1)
    only, others = (each.ravel() for each in np.meshgrid(counts, counts, indexing="ij"))
    fits = only + others <= cases
    only, others = only[fits], others[fits]
    z = NormalDist().inv_cdf(0.975)
    ones, twos = (only + 1) / (cases + 2), (others + 1) / (cases + 2)
    half = z * np.sqrt((ones + twos - (twos - ones) ** 2) / (cases + 2))
    sample = np.random.default_rng(3).integers(len(only), size=50)
    for pair in sample:  # the vectorised form above is the function's
        assert paired_difference(int(only[pair]), int(others[pair]), cases) == pytest.approx(
            (max(-1.0, twos[pair] - ones[pair] - half[pair]), min(1.0, twos[pair] - ones[pair] + half[pair]))
        )
    coverage = []
    for one, other in chances:
        total = binom.logpmf(only, cases, one) + binom.logpmf(others, cases - only, other / (1 - one))
        inside = np.abs((other - one) - (twos - ones)) <= half
        coverage.append(np.exp(total[inside]).sum() / np.exp(total).sum())
    assert min(coverage) >= 0.94


def test_mcnemar_keeps_its_level() -> None:
    """Exact: for every number of cases that only one model failed."""
    for discordant in range(1, 200):
        chance = binom.pmf(np.arange(discordant + 1), discordant, 0.5)
        alarm = [mcnemar_p(one, discordant - one) <= 0.05 for one in range(discordant + 1)]
        assert chance[alarm].sum() <= 0.05


def test_holm_keeps_the_level_of_the_whole_matrix() -> None:
    """Thirty dependent tests of two equal models: some verdict is wrong in at most 5 % of the matrices."""
    rng = np.random.default_rng(4)
    p_of = [mcnemar_p(one, 200 - one) for one in range(201)]
    alarms = 0
    for _ in range(RUNS):
        shared = rng.normal(size=200)  # models err together on some cases, so tests depend on each other
        favour = (0.5 * shared + rng.normal(size=(30, 200))) > 0
        ones = favour.sum(axis=1)
        alarms += min(holm([p_of[one] for one in ones])) <= 0.05
    assert alarms / RUNS <= at_most(0.05, RUNS)
