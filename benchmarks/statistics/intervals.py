"""Coverage of the 95 % intervals of rates: exact where counts can be summed over, else simulated.

Wilson's interval and Bonett and Price's of a paired difference are summed over every count; those of weighted
shares and of differences between groups are simulated as docs/fairness.md describes them.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, multinomial

from benchmarks.figure import Figure
from outrider.assertions.statistics.group_rates import Sums, shares
from outrider.behavioral_tests.statistics import paired_difference, wilson_interval

Floats = NDArray[np.float64]
LEVEL = 0.95
RUNS, ROWS = 20_000, 100
PAIRED_CASES = (20, 50, 100, 1000)


def wilson_coverage(cases: int, rates: Floats) -> Floats:
    """Exact coverage at each true rate."""
    counts = np.arange(cases + 1)
    low, high = wilson_interval(counts[:, None], cases)
    inside = (low <= rates) & (rates <= high)
    return np.asarray((binom.pmf(counts[:, None], cases, rates) * inside).sum(axis=0))


def paired_coverage(cases: int, only_one: float, only_other: float) -> float:
    """Exact coverage of the difference, over all counts that happen at all."""
    one, other = np.meshgrid(np.arange(cases + 1), np.arange(cases + 1), indexing="ij")
    near = (one + other <= cases) & (np.abs(one - cases * only_one) <= 12 + 8 * (cases * only_one) ** 0.5)
    near &= np.abs(other - cases * only_other) <= 12 + 8 * (cases * only_other) ** 0.5
    one, other = one[near], other[near]
    chance = multinomial.pmf(
        np.stack([one, other, cases - one - other], axis=1),
        cases,
        [only_one, only_other, 1 - only_one - only_other],
    )
    likely = chance > 1e-9
    truth = only_other - only_one
    covered = 0.0
    for a, b, p in zip(one[likely].tolist(), other[likely].tolist(), chance[likely].tolist(), strict=True):
        low, high = paired_difference(a, b, cases)
        covered += p * (low <= truth <= high)
    return covered


def weighted_coverage(kind: str, seed: int) -> tuple[int, int]:
    """Runs whose interval holds the true share, and all runs; 100 records, shares of 5 to 95 %."""
    rng = np.random.default_rng(seed)
    share = rng.uniform(0.05, 0.95, (RUNS, 1))
    hits = (rng.random((RUNS, ROWS)) < share).astype(np.float64)
    weights = np.ones_like(hits)
    if kind == "drawn_weights":
        weights = rng.choice([1.0, 10.0], hits.shape)
    if kind == "rare_misses":
        captured = share / (share + (1 - share) * 0.1)
        hits = (rng.random((RUNS, ROWS)) < captured).astype(np.float64)
        weights = np.where(hits > 0, 1.0, 10.0)
    codes = np.repeat(np.arange(RUNS), ROWS)
    sums = Sums.of(hits.ravel(), weights.ravel(), codes, RUNS)
    found = shares(replace(sums, heaviest=np.full(RUNS, weights.max())))
    return int(((found.low <= share[:, 0]) & (share[:, 0] <= found.high)).sum()), RUNS


def _show(name: str, coverage: float, data: str, *, n: int | None = None) -> None:
    low, high = wilson_interval(round(coverage * n), n) if n else (None, None)
    Figure(
        f"statistics.intervals.{name}",
        coverage,
        "share covered",
        "95 %",
        coverage / LEVEL,
        n=n,
        low=low,
        high=high,
        data=data,
    ).show()


def main() -> None:
    """Print the coverages."""
    rates = np.linspace(0.0005, 0.9995, 1000)
    for cases in (10, 60, 1000):
        covered = wilson_coverage(cases, rates)
        _show(f"wilson.{cases}.mean", float(covered.mean()), "exact, 1,000 true rates in (0, 1)")
    rare = min(float(wilson_coverage(cases, np.linspace(0.05, 3, 600) / cases).min()) for cases in (60, 1000))
    _show("wilson.rare", rare, "exact, least at 0.05 to 3 failures to be expected in 60 and in 1,000 cases")
    grid = (0.002, 0.01, 0.03, 0.1, 0.2, 0.4)
    for cases in PAIRED_CASES:
        found = [paired_coverage(cases, a, b) for a in grid for b in grid if b <= a]
        _show(f"paired.{cases}.mean", float(np.mean(found)), f"exact, {len(found)} pairs of chances")
        _show(f"paired.{cases}.least", min(found), f"exact, {len(found)} pairs of chances")
    for kind in ("equal_weights", "drawn_weights", "rare_misses"):
        covered_runs, runs = weighted_coverage(kind, seed=3)
        _show(f"share.{kind}", covered_runs / runs, "simulated, 100 records a group, seed 3", n=runs)


if __name__ == "__main__":
    main()
