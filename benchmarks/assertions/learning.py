"""What ``learn`` proposes on real data: do expected fire rates hold later, and are broken records found.

``python -m benchmarks.assertions.learning``. Rules of the Massachusetts census of 2015 are held against the
three years after, each observed rate against the 95 % interval of the expected one. Rules of 24,000
adult_census records are held against later ones of which 1 % get the value of one column from another
record, every column in turn.
"""

import time

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.assertions.checker import severities_of
from outrider.assertions.learn import Proposal, learn


def main() -> None:
    """Print every figure."""
    _rates()
    _swaps()


def _rates() -> None:
    reference, later = (_acs(part) for part in ("reference", "analysis"))
    begin = time.perf_counter()
    proposals = learn(reference)
    taken = time.perf_counter() - begin
    fired = {one.name: _fired(one, later) for one in proposals}
    rates = {name: float(rows.mean()) for name, rows in fired.items()}
    inside = float(np.mean([one.interval[0] <= rates[one.name] <= one.interval[1] for one in proposals]))
    anything = float(np.logical_or.reduce(list(fired.values())).mean())
    loudest = max(rates, key=rates.__getitem__)
    Figure(
        "learn: census, rates inside", float(inside), f"share of {len(proposals)}", "0.95", inside / 0.95
    ).show()
    Figure("learn: census, loudest", rates[loudest] * 1000, f"per 1,000: {loudest}", "none", 1.0).show()
    Figure("learn: census, any rule", anything * 1000, "per 1,000 later records", "none", 1.0).show()
    Figure(
        "learn: census, time", taken / reference.rows * 1e6, f"us per record of {reference.rows}", "none", 1.0
    ).show()


def _swaps() -> None:
    frame = pd.read_parquet(data_folder("adult_census") / "adult.parquet")
    inputs = [str(name) for name in frame if name != "income"]
    whole = Batch.from_pandas(frame, model="adult", inputs=inputs, labels=["income"])
    proposals, later = learn(whole.slice(0, 24_000)), whole.slice(24_000)
    idle = np.logical_or.reduce([_fired(one, later) for one in proposals])
    Figure("learn: adult, any rule", float(idle.mean()) * 1000, "per 1,000 later records", "none", 1.0).show()
    rng = np.random.default_rng(0)
    for name in inputs:
        column = f"inputs.{name}"
        hit = rng.random(later.rows) < 0.01
        values = later.to_arrow().column(column).to_pylist()
        other = rng.permutation(later.rows)
        changed = hit & np.array([values[other[row]] != values[row] for row in range(later.rows)])
        swapped = [values[other[row]] if changed[row] else values[row] for row in range(later.rows)]
        faulty = later.with_columns({column: swapped})
        fired = np.logical_or.reduce([_fired(one, faulty) for one in proposals])
        share = float(fired[changed].mean())
        rate = float(fired[~changed].mean())
        Figure(
            f"learn: adult, {name} of another person",
            share,
            f"share found of {int(changed.sum())}",
            f"{rate:.5f} of the others",
            share / max(rate, 1 / later.rows),
        ).show()


def _fired(proposal: Proposal, batch: Batch) -> NDArray[np.bool_]:
    return severities_of(proposal.assertion(), batch) > 0


def _acs(part: str) -> Batch:
    frame = pd.read_parquet(data_folder("acs_employment_ma") / f"{part}.parquet")
    outputs = ["prediction", "predicted_probability"]
    inputs = [str(name) for name in frame if name not in ("id", "employed", "year", *outputs)]
    return Batch.from_pandas(frame, model="acs", inputs=inputs, outputs=outputs, id="id")


if __name__ == "__main__":
    main()
