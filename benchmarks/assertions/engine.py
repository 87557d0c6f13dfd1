"""What the engine adds to six assertions that read columns: small batches and large ones.

The thread's own seconds are measured, so that what else runs on the machine does not count.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.figure import Figure
from outrider.assertions import Assertion, Batch, Checker

SMALL, LARGE = 64, 100_000
SMALL_US, SHARE, FLAG_US = 60.0, 0.20, 0.3
Read = Callable[[str], Any]

CHECKS = """
import numpy as np

from outrider.assertions import assertion

RULES = {
    "out_of_range": lambda c: (c("inputs.age") < 0) | (c("inputs.age") > 97 + SHIFT * 100),
    "poor": lambda c: c("inputs.income") < 30_000 - SHIFT * 1e6,
    "unsure": lambda c: np.maximum(0.05 - SHIFT - c("outputs.score"), 0.0),
    "margin": lambda c: c("outputs.margin") > 0.95 + SHIFT,
    "cross": lambda c: (c("outputs.label") == 2) & (c("outputs.score") > 0.85 + SHIFT),
    "young_and_rich": lambda c: (c("inputs.age") < 25 - SHIFT * 100) & (c("inputs.income") > 55_000),
}


def make(name, rule):
    return assertion(name=name)(lambda batch: rule(batch.column))


for name, rule in RULES.items():
    globals()[name] = make(name, rule)
"""


def records(rows: int) -> Batch:
    """Records of six columns, of which each rule finds at most a tenth."""
    rng = np.random.default_rng(0)
    columns = {
        "id": [f"r{row}" for row in range(rows)],
        "inputs.age": rng.integers(18, 100, rows),
        "inputs.income": rng.normal(50_000, 10_000, rows),
        "outputs.score": rng.random(rows),
        "outputs.margin": rng.random(rows),
        "outputs.label": rng.integers(0, 3, rows),
    }
    return Batch.from_columns(columns, model="m")


def rules(shift: float) -> tuple[list[Assertion], list[Callable[[Read], Any]]]:
    """Assertions and the numpy functions inside them; ``shift`` 1 lets none fire."""
    module: dict[str, Any] = {"__name__": "checks", "SHIFT": shift}
    exec(CHECKS, module)
    found = [value for value in module.values() if isinstance(value, Assertion)]
    return found, list(module["RULES"].values())


def medians_us(
    first: Callable[[], object], second: Callable[[], object], runs: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """Median µs of two things measured in turn."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for work, times in zip((first, second), taken, strict=True):
            start = clock()
            work()
            times.append(clock() - start)
    return statistics.median(taken[0]) * 1e6, statistics.median(taken[1]) * 1e6


def in_process() -> None:
    """``Checker.check`` against the bare functions on arrays."""
    assertions, bare = rules(0.0)
    checker = Checker(assertions)
    small, large = records(SMALL), records(LARGE)
    for judge in checker.assertions:
        assert (judge.severities(large) > 0).mean() <= 0.10
    check, direct = medians_us(*_pair(checker, bare, small), 5_000, time.thread_time)
    told = f"{SMALL_US:g} µs allowed; the functions alone {direct:.3g} µs"
    Figure("assertions.engine.small_batch", check, "µs", told, SMALL_US / check, 1.0).show()

    silent = Checker(rules(1.0)[0])
    assert not len(silent.check(large))
    check, direct = medians_us(*_pair(silent, rules(1.0)[1], large), 200, time.thread_time)
    told = f"the functions alone, {direct:.4g} µs; nothing fires"
    Figure("assertions.engine.large_batch_silent", check, "µs", told, check / direct).show()

    flags = len(checker.check(large))
    check, direct = medians_us(*_pair(checker, bare, large), 200, time.thread_time)
    allowed = direct * (1 + SHARE) + FLAG_US * flags
    told = (
        f"{allowed:.4g} µs allowed: the functions alone ({direct:.4g} µs), {SHARE:.0%} of it, {flags} flags"
    )
    Figure("assertions.engine.large_batch", check, "µs", told, allowed / check, 1.0).show()


def _pair(
    checker: Checker, bare: list[Callable[[Read], Any]], batch: Batch
) -> tuple[Callable[[], object], Callable[[], object]]:
    table = batch.to_arrow()
    arrays = {name: batch.column(name) for name in batch.names if "." in name}
    # A batch keeps what it converted: each run gets one that knows nothing.
    return (
        lambda: checker.check(Batch(table, model="m")),
        lambda: [rule(arrays.__getitem__) for rule in bare],
    )


if __name__ == "__main__":
    in_process()
