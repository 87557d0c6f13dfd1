"""Estimates from labels that a policy chose, against a truth that is known: bias and coverage of intervals.

Cells are policies x shapes of entities x how much is flagged x when traffic comes; in each, three rounds of
labels over traffic of which the model is wrong oftener on some entities, where an assertion fired, where it
was unsure, and late. ``--seeds N`` sets the number of runs per cell.
"""

import argparse

import numpy as np
from scipy.stats import t

from benchmarks.figure import Figure
from benchmarks.statistics._rounds import CELLS, Cell, Result, run
from outrider.assertions.selection import POLICIES

RECORDS, BUDGET, SEEDS = 500, 50, 300
CONFIDENCE = 0.99
COVERAGE = 0.95


def bias(results: list[Result]) -> tuple[float, float]:
    """Mean of estimate - truth over runs, and its standard error."""
    errors = np.array([found.accuracy.value - found.truth for found in results])
    return float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors)))


def covered(results: list[Result]) -> float:
    """Share of the intervals of the accuracy that hold the truth."""
    return float(np.mean([r.accuracy.low <= r.truth <= r.accuracy.high for r in results]))


def covered_precision(results: list[Result]) -> float:
    """Share of the intervals of all precisions that hold the truth; ``nan`` where nothing fires."""
    held = [e.low <= truth <= e.high for r in results for e, truth in r.precision]
    return float(np.mean(held)) if held else float("nan")


def main() -> None:
    """Run all cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = parser.parse_known_args()[0].seeds
    bound = float(t.ppf(1.0 - (1.0 - CONFIDENCE) / (2 * len(CELLS)), seeds - 1))
    found: dict[Cell, list[Result]] = {}
    worst = 0.0
    for policy in POLICIES:
        cells = [cell for cell in CELLS if cell.policy == policy]
        for cell in cells:
            found[cell] = [run(cell, seed, records=RECORDS, budget=BUDGET) for seed in range(seeds)]
            mean, error = bias(found[cell])
            print(
                f"{cell}: bias {mean:+.4f} ± {error:.4f}, z {mean / error:+.2f}, "
                f"covered {covered(found[cell]):.3f}, precision {covered_precision(found[cell]):.3f}",
                flush=True,
            )
        scores = [abs(mean / error) for mean, error in (bias(found[cell]) for cell in cells)]
        worst = max(worst, *scores)
        accuracy = [covered(found[cell]) for cell in cells]
        parts = [covered_precision(found[cell]) for cell in cells]
        total = np.array([r.accuracy.value - r.truth for cell in cells for r in found[cell]])
        spread = 1.96 * total.std(ddof=1) / np.sqrt(len(total))
        Figure(
            name=f"selection.{policy}.bias",
            value=float(total.mean()),
            unit=f"accuracy, 95 % interval {total.mean() - spread:+.4f} to {total.mean() + spread:+.4f}",
            against=f"{len(cells)} cells x {seeds} seeds; largest |z| {max(scores):.2f}",
            ratio=bound / max(scores),
            target=1.0,
        ).show()
        Figure(
            name=f"selection.{policy}.coverage",
            value=min(accuracy),
            unit="share of 95 % intervals, worst cell",
            against=f"mean {np.mean(accuracy):.3f}; precision: worst {np.nanmin(parts):.3f}, "
            f"mean {np.nanmean(parts):.3f}",
            ratio=min(accuracy) / COVERAGE,
            target=1.0,
        ).show()
    assert all(r.labels == 3 * BUDGET for results in found.values() for r in results)
    Figure(
        name="selection.largest_z",
        value=worst,
        unit="standard errors",
        against=f"{bound:.2f}: 99 % by Bonferroni over {len(CELLS)} cells, {seeds} seeds each",
        ratio=bound / worst,
        target=1.0,
    ).show()


if __name__ == "__main__":
    main()
