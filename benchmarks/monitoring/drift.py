"""Drift report and exact Kolmogorov-Smirnov distance of a million rows, against what they cannot do without.

15 columns of floats and 5 of strings, 100,000 reference and 1,000,000 current rows, four columns changed.

- ``report``: from pandas, on one core, decisions and sentences included. Floor: each string encoded once by
  pyarrow and its codes counted, each float counted once in a fixed histogram (subtraction and ``bincount``).
- ``report_arrow``: the same from Arrow dictionaries with two threads, by the clock and in CPU seconds of both
  (``_cpu``). Floor: the same counts on two threads; nothing is encoded.
- ``ks``: 15 exact distances. Floor: each million sorted once, and the reference looked up in it. The product
  needs less: it sorts those values alone that the greatest distance may lie at.

Floor and product run in turn, in CPU seconds unless said. Peers run in environments of their own: ``python -m
benchmarks.monitoring.drift --write FOLDER`` writes the data, ``pip install nannyml`` (``evidently``) makes
one, and its Python runs ``benchmarks/monitoring/_drift_peers.py FOLDER NAME``. With ``--small`` behind FOLDER
the data are those of ``tests/assertions/drift/peers.json``.
"""

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.assertions.drift import drift_report, ks_distance

REFERENCE, CURRENT, PAIRS = 100_000, 1_000_000, 7
SMALL = 2_000, 3_000
"""Rows of the windows whose statistics tests compare with those of peers."""
CATEGORIES = np.array(["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"])
DATA = "15 floats (normal, lognormal, Poisson), 5 strings of 8 values, 4 columns changed, seed 0"
_PART, _CODES = 125_000, 65_536


def frame(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Rows without drift."""
    columns: dict[str, Any] = {f"normal{i}": rng.normal(i, 1 + i, rows) for i in range(10)}
    columns |= {f"skewed{i}": np.exp(2 * rng.normal(size=rows)) for i in range(3)}
    columns |= {f"whole{i}": rng.poisson(5, rows).astype(float) for i in range(2)}
    for i in range(5):
        columns[f"word{i}"] = CATEGORIES[np.minimum(rng.geometric(0.3, rows) - 1, 7)]
    return pd.DataFrame(columns)


def changed(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Rows with a shift, capitals, nulls in one category and larger counts."""
    found = frame(rng, rows)
    found["normal1"] += 0.5
    found["whole0"] += rng.poisson(1, rows)
    found["word1"] = np.where(rng.random(rows) < 0.2, found.word1.str.upper(), found.word1)
    found.loc[(found.word2 == "alpha") & (rng.random(rows) < 0.5), "normal3"] = np.nan
    return found


def count_floats(values: NDArray[np.float64]) -> None:
    """A fixed histogram in one pass."""
    found = np.zeros(_CODES, dtype=np.int64)
    for start in range(0, len(values), _PART):
        apart = values[start : start + _PART] - 1.0
        found += np.bincount(apart.view(np.uint16)[3::4], minlength=_CODES)


def count_codes(column: pa.Array | pa.ChunkedArray) -> None:
    """Codes of a dictionary in one pass."""
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    np.bincount(found.indices.to_numpy(zero_copy_only=False))


def count_column(column: Any) -> None:
    """Floor of one column."""
    if isinstance(column, pd.Series):
        if column.dtype == "str":
            count_codes(pc.dictionary_encode(pa.array(column)))
        else:
            count_floats(column.to_numpy())
    elif pa.types.is_dictionary(column.type):
        count_codes(column)
    else:
        count_floats(column.to_numpy())


def floor(data: tuple[Any, Any], threads: int) -> None:
    """Counts of all columns of both windows."""
    columns = [each[name] for each in data for name in _names(each)]
    if threads == 1:
        list(map(count_column, columns))
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(count_column, columns))


def _names(data: Any) -> list[str]:
    return list(data.columns) if isinstance(data, pd.DataFrame) else list(data.column_names)


def pairs(
    name: str,
    own: Callable[[], object],
    least: Callable[[], object],
    clock: Callable[[], float],
    most: float,
    against: str,
) -> Figure:
    """Figure of runs in turn: median seconds, and the floor's over them."""
    own()
    least()
    taken, ratios = [], []
    for _ in range(PAIRS):
        begun = clock()
        least()
        between = clock()
        own()
        taken.append(clock() - between)
        ratios.append((between - begun) / taken[-1])
    unit = "CPU s" if clock is time.process_time else "s by the clock"
    return Figure.of_pairs(
        f"monitoring.drift.{name}", statistics.median(taken), unit, against, ratios, 1 / most, data=DATA
    )


def encoded(data: pd.DataFrame) -> pa.Table:
    """Arrow table with dictionaries for strings."""
    arrays = {name: pa.array(data[name]) for name in data.columns}
    return pa.table(
        {
            name: each.dictionary_encode() if pa.types.is_large_string(each.type) else each
            for name, each in arrays.items()
        }
    )


def measure() -> None:
    """Print the figures."""
    reference, current = windows(REFERENCE, CURRENT)
    found = drift_report(reference, current)
    drifted = sorted(each.column for each in found.drifting)
    assert drifted == ["normal1", "normal3", "whole0", "word1"], drifted
    frames = reference, current
    pairs(
        "report", lambda: drift_report(*frames), lambda: floor(frames, 1), time.process_time, 1.6,
        "encoding and counting each value once",
    ).show()  # fmt: skip
    tables = encoded(reference), encoded(current)
    for name, clock in (("report_arrow", time.perf_counter), ("report_arrow_cpu", time.process_time)):
        pairs(
            name, lambda: drift_report(*tables, threads=2), lambda: floor(tables, 2), clock, 2.2,
            "counting each value once on two threads",
        ).show()  # fmt: skip
    numbers = [name for name in map(str, reference) if not name.startswith("word")]
    columns = [(reference[name].to_numpy(), current[name].dropna().to_numpy()) for name in numbers]
    pairs(
        "ks", lambda: [ks_distance(*each) for each in columns],
        lambda: [sorted_once(*each) for each in columns], time.process_time, 1.25, "sorting each column once",
    ).show()  # fmt: skip


def sorted_once(reference: NDArray[np.float64], current: NDArray[np.float64]) -> Any:
    """Floor of an exact distance that sorts."""
    return np.sort(current).searchsorted(np.sort(reference), "right")


def windows(reference: int, current: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both windows of so many rows."""
    rng = np.random.default_rng(0)
    return frame(rng, reference), changed(rng, current)


def write(folder: Path, sizes: tuple[int, int]) -> None:
    """Write both windows for peers."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, each in zip(("reference", "current"), windows(*sizes), strict=True):
        each.to_parquet(folder / f"{name}.parquet")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]), SMALL if "--small" in sys.argv else (REFERENCE, CURRENT))
    else:
        measure()
