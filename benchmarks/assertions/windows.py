"""Rows per second of one core through a stream with a window and a columnar flicker function.

Seconds are the process's own (all its threads), so that what else runs on the machine does not count.
"""

import statistics
import time
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figure import Figure
from outrider.assertions import Batch, Checker, Window, assertion

ROWS, TRACKS = 1_000_000, 10_000
TARGET = 1_000_000.0
BATCHES = ((65_536, TARGET), (8_192, None), (1_024, None))
RUNS = 5


@assertion(window=Window(rows=5, columns=("outputs.present",)))
def flicker(view: Batch) -> Any:
    """Present, absent, present."""
    present = view.column("outputs.present")
    before, then = view.previous_rows(1), view.previous_rows(2)
    return present & (then >= 0) & present[then] & ~present[before]


def detections() -> Batch:
    """A million detections: 10,000 tracks of 100 frames, in order of time, tracks in no order."""
    rng = np.random.default_rng(0)
    at_us = np.repeat(np.arange(ROWS // TRACKS), TRACKS) * 100_000
    names = np.array([f"camera-{n % 40}/track-{n}" for n in range(TRACKS)], dtype=object)
    times = pa.array(at_us, pa.timestamp("us", tz="UTC"))
    columns = {
        "id": pa.array([f"r{row}" for row in range(ROWS)]),
        "entity": pa.array(np.tile(names[rng.permutation(TRACKS)], ROWS // TRACKS)),
        "ts": times,
        "received": times,
        "outputs.present": pa.array(rng.random(ROWS) < 0.9),
        "outputs.score": pa.array(rng.random(ROWS)),
    }
    return Batch.from_columns(columns, model="m")


def streamed(batch: Batch, size: int) -> tuple[float, int]:
    """CPU seconds and flags of the whole stream in batches of ``size``."""
    stream = Checker([flicker]).stream()
    start = time.process_time()
    flags = sum(len(stream.check(batch.slice(row, size))) for row in range(0, batch.rows, size))
    flags += len(stream.finish())
    return time.process_time() - start, flags


def main() -> None:
    """One figure per size of batch."""
    batch = detections()
    present = batch.column("outputs.present")
    order = np.argsort(
        batch.to_arrow().column("entity").dictionary_encode().indices.to_numpy(), kind="stable"
    )
    by_track = present[order].reshape(TRACKS, -1)
    expected = int((by_track[:, 2:] & ~by_track[:, 1:-1] & by_track[:, :-2]).sum())
    for size, target in BATCHES:
        runs = [streamed(batch, size) for _ in range(RUNS if target else 2)]
        assert {flags for _, flags in runs} == {expected}
        rate = batch.rows / statistics.median(seconds for seconds, _ in runs)
        told = f"{TARGET:g} rows/s; batches of {size}, {expected} flags"
        Figure("assertions.windows.flicker", rate, "rows/s", told, rate / TARGET, target and 1.0).show()


if __name__ == "__main__":
    main()
