"""A training run that is killed: ``python -m tests.dataops.training.killed_run FOLDER ROWS KILLS SEED``.

A checkpoint is written after every step. The run is a child that is killed (SIGKILL) at random moments and
begun again; how often, and the SHA-256 of the weights, stand on the standard output.
"""

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

OPTIONS: dict[str, Any] = {
    "epochs": 4, "learning_rate": 0.02, "replay_ratio": 1.0, "batch_rows": 32, "augment": "model.py:shaken",
    "average": 0.4, "stop_share": 0.2, "class_weights": "balanced", "checkpoint_s": 0.0,
}  # fmt: skip


def train(folder: Path) -> str:
    import torch

    from outrider.dataops.loaders.mapped_rows import MappedRows
    from outrider.dataops.model_kinds.source import Source
    from outrider.dataops.training.trainers import train_version
    from tests.training_rows import task

    torch.set_num_threads(1)
    fresh, old = (MappedRows(f"{name}@1", name, folder / f"{name}.arrow") for name in ("fresh", "old"))
    source = Source("torch", "model.py:Stem", inputs=("a", "b"), classes=(0, 1))
    given = task(folder, fresh, old, source=source, **OPTIONS)
    return hashlib.sha256(train_version(given, lambda _: None).weights or b"").hexdigest()


def main() -> None:
    import torch  # before the forks: each would take seconds for it

    import outrider.dataops.training.trainers  # noqa: F401
    import tests.training_rows  # noqa: F401

    torch.set_num_threads(1)
    folder, kills, luck = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    work, killed = folder / "work" / "checkpoint.safetensors", 0
    while True:
        child = os.fork()
        if not child:
            (folder / "digest").write_text(train(folder))
            os._exit(0)
        before = work.stat().st_mtime_ns if work.exists() else 0
        if killed < kills:
            while not os.waitpid(child, os.WNOHANG)[0]:
                if work.exists() and work.stat().st_mtime_ns != before:  # it went on
                    time.sleep(luck.random() * 0.02)
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    killed += 1
                    break
                time.sleep(0.0005)
            else:
                break
        else:
            os.waitpid(child, 0)
            break
    sys.stdout.write(f"{killed} {(folder / 'digest').read_text()}\n")


if __name__ == "__main__":
    main()
