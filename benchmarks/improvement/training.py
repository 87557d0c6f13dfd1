"""The training loop against bare torch, and its memory with ten times the rows.

``python -m benchmarks.improvement.training [PAIRS]``. The bare loop has all rows as tensors in memory, draws
a random order for each epoch, and does the steps and no more: gradients to none, forward, loss, backward,
Adam, the falling rate. Outrider's loop reads the same rows from a mapped Arrow file, checks their labels, and
writes checkpoints each 30 s; loading the module, checking and the last report are in its time. Pairs are
measured in turn. Memory is the peak of a process, mapped files included.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import load_architecture
from outrider.dataops.training.trainer import TrainingTask
from outrider.dataops.training.trainers import train_version
from outrider.dataset_reference import CACHED_ROWS

PROJECT = Path(__file__).parents[2] / "outrider" / "demo" / "project"
BATCH_ROWS, RATE = 64, 1e-3
SIZES = {"few_rows": (2_000, 40), "many_rows": (50_000, 2)}
"""Rows and epochs: those that are encoded once and kept, and those that are read in blocks."""
NETS = {"conv": "DigitNet", "small": "SmallNet"}
PAIRS = 7
MEMORY_ROWS = 30_000
TARGET, MOST = 0.9, 1.2


def digits(path: Path, rows: int, seed: int = 0) -> MappedRows:
    """Images of 8 by 8 random pixels with random classes, as a dataset version is mapped."""
    draw = np.random.default_rng(seed)
    with path.open("wb") as file:
        writer = None
        for start in range(0, rows, CACHED_ROWS):
            count = min(CACHED_ROWS, rows - start)
            columns = {
                "id": [f"digit-{start + row}" for row in range(count)],
                "inputs.image": draw.random((count, 8, 8), np.float32),
                "label.label": draw.integers(0, 10, count),
            }
            batch = Batch.from_columns(columns, model="digits").to_arrow()
            writer = writer or pa.ipc.new_stream(file, batch.schema)
            writer.write_batch(batch)
        assert writer is not None
        writer.close()
    return MappedRows("digits@1", str(rows), path)


def loop(rows: MappedRows, net: str, epochs: int, work: Path) -> None:
    """Train by the loop, in a folder of its own."""
    for left in work.glob("*"):
        left.unlink()
    options: dict[str, Any] = {"epochs": epochs, "batch_rows": BATCH_ROWS, "learning_rate": RATE}
    source = Source("torch", f"model.py:{net}", inputs=("image",), classes=tuple(range(10)))
    task = TrainingTask(
        "digits", None, source, None, rows, None, "label", options, seed=0, base=PROJECT, work=work
    )
    train_version(task, lambda _: None)


def bare(rows: MappedRows, net: str, epochs: int) -> None:
    """Train by a loop of torch alone, its rows in memory."""
    batch = Batch.from_arrow(rows.table, model="digits")
    x = torch.from_numpy(np.array(batch.tensor("inputs.image")))
    y = torch.from_numpy(np.array(batch.column("label.label")))
    module = load_architecture(f"model.py:{net}", PROJECT)().train()
    optimiser = torch.optim.Adam(module.parameters(), lr=RATE)
    steps = epochs * -(-len(y) // BATCH_ROWS)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=steps)
    for _ in range(epochs):
        for chunk in torch.split(torch.randperm(len(y)), BATCH_ROWS):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(x[chunk]), y[chunk])
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation here
            optimiser.step()
            schedule.step()


def seconds(work: Callable[[], object]) -> float:
    """Time that work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def speed(folder: Path, pairs: int) -> None:
    """Rows a second, of both loops in turn."""
    for size, (count, epochs) in SIZES.items():
        rows = digits(folder / f"{size}.arrow", count)
        for name, net in NETS.items():
            ours, theirs = [], []
            for pair in range(-1, pairs):  # the first warms up
                of_bare = seconds(partial(bare, rows, net, epochs))
                of_loop = seconds(partial(loop, rows, net, epochs, folder / "work"))
                if pair >= 0:
                    ours.append(count * epochs / of_loop)
                    theirs.append(count * epochs / of_bare)
            ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
            Figure.of_pairs(
                f"improvement.training.{size}.{name}", statistics.median(ours), "rows/s",
                f"{statistics.median(theirs):.0f} rows/s of a bare torch loop", ratios, TARGET,
                data=f"{count} random 8 x 8 images, {epochs} epochs of {BATCH_ROWS}, {net}, one CPU thread",
            ).show()  # fmt: skip


def print_peak(path: Path) -> None:
    """Print the peak of this process in MB once it has trained."""
    torch.set_num_threads(1)
    loop(MappedRows("digits@1", path.stem, path), "SmallNet", 1, path.parent / path.stem)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")))


def memory(folder: Path) -> None:
    """Peak of a process that trains, with as many rows and with ten times as many."""
    peak = []
    for count in (MEMORY_ROWS, 10 * MEMORY_ROWS):
        path = folder / f"{count}.arrow"
        digits(path, count)
        command = [sys.executable, "-m", "benchmarks.improvement.training", "--peak", str(path)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        peak.append(float(out))
    Figure(
        "improvement.training.memory", peak[1], "MB, peak with mapped files",
        f"{peak[0]:.0f} MB with a tenth of the rows", peak[0] / peak[1], 1 / MOST,
        data=f"{10 * MEMORY_ROWS} random 8 x 8 images, SmallNet, one epoch",
    ).show()  # fmt: skip


def main() -> None:
    """Print all figures."""
    if sys.argv[1:2] == ["--peak"]:
        print_peak(Path(sys.argv[2]))
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=".") as name:
        memory(Path(name))
        speed(Path(name), int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)


if __name__ == "__main__":
    main()
