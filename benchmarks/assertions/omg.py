"""OMG's package ``model-assertions`` 0.0.3 against the same assertions here, same run, same records.

OMG gets the frames it works on, the assertions here the batch they work on; what making that batch from the
frame costs is a figure of its own. OMG's time assertion is patched where current pandas refuses it.
"""

import inspect
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import model_assertions.consistency
import numpy as np
import pandas as pd
from model_assertions.per_row import PerRowAssertion

from benchmarks.assertions._omg import identifier_consistency, time_consistency
from benchmarks.figure import Figure
from outrider.assertions import Batch, Checker, Flags, assertion

RECORDS = 100_000
TRACKED, TRACKS = 10_000, 1_000


@assertion
def impossible_age(batch: Batch) -> Any:
    """Age beyond 0 to 120 years."""
    return np.abs(batch.column("inputs.age") - 60) > 60


@assertion
def unsure(batch: Batch) -> Any:
    """Score below 0.05."""
    return batch.column("outputs.score") < 0.05


@assertion
def young_and_sure(batch: Batch) -> Any:
    """A high score for a minor."""
    return (batch.column("outputs.score") > 0.9) & (batch.column("inputs.age") < 18)


ROW_RULES: list[Callable[[Any, Any], bool]] = [
    lambda i, _: abs(i["age"] - 60) > 60,
    lambda _, o: o["score"] < 0.05,
    lambda i, o: o["score"] > 0.9 and i["age"] < 18,
]
RECORD_RULES: list[Callable[[Any], bool]] = [
    lambda r: abs(r["inputs.age"] - 60) > 60,
    lambda r: r["outputs.score"] < 0.05,
    lambda r: r["outputs.score"] > 0.9 and r["inputs.age"] < 18,
]


def seconds(work: Callable[[], object], runs: int) -> float:
    """Median of several runs."""
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def fresh(checker: Checker, batch: Batch) -> Flags:
    """Check the records as a batch that knows nothing: one keeps what it converted."""
    return checker.check(Batch(batch.to_arrow(), model=batch.model))


def show(name: str, theirs: float, ours: float, target: float | None) -> None:
    """One figure: how often this fits into OMG's time."""
    Figure(name, ours * 1e3, "ms", f"model-assertions, {theirs * 1e3:.4g} ms", theirs / ours, target).show()


def per_row() -> None:
    """Three assertions over every record."""
    rng = np.random.default_rng(0)
    inputs = pd.DataFrame({"age": rng.integers(0, 125, RECORDS)})
    outputs = pd.DataFrame({"score": rng.random(RECORDS)})
    frame = pd.concat([inputs, outputs], axis=1)
    theirs = [PerRowAssertion(rule) for rule in ROW_RULES]
    checker = Checker([impossible_age, unsure, young_and_sure])

    def batch() -> Batch:
        return Batch.from_pandas(frame, model="m", inputs=["age"], outputs=["score"])

    made = batch()
    flags = checker.check(made)
    for code, judge in enumerate(theirs):
        assert flags.row[flags.code == code].tolist() == judge.check_errors(inputs, outputs)
    slow = seconds(lambda: [judge.check_errors(inputs, outputs) for judge in theirs], 3)
    fast = seconds(partial(fresh, checker, made), 50)
    show("assertions.omg.per_row", slow, fast, 5_000)
    show("assertions.omg.per_row_from_pandas", slow, seconds(lambda: checker.check(batch()), 7), None)
    by_record = Checker(
        [assertion(name=str(index), per_record=True)(rule) for index, rule in enumerate(RECORD_RULES)]
    )
    show("assertions.omg.per_record_functions", slow, seconds(lambda: by_record.check(made), 5), None)


def consistency() -> None:
    """Identifiers with one value, and without gaps."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"track": rng.integers(0, TRACKS, TRACKED), "frame": rng.integers(0, 40, TRACKED)})
    frame = frame.sort_values(["frame", "track"], kind="stable").reset_index(drop=True)
    frame["label"] = np.where(rng.random(TRACKED) < 0.02, "van", "car")
    source = inspect.getsource(model_assertions.consistency)
    module: dict[str, Any] = {}
    exec(source.replace("].values\n", "].to_numpy(copy=True)\n"), module)
    batch = Batch.from_pandas(frame, model="m", inputs=["track", "frame", "label"])
    pairs = [
        (
            "identifier",
            module["IdentifierConsistencyAssertion"]("track", "label"),
            identifier_consistency("inputs.track", "inputs.label"),
        ),
        (
            "time",
            module["TimeConsistencyAssertion"]("track", "frame", window=5),
            time_consistency("inputs.track", "inputs.frame", window=5),
        ),
    ]
    for name, theirs, ours in pairs:
        checker = Checker([ours])
        errors = theirs.check_errors(frame, frame.iloc[:, :0])
        flagged = sorted({int(row) for error in errors for row in error})
        assert sorted(checker.check(batch).row.tolist()) == flagged
        assert flagged
        slow = seconds(partial(theirs.check_errors, frame, frame.iloc[:, :0]), 5)
        fast = seconds(partial(fresh, checker, batch), 50)
        show(f"assertions.omg.{name}_consistency", slow, fast, 100)


if __name__ == "__main__":
    per_row()
    consistency()
