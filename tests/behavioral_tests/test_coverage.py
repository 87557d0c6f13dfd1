"""How often the statistics are right, by simulation with fixed seeds.

Nothing here is tuned: sizes and rates are round numbers, and the bounds are what the docstrings promise less
three standard errors of the simulation.
"""

import numpy as np
import pytest
from scipy.stats import binom

from outrider.behavioral_tests.running import FIRST_CASES
from outrider.behavioral_tests.statistics import decided, rate_bounds, wilson_interval

RUNS = 2000
ERROR = 3 * np.sqrt(0.05 * 0.95 / RUNS)


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
    assert wrong / RUNS <= 0.05
    assert missed / RUNS <= 0.05


def test_looking_all_the_time_at_a_wilson_interval_would_be_wrong_more_often() -> None:
    """The simulation can see a fault: a rule that ignores the looks breaks the promise."""
    rng = np.random.default_rng(21)
    population = np.zeros(300)
    population[:16] = 1.0
    wrong = 0
    for _ in range(500):
        failures = np.cumsum(rng.permutation(population))
        for asked in range(20, 300, 5):
            low, high = wilson_interval(int(failures[asked - 1]), asked)
            if high <= 0.05 or low > 0.05:
                wrong += high <= 0.05
                break
    assert wrong / 500 > 0.08
