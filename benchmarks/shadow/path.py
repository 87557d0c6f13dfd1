"""The whole path, HTTP to flags, against the static-batch ceiling of the model alone.

A real service (`outrider serve`) gets Arrow blocks over HTTP; the round ends when the verdicts of the last
record are committed. The ceiling is the same module over the same decoded records, in the best of a few
static batches, on one thread. Both are measured in turn.

The figure compares CPU seconds, which other work on the machine hardly changes: of the ceiling, and of the
busier of two cores, one of which runs the engine and the other one everything else (intake, worker, assertion
host, trainer). What the processes take when nothing comes is measured first; it is their cores that have so
much less left. Wall time is shown beside it, without a target: on a crowded machine many processes get more
than one does. The engine is told the batch of the ceiling (`shadow.batch_rows`); how well it chooses is
`shadow.batcher`'s.
"""

import argparse
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn

from benchmarks.figure import Figure
from outrider.assertions import Batch

TARGET = 0.8
BATCHES = (16, 64, 256)
"""Static batches that the ceiling is the best of."""
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")

CNN = '''
"""A CNN of the size that watches a 28 x 28 stream."""

from torch import nn


def build():
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    )
'''
TRANSFORMER = '''
"""Six layers of width 384 over 32 tokens."""

from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 384)
        layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, dropout=0.0, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(384, 10)

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x.long())).mean(1))


def build():
    return Classifier()
'''
CHECKS = """
import numpy as np

from outrider.assertions import assertion


@assertion
def unsure(batch):
    return batch.column("outputs.margin") < 1e-4


@assertion
def certain(batch):
    return batch.column("outputs.score") > 0.5


@assertion
def low(batch):
    x = batch.tensor("inputs.x")
    return x.reshape(len(x), -1).mean(axis=1) < 0.48


@assertion
def entropy(batch):
    probs = batch.tensor("outputs.probs")
    return -(probs * np.log(probs)).sum(axis=1) > 2.302


@assertion
def other_than_the_champion(batch):
    return batch.column("outputs.label") != batch.answers("champion").column("outputs.label")


@assertion
def high_of_the_first_class(batch):
    x = batch.tensor("inputs.x")
    return (batch.column("outputs.label") == 0) & (x.reshape(len(x), -1).mean(axis=1) > 0.52)
"""
CONFIG = """
[server]
port = 0

[models.m]
architecture = "model.py:build"
weights = "m.safetensors"
inputs = ["x"]
classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
assertions = ["checks.py"]

[models.m.shadow]
noise_rate = 0.0
batch_rows = {batch_rows}
"""
IDLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Case:
    """A model and what it is fed."""

    name: str
    code: str
    shape: tuple[int, ...]
    records: int
    block_rows: int

    def inputs(self, seed: int) -> NDArray[np.float32]:
        """Records of one round."""
        rng = np.random.default_rng(seed)
        if self.name == "transformer":
            return rng.integers(0, 1000, (self.records, *self.shape)).astype(np.float32)
        return rng.random((self.records, *self.shape), dtype=np.float32)

    def module(self) -> nn.Module:
        """The untrained model; its weights are the same each time."""
        torch.manual_seed(0)
        scope: dict[str, object] = {}
        exec(self.code, scope)
        return scope["build"]().eval()  # type: ignore[operator,no-any-return]  # defined in the text above


CASES = (
    Case("cnn", CNN, (28, 28), 4096, 256),
    Case("transformer", TRANSFORMER, (32,), 256, 64),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one round.

    Attributes
    ----------
    cpu
        Of the thread, or of the busier of two cores.
    """

    cpu: float
    wall: float


def ceiling(module: nn.Module, inputs: NDArray[np.float32], batch_rows: int) -> Cost:
    """The bare loop over records that are at hand."""
    parts = torch.split(torch.from_numpy(inputs), batch_rows)
    with torch.inference_mode():
        cpu, wall = time.thread_time(), time.perf_counter()
        for part in parts:
            torch.softmax(module(part), dim=1)
        return Cost(time.thread_time() - cpu, time.perf_counter() - wall)


class Service:
    """``outrider serve`` over one model, and what its processes have cost."""

    def __init__(self, folder: Path, case: Case, batch_rows: int, more: str = "") -> None:
        self.data = folder / "outrider-data"
        config = CONFIG.format(batch_rows=batch_rows) + more
        for name, text in (("outrider.toml", config), ("model.py", case.code), ("checks.py", CHECKS)):
            (folder / name).write_text(text, encoding="utf-8")
        save_file(case.module().state_dict(), folder / "m.safetensors")
        command = [sys.executable, "-m", "outrider", "serve", "--config", str(folder / "outrider.toml")]
        with (folder / "serve.log").open("wb") as log:
            self.process = subprocess.Popen([*command, "--port", "0"], stdout=log, stderr=log)
        self.client = httpx.Client(timeout=60)
        self._await(lambda: (self.data / "run" / "server.json").exists() and (self.data / "key").exists())
        self.client.base_url = json.loads((self.data / "run" / "server.json").read_text())["url"]
        self.client.headers["authorization"] = f"Bearer {(self.data / 'key').read_text().strip()}"
        self.client.headers["content-type"] = "application/vnd.apache.arrow.stream"
        self._sent = 0
        self._idle = (0.0, 0.0)
        """Share of a core that the engine takes when nothing comes, and that of all others."""

    def _await(self, is_done: Callable[[], bool], timeout_s: float = 600.0) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            with suppress(OSError, httpx.TransportError, sqlite3.Error):
                if is_done():
                    return
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError("the service did not get there")
            time.sleep(0.01)

    def judged(self) -> int:
        """Records whose verdicts are committed."""
        with sqlite3.connect(f"file:{self.data / 'state.db'}?mode=ro", uri=True) as state:
            row = state.execute(
                "SELECT value FROM counter WHERE slot = 'champion' AND name = 'records'"
            ).fetchone()
        return 0 if row is None else int(row[0])

    def run(self, inputs: NDArray[np.float32], block_rows: int) -> Cost:
        """Send records in blocks, and wait for the verdict of the last one."""
        bodies = []
        for start in range(0, len(inputs), block_rows):
            part = inputs[start : start + block_rows]
            ids = np.array([f"r{self._sent + row}" for row in range(len(part))], dtype=object)
            self._sent += len(part)
            bodies.append(Batch.from_columns({"id": ids, "inputs.x": part}, model="m").to_ipc())
        before, wall = self.cpu_s(), time.perf_counter()
        for body in bodies:
            while self.client.post("/v1/records", params={"model": "m"}, content=body).status_code != 202:
                time.sleep(0.05)
        self._await(lambda: self.judged() >= self._sent)
        seconds = time.perf_counter() - wall
        return Cost(max(self._cores(before, self.cpu_s(), seconds)), seconds)

    def rest(self) -> None:
        """Measure what the processes take when nothing comes."""
        before, wall = self.cpu_s(), time.perf_counter()
        time.sleep(IDLE_S)
        seconds, self._idle = time.perf_counter() - wall, (0.0, 0.0)
        engine, others = self._cores(before, self.cpu_s(), seconds)
        self._idle = engine / seconds, others / seconds

    def _cores(
        self, before: dict[str, float], after: dict[str, float], seconds: float
    ) -> tuple[float, float]:
        """Seconds of a core that the engine takes, and of one that all others take."""
        spent = {role: total - before.get(role, 0.0) for role, total in after.items()}
        engine = spent.pop("engine", 0.0)
        found = [
            max(0.0, used - idle * seconds) / (1.0 - idle)
            for used, idle in zip((engine, sum(spent.values())), self._idle, strict=True)
        ]
        return found[0], found[1]

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds so far by process."""
        found: dict[str, float] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, IndexError, ValueError):
                pid = int(stat.parent.name)
                if not self._is_ours(pid):
                    continue
                command = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                fields = stat.read_text().rpartition(")")[2].split()
                role = command.partition("outrider.monitor.")[2].partition(" ")[0] or "supervisor"
                found[role] = found.get(role, 0.0) + (int(fields[11]) + int(fields[12])) * TICK_S
        return found

    def _is_ours(self, pid: int) -> bool:
        while pid > 1:
            if pid == self.process.pid:
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return False

    def stop(self) -> None:
        """End the service."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@contextmanager
def service(case: Case, batch_rows: int, more: str = "") -> Iterator[Service]:
    """A service that is ended behind it; ``more`` is added to its configuration."""
    with tempfile.TemporaryDirectory() as folder:
        running = Service(Path(folder), case, batch_rows, more)
        try:
            yield running
        finally:
            running.stop()


def measure(case: Case, rounds: int) -> None:
    """Both in turn, and the figures."""
    module = case.module()
    costs: list[tuple[Cost, Cost]] = []
    floors = {rows: ceiling(module, case.inputs(98), rows).cpu for rows in BATCHES}
    best = min(floors, key=lambda rows: floors[rows])
    with service(case, best) as running:
        running.run(case.inputs(99), case.block_rows)  # loads and warms up
        running.rest()
        for number in range(rounds):
            inputs = case.inputs(number)
            costs.append((ceiling(module, inputs, best), running.run(inputs, case.block_rows)))
    floor = case.records / statistics.median(bare.cpu for bare, _ in costs)
    data = (
        f"{case.records} records a round over HTTP, blocks of {case.block_rows}, in turn with the bare loop"
    )
    Figure.of_pairs(
        f"shadow.path.{case.name}",
        case.records / statistics.median(path.cpu for _, path in costs),
        "records/CPU s of the busier of two cores",
        f"static batches of {best}, {floor:.0f} records/CPU s, 1 thread",
        [bare.cpu / path.cpu for bare, path in costs],
        TARGET,
        data=f"{data}; CPU seconds",
    ).show()
    bare_wall = case.records / statistics.median(bare.wall for bare, _ in costs)
    Figure.of_pairs(
        f"shadow.path.{case.name}.wall",
        case.records / statistics.median(path.wall for _, path in costs),
        "records/s",
        f"the same by the clock, {bare_wall:.0f} records/s",
        [bare.wall / path.wall for bare, path in costs],
        data=f"{data}; by the clock",
    ).show()


def main() -> None:
    """Measure the path of each model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=[case.name for case in CASES])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in CASES:
        if options.only in (None, case.name):
            measure(case, options.rounds)


if __name__ == "__main__":
    main()
