"""Labels of flagged people repair a census model that is trained elsewhere, beside as many random labels.

``python -m benchmarks.improvement.census``: the first version learned from people without capital gain or
loss; then people come as they are, 13 % of them with either, and an assertion flags what no old row had. One
run goes through the real processes of ``examples/external_training`` by the clock. The gains over seeds call
its training in process, on old rows and labels; measured on people whom neither has seen.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import show_table

from ._census import OLD, POOL, TEST, fitted, joined, people, repair
from ._gains import show_gain

LABELS = 200
STEM = "improvement.census"


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    every = people()
    old, pool, test = (every.take(part) for part in (OLD, POOL, TEST))
    old = old.take(np.flatnonzero(~old.has_capital))
    base = right(fitted(old, 0).predict(test.rows), test.y)
    each: dict[str, list[NDArray[np.float64]]] = {"flagged": [], "random": []}
    for name, rows in (("flagged", np.flatnonzero(pool.has_capital)), ("random", np.arange(len(pool)))):
        for seed in range(seeds):
            some = np.random.default_rng(seed).choice(rows, LABELS, replace=False)
            model = fitted(joined(old, pool.take(some)), seed)
            each[name].append(right(model.predict(test.rows), test.y))
    found = {name: np.mean(some, axis=0) for name, some in each.items()}
    with tempfile.TemporaryDirectory() as name:
        clock, weights = repair(Path(name), old, pool)
    show(base, found, right(answers(weights, test.rows), test.y), test.has_capital, seeds)
    draws = np.subtract(each["flagged"], each["random"])[:, test.has_capital].mean(axis=1)
    show_gain(f"{STEM}.against_random.draws", draws, 0.0, f"adult_census, {LABELS} labels, by seed")
    clock.show(STEM, "other work beside it; 400 labels at once, about half for the gate")


def show(
    base: NDArray[np.float64],
    found: dict[str, NDArray[np.float64]],
    outside: NDArray[np.float64],
    is_flagged: NDArray[np.bool_],
    seeds: int,
) -> None:
    """Print gains and the table."""
    data = f"adult_census, {LABELS} labels, {seeds} seeds"
    for name, after in found.items():
        gain = after - base
        show_gain(f"{STEM}.{name}.slice", gain[is_flagged], 0.0, data)
        show_gain(f"{STEM}.{name}.all", gain, 0.0, data)
        show_gain(f"{STEM}.{name}.others", gain[~is_flagged], -0.01, data)
    more = found["flagged"] - found["random"]
    show_gain(f"{STEM}.against_random.slice", more[is_flagged], 0.0, data)
    show_gain(f"{STEM}.against_random.all", more, None, data)
    gain = outside - base
    one = "adult_census, the version that the external job made"
    show_gain(f"{STEM}.job.slice", gain[is_flagged], 0.0, one)
    show_gain(f"{STEM}.job.others", gain[~is_flagged], -0.01, one)
    titled = {"nothing: the first version": base}
    titled |= {f"{LABELS} {name} labels": after for name, after in found.items()}
    titled["flagged labels, by the external job"] = outside
    lines = ["| learned | with capital | others | all |", "|---|---|---|---|"]
    for title, after in titled.items():
        parts = after[is_flagged], after[~is_flagged], after
        lines.append(f"| {title} | " + " | ".join(f"{part.mean():.3f}" for part in parts) + " |")
    show_table("accuracy", "\n".join(lines))


def right(said: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """One for each right answer."""
    return np.asarray(said == y, dtype=np.float64)


def answers(weights: bytes, x: NDArray[np.float32]) -> NDArray[Any]:
    """Answers of an ONNX file."""
    from onnxruntime import InferenceSession

    session = InferenceSession(weights, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: x})[0])


if __name__ == "__main__":
    main()
