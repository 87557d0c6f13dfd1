"""What another process on the same device notices of shadow models."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch

from outrider.monitor.engine.device import Device
from outrider.monitor.engine.executor import Alone, Executor

from ._figures import GpuFigure
from ._floor import median_ratio
from ._models import TextModel, token_rows
from ._setup import NAME, Bench, adopted, whole

DUTY = 0.25
ROWS = 8
"""A pass that lasts no longer than a request: the other process waits for one of them at most."""
ROUNDS = 3
MPS_PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"


@contextmanager
def neighbour(kind: str) -> Iterator[subprocess.Popen[str]]:
    """The other process, ready."""
    environment = {name: value for name, value in os.environ.items() if name != MPS_PRIORITY}
    command = [sys.executable, "-m", "benchmarks.gpu._neighbour_process", "--device", kind]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=root
    )
    try:
        if _out(process).readline().strip() != "ready":
            raise RuntimeError(f"the other process ended with {process.wait(10)}")
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
        _out(process).close()


def measure(bench: Bench) -> list[GpuFigure]:
    """Its p99 alone, over that beside the engine at a quarter of the time."""
    scale, kind = bench.scale, bench.kind
    torch.manual_seed(0)
    module = TextModel(scale)
    device = bench.device(duty=DUTY)
    executor = Alone(NAME, adopted(device, module))
    rounds = ROUNDS if kind == "cuda" else 1
    alone, beside = [], []
    with neighbour(kind) as process:
        for _ in range(rounds):
            _ask(process, scale.neighbour_s)
            alone.append(_read(process))
            _ask(process, scale.neighbour_s)
            rows_s = _run(bench, device, executor, scale.neighbour_s)
            beside.append(_read(process))
    before, after = ([seen["p99_s"] for seen in many] for many in (alone, beside))
    middle = sorted(beside, key=lambda seen: seen["p99_s"])[rounds // 2]
    p50s = f"p50 {1e3 * alone[0]['p50_s']:.3g} ms alone, {1e3 * middle['p50_s']:.3g} beside"
    against = f"alone; the engine did {rows_s:.3g} rows/s at duty {DUTY}; {p50s}"
    value, ratio = 1e3 * middle["p99_s"], median_ratio(before, after)
    return [GpuFigure("gpu.neighbour", value, "ms p99", against, ratio, 1 / 1.1)]


def _run(bench: Bench, device: Device, executor: Executor, seconds: float) -> float:
    """Rows per second of shadow models that go on for a while."""
    rows = token_rows(bench.scale, ROWS)
    until, passes = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        time.sleep(device.pause_s())
        device.fly(executor, rows, whole(rows)).land()
        passes += 1
    return passes * ROWS / seconds


def _ask(process: subprocess.Popen[str], seconds: float) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()


def _read(process: subprocess.Popen[str]) -> dict[str, float]:
    seen: dict[str, float] = json.loads(_out(process).readline())
    return seen


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout
