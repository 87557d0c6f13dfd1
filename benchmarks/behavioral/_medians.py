"""Seconds of several pieces of work, in turn: a busy moment of the machine meets all of them."""

import statistics
import time
from collections.abc import Callable, Sequence


def medians(works: Sequence[Callable[[], object]], runs: int) -> list[float]:
    """Median seconds of each."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(runs):
        for work, times in zip(works, taken, strict=True):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]
