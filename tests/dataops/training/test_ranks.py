"""Two processes learn what one does, from the same rows in every step."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load

from outrider.dataops.training.ranks import Ranks
from tests.training_rows import mapped

from .ranks_run import train
from .test_loop import MODEL, columns, one_thread

__all__ = ["one_thread"]
STILL = """
import os

def still(x, generator):
    with open(os.environ["STEPS"], "a") as file:
        file.write(" ".join(f"{value:.6f}" for value in sorted(x[:, 0].tolist())) + chr(10))
    return x
"""


def steps(path: Path) -> list[list[float]]:
    return [[float(value) for value in line.split()] for line in path.read_text().splitlines()]


@pytest.mark.costly("torchrun starts its processes, imports and all")
def test_two_processes_learn_what_one_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text(MODEL + STILL)
    mapped(tmp_path / "fresh.arrow", columns(1), "fresh@1")
    mapped(tmp_path / "old.arrow", columns(2, faulty=True, rows=300), "old@1")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "-m", "tests.dataops.training.ranks_run",
        str(tmp_path),
    ]  # fmt: skip
    together = subprocess.run(command, capture_output=True, text=True, check=False)
    assert together.returncode == 0, together.stderr
    monkeypatch.setenv("STEPS", str(tmp_path / "steps"))
    alone = train(tmp_path, "alone")
    assert alone.weights is not None
    weights = [(tmp_path / f"weights-{rank}").read_bytes() for rank in (0, 1)]
    assert weights[0] == weights[1]
    expected = load(alone.weights)
    for name, tensor in load(weights[0]).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)
    halves = zip(steps(tmp_path / "steps-0"), steps(tmp_path / "steps-1"), strict=True)
    assert [sorted(first + second) for first, second in halves] == steps(tmp_path / "steps")
    figures = json.loads((tmp_path / "figures-0.json").read_text())
    assert figures["steps"] == alone.figures["steps"]
    assert figures["stop_losses"] == pytest.approx(alone.figures["stop_losses"], rel=1e-4)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_the_ranks_divide_each_step_and_each_has_a_row(ranks: int) -> None:
    order, ends = np.arange(100, 131), [8, 16, 24, 28, 30, 31]
    shares = [Ranks(rank, ranks).share(order, ends) for rank in range(ranks)]
    for step, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        rows = [part[([0, *own])[step] : own[step]].tolist() for part, own in shares]
        assert all(rows)
        own_rows = rows[: end - start]  # the others' row is weighed 0
        assert sorted(row for part in own_rows for row in part) == order[start:end].tolist()
