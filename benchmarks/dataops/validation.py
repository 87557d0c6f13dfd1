"""Validation of 100,000 rows of 34 columns, against Great Expectations on the same typed frame.

The suite is what ``outrider dataset expect`` learns from 5,000 rows of the same source; of the rows judged
one in a thousand breaks a range. The library's own time is that of a context, and of its verdict on a frame
that is there. ``docs`` also draws the Data Docs.
"""

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.dataops.datasets.frames import columns_read, frame_of
from outrider.dataops.datasets.reference_suite import reference_suite
from outrider.dataops.datasets.validation import Rules, expectations, validate
from outrider.monitor.trainer.checks_process import judged

ROWS, REFERENCE_ROWS, PAIRS = 100_000, 5_000, 7
MOST = 1.3
"""Times the library's own time."""
CLASSES = (0, 1, 2)


def source(rows: int, seed: int) -> Batch:
    """33 inputs and a label: real, whole, with nulls, truth values, categories and texts."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {f"inputs.real{i}": rng.normal(i, 1, rows) for i in range(14)}
    columns |= {f"inputs.skewed{i}": rng.lognormal(0, 0.5, rows) for i in range(3)}
    columns |= {f"inputs.whole{i}": rng.integers(0, 1000, rows) for i in range(5)}
    for i in range(3):
        holes = rng.random(rows) < 0.05
        columns[f"inputs.holes{i}"] = [None if hole else n % 500 for n, hole in enumerate(holes)]
    columns |= {f"inputs.truth{i}": rng.random(rows) < 0.4 for i in range(3)}
    columns |= {f"inputs.kind{i}": rng.choice(["red", "green", "blue"], rows) for i in range(3)}
    columns |= {f"inputs.text{i}": [f"{n:x}" for n in rng.integers(1, 10**9, rows)] for i in range(2)}
    columns["label.label"] = rng.choice(CLASSES, rows)
    assert len(columns) == 34
    return Batch.from_columns(columns, model="m", rows=rows)


def own_time(frame: pd.DataFrame, suite: list[dict[str, Any]]) -> int:
    """The library alone; number of expectations that fail."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    definition = asset.add_batch_definition_whole_dataframe("rows")
    built = [
        ExpectationConfiguration(type=item["type"], kwargs=item["kwargs"]).to_domain_obj() for item in suite
    ]
    batch = definition.get_batch({"dataframe": frame})
    result = batch.validate(gx.ExpectationSuite(name="rows", expectations=built), result_format="COMPLETE")
    return sum(not each.success for each in result.results)


def seconds(run: Callable[[], object]) -> float:
    """Seconds that pass."""
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def measure(rows: int = ROWS, pairs: int = PAIRS) -> list[Figure]:
    """Both figures, in interleaved runs."""
    warnings.simplefilter("ignore")
    learned = [item | {"severity": "warning"} for item in reference_suite(source(REFERENCE_ROWS, 0))]
    batch = source(rows, 1)
    broken = batch.column("inputs.real0").copy()
    broken[::1000] = 1e6
    batch = batch.with_columns({"inputs.real0": broken})
    rules = Rules(classes=CLASSES, inputs=("real0", "whole0"), expectations=learned)
    suite = expectations(batch, rules)
    frame = frame_of(batch, columns_read(suite))
    assert len(frame.columns) == 34
    found = len(validate(batch, rules).summary["warnings"])  # the library is loaded
    assert found == own_time(frame, suite) > 0
    runs: dict[str, Callable[[], object]] = {
        "": lambda: validate(batch, rules),
        ".docs": lambda: judged(batch, rules, title="rows@1"),
    }
    taken: dict[str, list[float]] = {part: [] for part in runs}
    ratios: dict[str, list[float]] = {part: [] for part in runs}
    for _ in range(pairs):
        own = seconds(lambda: own_time(frame, suite))
        for part, run in runs.items():
            taken[part].append(seconds(run))
            ratios[part].append(own / taken[part][-1])
    return [
        Figure.of_pairs(
            f"dataops.validation.{rows}x34{part}",
            statistics.median(taken[part]),
            "s",
            "Great Expectations on the same frame",
            ratios[part],
            None if part else 1 / MOST,
            data=f"{rows} simulated rows, seed 1; {len(suite)} expectations",
        )
        for part in runs
    ]


def main() -> None:
    """Print the figures."""
    for figure in measure():
        figure.show()


if __name__ == "__main__":
    main()
