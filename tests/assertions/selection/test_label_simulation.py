"""A small version of ``benchmarks.statistics.selection``: no cell is biased, intervals hold the truth."""

import numpy as np
import pytest
from scipy.stats import t

from benchmarks.statistics._rounds import CELLS, Cell, run
from benchmarks.statistics.selection import bias, covered, covered_precision

SEEDS = 25
SMALL = [
    cell
    for cell in CELLS
    if cell.policy in ("uniform", "bal", "uncertainty")
    and cell.flagged != "none"
    and cell.shape in ("long-lived", "bursts")
    and (cell.arrivals == "at once") == (cell.policy == "uniform")
]


@pytest.mark.parametrize("cell", SMALL, ids=str)
def test_no_cell_is_biased_and_intervals_hold_the_truth(cell: Cell) -> None:
    results = [run(cell, seed, records=300, budget=40) for seed in range(SEEDS)]
    mean, error = bias(results)
    assert abs(mean) < t.ppf(1 - 0.01 / (2 * len(SMALL)), SEEDS - 1) * error
    assert covered(results) >= 0.8  # 95 % less four standard errors of 25 runs
    assert not covered_precision(results) < 0.8
    assert {found.labels for found in results} == {120}


def test_equal_weights_would_be_biased() -> None:
    """What the weights undo: the flagged records are labelled first, and are wrong more often."""
    cell = Cell("uniform", "single", "few", "at once")
    results = [run(cell, seed, records=300, budget=40) for seed in range(SEEDS)]
    plain = np.array([found.plain - found.truth for found in results])
    assert plain.mean() < -4 * plain.std(ddof=1) / np.sqrt(SEEDS)
