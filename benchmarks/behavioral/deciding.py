"""How many cases a test with ``stop="decided"`` asks, by size, tolerance and true failure rate.

Simulated: fixed seeds, blocks as :func:`outrider.behavioral_tests.running.run_until_decided` makes them. The
verdicts that were wrong are counted too; 5 % are allowed.
"""

from dataclasses import replace

import numpy as np

from benchmarks.behavioral.suite import Sentiment, our_suite
from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.behavioral_tests import Suite
from outrider.behavioral_tests.running import FIRST_CASES
from outrider.behavioral_tests.statistics import decided, wilson_interval

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


def _suite() -> None:
    """CheckList's sentiment suite and a real model: examples asked, and verdicts other than of asking all."""
    source = data_folder("checklist") / "sentiment_suite.jsonl.gz"
    suite, model = our_suite(source), Sentiment()
    everything = suite.run(model)
    examples = sum(outcome.asked for outcome in everything)
    changed = verdicts = 0
    for tolerance in (0.02, 0.05, 0.1, 0.2):
        early = Suite(
            "early", tuple(replace(test, tolerance=tolerance, stop="decided") for test in suite.tests)
        )
        found = early.run(model)
        asked = sum(outcome.asked for outcome in found)
        name = f"behavioral.deciding.suite.{tolerance * 100:g}_percent"
        Figure(name, asked, "examples", f"all {examples:,}", asked / examples, data="checklist, sst2").show()
        for fast, whole in zip(found, everything, strict=True):
            verdicts += 1
            changed += fast.passed != (whole.rate <= tolerance)
    Figure(
        "behavioral.deciding.suite.changed",
        changed,
        "verdicts",
        f"all {verdicts}",
        changed / verdicts,
        n=verdicts,
    ).show()


def main() -> None:
    """Print mean cases asked by size, tolerance and rate, wrong verdicts, and what a real suite saves."""
    rows, wrong, runs = [], 0, 0
    for cases, tolerance in SETTINGS:
        cells = []
        for rate in RATES:
            seeds = RUNS if cases < 10_000 else RUNS // 4
            found = [
                asked_until_decided(cases, round(rate * cases), tolerance, seed) for seed in range(seeds)
            ]
            asked = np.array([each for each, _ in found])
            mean, error = float(asked.mean()), 1.96 * float(asked.std(ddof=1)) / seeds**0.5
            name = f"behavioral.deciding.{cases}_cases.{tolerance * 100:g}_percent.rate_{rate * 100:g}"
            Figure(
                name, mean, "cases", "all cases", mean / cases, n=seeds, low=mean - error, high=mean + error
            ).show()
            cells.append(f"{mean:,.0f}")
            wrong += sum(each for _, each in found)
            runs += seeds
        rows.append(f"| {cases:,}, {tolerance * 100:g} % | {' | '.join(cells)} |")
    low, high = wilson_interval(wrong, runs)
    data = f"simulated: seeds 0 to {RUNS - 1} of every size, tolerance and rate"
    share = wrong / runs
    Figure(
        "behavioral.deciding.wrong",
        share,
        "share",
        "5 % allowed",
        share / 0.05,
        n=runs,
        low=low,
        high=high,
        data=data,
    ).show()
    heads = " | ".join(f"{rate * 100:g} %" for rate in RATES[1:])
    _suite()
    show_table("asked", "\n".join([f"| cases, tolerance | rate 0 | {heads} |", "|---" * 9 + "|", *rows]))


if __name__ == "__main__":
    main()
