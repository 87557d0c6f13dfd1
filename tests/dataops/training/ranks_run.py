"""Training by several processes: ``torchrun -m tests.dataops.training.ranks_run FOLDER``."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.training.trainer import TrainedModel
from outrider.dataops.training.trainers import train_version
from tests.training_rows import task

OPTIONS: dict[str, Any] = {
    "epochs": 3, "learning_rate": 0.02, "replay_ratio": 1.0, "batch_rows": 33, "stop_share": 0.2,
    "class_weights": "balanced", "average": 0.5, "augment": "model.py:still",
}  # fmt: skip


def train(folder: Path, work: str) -> TrainedModel:
    """Train on all ranks; each notes the rows of its steps."""
    torch.set_num_threads(1)
    fresh, old = (MappedRows(f"{name}@1", name, folder / f"{name}.arrow") for name in ("fresh", "old"))
    source = Source("torch", "model.py:Plain", inputs=("a", "b"), classes=(0, 1))
    given = task(folder, fresh, old, source=source, work=folder / work, **OPTIONS)
    return train_version(given, lambda _: None)


if __name__ == "__main__":
    home, rank = Path(sys.argv[1]), os.environ["RANK"]
    os.environ["STEPS"] = str(home / f"steps-{rank}")
    made = train(home, "together")
    (home / f"weights-{rank}").write_bytes(made.weights or b"")
    (home / f"figures-{rank}.json").write_text(json.dumps(dict(made.figures)))
    torch.distributed.destroy_process_group()
