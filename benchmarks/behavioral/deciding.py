"""How many cases a test with ``stop="decided"`` asks, by size, tolerance and true failure rate.

Simulated: fixed seeds, blocks as :func:`outrider.behavioral_tests.running.run_until_decided` makes them. The
verdicts that were wrong are counted too; 5 % are allowed.
"""

import numpy as np

from benchmarks.figure import Figure
from outrider.behavioral_tests.running import FIRST_CASES
from outrider.behavioral_tests.statistics import decided

RUNS = 200
SETTINGS = ((200, 0.05), (1000, 0.05), (10_000, 0.05), (1000, 0.2))
RATES = (0.0, 0.01, 0.03, 0.05, 0.07, 0.1, 0.2, 0.4)


def asked_until_decided(cases: int, failing: int, tolerance: float, seed: int) -> tuple[int, bool]:
    """Cases asked in one simulated run, and whether its verdict was wrong."""
    fails = np.zeros(cases, dtype=np.int64)
    fails[:failing] = 1
    seen = np.cumsum(np.random.default_rng(seed).permutation(fails))
    asked, verdict = 0, None
    while verdict is None:
        asked = min(cases, asked + max(FIRST_CASES, asked // 2))
        verdict = decided(int(seen[asked - 1]), asked, cases, tolerance=tolerance)
    return asked, verdict is not (failing / cases <= tolerance)


def main() -> None:
    """One figure per size, tolerance and rate: mean cases asked, as a share of all."""
    for cases, tolerance in SETTINGS:
        for rate in RATES:
            runs = [
                asked_until_decided(cases, round(rate * cases), tolerance, seed)
                for seed in range(RUNS if cases < 10_000 else RUNS // 4)
            ]
            asked = float(np.mean([each for each, _ in runs]))
            wrong = sum(each for _, each in runs) / len(runs)
            name = f"behavioral.deciding {cases} cases, tolerance {tolerance}, rate {rate}"
            Figure(name, asked, f"cases ({wrong:.1%} wrong)", "all cases", asked / cases).show()


if __name__ == "__main__":
    main()
