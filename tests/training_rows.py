"""Mapped rows and trained modules for tests."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from outrider.assertions import Batch
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import State
from outrider.dataops.training.torch_learner import reinitialise
from outrider.dataops.training.trainer import TrainingTask


def mapped(path: Path, columns: Mapping[str, Any], name: str = "d@1", *, batch_rows: int = 50) -> MappedRows:
    """Rows in an Arrow file, as of a dataset version."""
    table = pa.Table.from_batches([Batch.from_columns(columns, model="m").to_arrow()])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return MappedRows(name, f"digest of {path.name}", path)


def task(
    folder: Path, fresh: MappedRows | None, replay: MappedRows | None = None, **given: Any
) -> TrainingTask:
    """Task of a classifier of two numbers ``a`` and ``b``; ``given`` are fields of the task, else options."""
    fields = {name: given.pop(name) for name in tuple(given) if name in TrainingTask.__slots__}
    source = Source("torch", "model.py:Net", inputs=("a", "b"), classes=(0, 1))
    whole: dict[str, Any] = {
        "model": "m", "champion": None, "source": source, "weights": None, "fresh": fresh, "replay": replay,
        "target": "label", "options": given, "seed": 3, "base": folder, "work": folder / "work",
    }  # fmt: skip
    return TrainingTask(**{**whole, **fields})


def trained(
    architecture: Callable[[], torch.nn.Module], x: torch.Tensor, y: torch.Tensor, *, epochs: int, rate: float
) -> State:
    """Champion of a test: whole batches, nothing of the product's loop."""
    module = reinitialise(architecture, seed=0)
    optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(epochs):
        shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        for some in torch.split(shuffled, 32):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x[some]), y[some]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return module.eval().state_dict()
