"""The training loop against bare torch, and its memory with ten times the rows.

``python -m benchmarks.improvement.training [PAIRS]``. The bare loop has all rows as tensors in memory, draws a
random order for each epoch, and does the steps and no more: gradients to none, forward, loss, backward, Adam,
the falling rate. The loop of Outrider reads the same rows from a mapped Arrow file, checks their labels, and
writes checkpoints each 30 s; loading the module, checking and the last report are in its time. Pairs are
measured in turn. Memory is the peak of a fresh process over what it has before it trains.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
from outrider.dataops.training.trainers import trainer_of
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
    trainer_of(source, options).train(task, lambda _: None)


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


def seconds(work: Callable[[], None]) -> float:
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
                of_bare = seconds(lambda net=net, rows=rows, epochs=epochs: bare(rows, net, epochs))  # type: ignore[misc]
                of_loop = seconds(
                    lambda net=net, rows=rows, epochs=epochs: loop(rows, net, epochs, folder / "work")
                )  # type: ignore[misc]
                if pair >= 0:
                    ours.append(count * epochs / of_loop)
                    theirs.append(count * epochs / of_bare)
            ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
            Figure.of_pairs(
                f"improvement.training.{size}.{name}", statistics.median(ours), "rows/s",
                f"{statistics.median(theirs):.0f} rows/s of a bare torch loop", ratios, TARGET,
                data=f"{count} random 8 x 8 images, {epochs} epochs of {BATCH_ROWS}, {net}, one CPU thread",
            ).show()  # fmt: skip


def peaks(path: Path) -> None:
    """Print the peak of this process in kB, without and with mapped files, over that before training."""
    rows = MappedRows("digits@1", path.stem, path)
    torch.set_num_threads(1)
    loop(digits(path.with_suffix(".warm"), 500), "SmallNet", 1, path.parent / path.stem)
    before = usage()
    highest = [0, 0]

    def look(_: object) -> None:
        highest[:] = [max(old, new) for old, new in zip(highest, usage(), strict=True)]

    options: dict[str, Any] = {"epochs": 1, "batch_rows": BATCH_ROWS}
    source = Source("torch", "model.py:SmallNet", inputs=("image",), classes=tuple(range(10)))
    task = TrainingTask(
        "digits", None, source, None, rows, None, "label", options, seed=0, base=PROJECT,
        work=path.parent / path.stem,
    )  # fmt: skip
    trainer_of(source, options).train(task, look)
    own = [
        int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    ]
    print(json.dumps({"before": before, "highest": highest, "peak": own[0]}))


def usage() -> list[int]:
    """Memory of this process in kB: of its own, and with mapped files."""
    found = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return [int(found[name].split()[0]) for name in ("RssAnon", "VmRSS")]


def memory(folder: Path) -> None:
    """Peak of a process that trains, with as many rows and with ten times as many."""
    peak = []
    for count in (MEMORY_ROWS, 10 * MEMORY_ROWS):
        path = folder / f"{count}.arrow"
        digits(path, count)
        command = [sys.executable, "-m", "benchmarks.improvement.training", "--peak", str(path)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        peak.append(json.loads(out)["peak"] / 1024)
    Figure(
        "improvement.training.memory", peak[1], "MB, peak with mapped files",
        f"{peak[0]:.0f} MB with a tenth of the rows", peak[0] / peak[1], 1 / MOST,
        data=f"{10 * MEMORY_ROWS} random 8 x 8 images, SmallNet, one epoch",
    ).show()  # fmt: skip


def main() -> None:
    """Print all figures."""
    if sys.argv[1:2] == ["--peak"]:
        peaks(Path(sys.argv[2]))
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=".") as name:
        memory(Path(name))
        speed(Path(name), int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)


if __name__ == "__main__":
    main()
