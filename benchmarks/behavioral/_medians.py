"""Seconds of several pieces of work, in turn: a busy moment of the machine meets all of them."""

import statistics
import time
from collections.abc import Callable, Sequence


def medians(
    works: Sequence[Callable[[], object]], runs: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Median seconds of each; with ``time.process_time`` CPU seconds, whatever else runs."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(runs):
        for work, times in zip(works, taken, strict=True):
            start = clock()
            work()
            times.append(clock() - start)
    return [statistics.median(times) for times in taken]
