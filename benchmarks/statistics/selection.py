"""Estimates from labels that a policy chose, against a truth that is known: bias and coverage of intervals.

Cells are policies x shapes of entities x how much is flagged x when traffic comes; in each, three rounds of
labels over traffic of which the model is wrong oftener on some entities, where an assertion fired, where it
was unsure, and late. ``--seeds N`` sets the number of runs per cell.
"""

import argparse

import numpy as np
from scipy.stats import t

from benchmarks.figure import Figure, show_table
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
    data = (
        f"simulated: {RECORDS} records, three rounds of {BUDGET} labels, a tenth audit; {len(CELLS)} cells, "
        f"seeds 0 to {seeds - 1} of each"
    )
    bound = float(t.ppf(1.0 - (1.0 - CONFIDENCE) / (2 * len(CELLS)), seeds - 1))
    found: dict[Cell, list[Result]] = {}
    worst, rows = 0.0, ["| policy | accuracy, estimate less truth | covered | covered, least of its cells |"]
    rows.append("|---|---|---|---|")
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
        total = 100 * np.array([r.accuracy.value - r.truth for cell in cells for r in found[cell]])
        mean, spread = float(total.mean()), float(1.96 * total.std(ddof=1) / np.sqrt(len(total)))
        Figure(
            f"statistics.selection.{policy}.bias", mean, "points of accuracy",
            f"{bound:.2f} standard errors over the largest of {len(cells)} cells, {max(scores):.2f}",
            bound / max(scores), 1.0, n=len(total), low=mean - spread, high=mean + spread, data=data,
        ).show()  # fmt: skip
        share = float(np.mean([covered(found[cell]) for cell in cells]))
        least = min(covered(found[cell]) for cell in cells)
        interval = f"{mean:+.2f} ({mean - spread:+.2f} to {mean + spread:+.2f})".replace(
            "-", "\N{MINUS SIGN}"
        )
        rows.append(
            f"| `{policy}` | {interval} points of {len(total):,} runs "
            f"| {100 * share:.1f} % | {100 * least:.0f} % of {seeds} |"
        )
    assert all(r.labels == 3 * BUDGET for results in found.values() for r in results)
    Figure(
        "statistics.selection.largest_z", worst, "standard errors",
        f"{bound:.2f}: 99 % by Bonferroni over {len(CELLS)} cells", bound / worst, 1.0,
        n=len(CELLS), data=data,
    ).show()  # fmt: skip
    for name, share_of in (("coverage", covered), ("precision_coverage", covered_precision)):
        shares = {cell: share_of(results) for cell, results in found.items()}
        shares = {cell: share for cell, share in shares.items() if not np.isnan(share)}
        hits, runs = round(seeds * sum(shares.values())), seeds * len(shares)
        Figure.of_share(
            f"statistics.selection.{name}",
            hits,
            runs,
            "of 95 % intervals",
            base=COVERAGE,
            target=1.0,
            data=data,
        ).show()
        lowest = min(shares.values())
        Figure(
            f"statistics.selection.{name}.least", lowest, "of 95 % intervals, least of the cells", "0.95",
            lowest / COVERAGE, n=seeds, data=data,
        ).show()  # fmt: skip
    show_table("policies", "\n".join(rows))


if __name__ == "__main__":
    main()
