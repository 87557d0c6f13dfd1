"""Time of whylogs and River on the data of ``monitoring.profile``, in an environment of their own.

``python -m venv peers && peers/bin/pip install whylogs river "numpy<2" pandas "setuptools<81"``, then
``peers/bin/python benchmarks/monitoring/_profile_peers.py FILE`` prints CPU seconds, and writes the quantiles
and distinct values that whylogs finds in 20,000 rows: ``tests/assertions/profiling/whylogs.json``.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

ROWS, BLOCK, FLOATS, STRINGS = 1_000_000, 64, 15, 5
RANKS = [0.05, 0.25, 0.5, 0.75, 0.95]


def frame(rows: int) -> pd.DataFrame:
    """Columns as ``benchmarks.monitoring.profile.traffic`` makes them with seed 0."""
    rng = np.random.default_rng(0)
    columns: dict[str, object] = {f"inputs.x{n}": rng.normal(n, n + 1.0, rows) for n in range(FLOATS)}
    for n in range(STRINGS):
        names = np.array([f"category {k}" for k in range(20 + n)], dtype=object)
        columns[f"inputs.c{n}"] = names[rng.integers(0, 20 + n, rows)]
    return pd.DataFrame(columns)


def whole(data: pd.DataFrame) -> dict[str, object]:
    """Whole columns at once by whylogs."""
    import whylogs

    began = time.process_time()
    view = whylogs.log(data).view()
    print(json.dumps({"whylogs.whole_s": time.process_time() - began}))
    found: dict[str, object] = {}
    for name in data.columns:
        column = view.get_column(name)
        known: dict[str, object] = {"distinct": column.get_metric("cardinality").hll.value.get_estimate()}
        if name.startswith("inputs.x"):
            sketch = column.get_metric("distribution").kll.value
            known["quantiles"] = list(sketch.get_quantiles(RANKS))
            known["mean"] = column.get_metric("distribution").mean.value
        found[name] = known
    return found


def blocks(data: pd.DataFrame, most: int = 200) -> None:
    """Blocks of 64 by whylogs; one column of floats, value by value, by River's ADWIN."""
    import whylogs
    from river.drift import ADWIN

    profile = whylogs.DatasetProfile() if hasattr(whylogs, "DatasetProfile") else None
    cut = [data.iloc[at : at + BLOCK] for at in range(0, most * BLOCK, BLOCK)]
    began = time.process_time()
    for one in cut:
        if profile is None:
            whylogs.log(one)
        else:
            profile.track(one)
    spent = (time.process_time() - began) / (most * BLOCK)
    print(json.dumps({"whylogs.blocks_us_per_record": spent * 1e6}))
    values, detector = data["inputs.x0"].tolist()[:100_000], ADWIN()
    began = time.process_time()
    for value in values:
        detector.update(value)
    print(json.dumps({"river.adwin_us_per_value": (time.process_time() - began) / len(values) * 1e6}))


if __name__ == "__main__":
    kept = whole(frame(20_000))
    if len(sys.argv) > 1:
        text = json.dumps({"whylogs": version("whylogs"), "rows": 20_000, "columns": kept}, indent=1)
        Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")
    million = frame(ROWS)
    whole(million)
    blocks(million)
