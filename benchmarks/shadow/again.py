"""What it costs that champion and challenger answer a share of the records twice, on one thread.

A CNN over 28 x 28 images and a challenger of other weights, in units of 1,024 records; in turn without and
with second answers, whose share is drawn anew for each unit.
"""

import statistics
import time

import numpy as np
import torch

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.monitor.engine.asks import Ask
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import LoadedVersion

ROWS, ROUNDS = 1024, 15


def cnn(seed: int) -> torch.nn.Module:
    """A CNN of the size that watches a 28 x 28 stream."""
    torch.manual_seed(seed)
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def seconds(engine: Engine, batch: Batch, again: tuple[int, ...]) -> float:
    """Seconds of this thread for the answers of both to one unit."""
    engine.submit(Ask(1, "m", ("1", "2"), batch, again=again))
    began = time.thread_time()
    while engine.waiting:
        engine.step()
    return time.thread_time() - began


def main() -> None:
    """Ratio of the time with second answers to that without."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    engine = Engine()
    for version in ("1", "2"):
        runner = TorchRunner(cnn(int(version)), inputs=["image"], classes=list(range(10)))
        engine.add(LoadedVersion(("m", version), Source("torch", "m.py:f"), runner))
    images = rng.random((ROWS, 28, 28)).astype(np.float32)
    batch = Batch.from_columns({"inputs.image": images}, model="m", rows=ROWS)
    for _ in range(2):
        seconds(engine, batch, ())
    for share in (0.05, 0.1, 0.3):
        ratios = []
        for _ in range(ROUNDS):
            drawn = tuple(np.flatnonzero(rng.random(ROWS) < share).tolist())
            plain = seconds(engine, batch, ())
            ratios.append(seconds(engine, batch, drawn) / plain)
        low, high = np.quantile(ratios, (0.25, 0.75)).tolist()
        value = statistics.median(ratios)
        Figure(
            f"shadow.again.{round(100 * share)}", value, "times", "no second answers", value,
            n=ROUNDS, low=low, high=high, data="pairs of units of 1,024 records in turn, seed 0; quartiles",
        ).show()  # fmt: skip


if __name__ == "__main__":
    main()
