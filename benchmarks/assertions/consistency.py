"""Detections per second of one core through ``Consistency``: 1 M in 10,000 tracks, corrections included.

Seconds are the process's own, so that what else runs on the machine does not count.
"""

import statistics
import time

import numpy as np
import pyarrow as pa

from benchmarks.figure import Figure
from outrider.assertions import Batch, Checker, Consistency

CAMERAS, FRAMES, TRACKS = 100, 100, 100
TARGET = 1e6
RUNS = 5


def detections(missing: float) -> tuple[Batch, int]:
    """Frames of all cameras, each object missing in a share of its frames; and the number of detections."""
    rng = np.random.default_rng(0)
    shown = rng.random((CAMERAS * FRAMES, TRACKS)) >= missing
    frame, track = np.nonzero(shown)
    fields = [pa.array(track + 1000 * (frame // FRAMES)), pa.array(rng.uniform(0, 1000, len(frame)))]
    boxes = pa.StructArray.from_arrays(fields, ["track", "left"])
    ends = np.r_[0, np.cumsum(shown.sum(axis=1))]
    batch = Batch.from_columns(
        {
            "entity": pa.array(np.repeat([f"camera-{one}" for one in range(CAMERAS)], FRAMES)),
            "ts": pa.array(np.tile(np.arange(FRAMES) * 100_000, CAMERAS), pa.timestamp("us", tz="UTC")),
            "outputs.boxes": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), boxes),
        },
        model="detector",
    )
    return batch, len(frame)


def rate(checker: Checker, batch: Batch, count: int) -> tuple[float, int]:
    """Median detections per second of several runs, and the flags of each."""
    seconds, flags = [], 0
    for _ in range(RUNS):
        start = time.process_time()
        flags = len(checker.check(batch.slice(0)))
        seconds.append(time.process_time() - start)
    return count / statistics.median(seconds), flags


def main() -> None:
    """Print one line per figure; many gaps are recorded without a promise."""
    for check in ("flicker", "appear"):
        checker = Checker(
            [Consistency(explode="outputs.boxes", id="track", within=0.5, checks=[check], corrects=[check])]
        )
        for missing in (0.001, 0.01, 0.05):
            batch, count = detections(missing)
            found, flags = rate(checker, batch, count)
            told = f"{TARGET:g} detections/s; {missing:.1%} missing, {flags} flags"
            target = 1.0 if missing <= 0.01 else None
            Figure(
                f"assertions.consistency.{check}", found, "detections/s", told, found / TARGET, target
            ).show()


if __name__ == "__main__":
    main()
