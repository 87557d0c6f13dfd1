"""A small classifier of points, trained on the spot, as a version that can be compressed."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch, assertion
from outrider.behavioral_tests import MFT, Suite
from outrider.dataops.compression.distillation import Distilling
from outrider.dataops.compression.ladder import CompressionTask
from outrider.dataops.compression.timing import Effort
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights

CODE = """
import torch

def big():
    return torch.nn.Sequential(
        torch.nn.Linear(8, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(),
        torch.nn.Linear(256, 2),
    )

def small():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
"""


def points(rows: int, seed: int) -> Batch:
    """Points of eight numbers; those whose first is above zero are positive."""
    x = np.random.default_rng(seed).normal(0, 1, (rows, 8)).astype(np.float32)
    columns = {f"inputs.x{column}": x[:, column] for column in range(8)}
    return Batch.from_columns({"id": [f"{seed}-{row}" for row in range(rows)], **columns}, model="points")


@cache
def weights() -> bytes:
    """Weights of ``big``, trained on points far enough from the border to be sure of."""
    scope: dict[str, object] = {}
    exec(CODE, scope)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module: torch.nn.Sequential = scope["big"]()  # type: ignore[operator]
        optimiser = torch.optim.Adam(module.parameters(), lr=3e-3)
        for _ in range(60):
            x = torch.randn(256, 8)
            loss = torch.nn.functional.cross_entropy(module(x), (x[:, 0] > 0).long())
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation here
            optimiser.step()
    return dump_weights(module.state_dict())


def source() -> Source:
    return Source("torch", "net.py:big", inputs=tuple(f"x{n}" for n in range(8)), classes=(0, 1))


@assertion
def surely_wrong(batch: Batch) -> NDArray[np.bool_]:
    """Clearly positive, and not called so."""
    return np.asarray((batch.column("inputs.x0") > 0.5) & (batch.column("outputs.label") == 0))


def suite() -> Suite:
    far = [{f"x{n}": float(v) if n == 0 else 0.0 for n in range(8)} for v in np.linspace(1, 3, 40)]
    test = MFT(name="test_far_points", cases=far, labels=1, capability="border")
    return Suite("points", (test,))


def task(folder: Path, **more: object) -> CompressionTask:
    """The champion, 400 records to judge on and 600 to distil on."""
    (folder / "net.py").write_text(CODE)
    given: dict[str, object] = {
        "assertions": [surely_wrong],
        "suites": [suite()],
        "traffic": points(600, 1),
        "student": "net.py:small",
        "effort": Effort(calls=30, latency_s=0.1, rounds=3),
        "distilling": Distilling(epochs=20, learning_rate=1e-2),
    }
    given |= more
    return CompressionTask(
        source(),
        weights(),
        "points@1",
        folder,
        points(400, 2),
        points(400, 3),
        **given,  # type: ignore[arg-type]
    )
