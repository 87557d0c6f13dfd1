"""Records per second through journal, CNN shadow, six assertions and flags, against the bare forward loop.

The floor is what the hardware gives to the model alone: the same CNN over the same records, already decoded,
in static batches. Everything that Outrider adds (durable journal, decoding, identity, six assertions in the
host process, flags, sketches, commits) is what lies between the two.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from prometheus_client import CollectorRegistry
from safetensors.torch import save_file
from sqlalchemy import Engine
from torch import nn

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.ledger.cursors import cursor
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import open_database
from outrider.monitor.engine.groups import EngineGroups
from outrider.monitor.host.client import HostClient
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.migrate import migrate
from outrider.monitor.settings.config import load_settings
from outrider.monitor.stream.units import UNIT_ROWS
from outrider.monitor.worker.metrics import WorkerMetrics
from outrider.monitor.worker.pipeline import CHAMPION
from outrider.monitor.worker.process import IDLE_S, Worker

RECORDS = 10_240
BLOCK_ROWS = 1024
RUNS = 5

CONFIG = """
[models.cnn]
architecture = "model.py:build"
weights = "cnn.safetensors"
inputs = ["image"]
classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
assertions = ["checks.py"]
"""

MODEL = '''
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

CHECKS = """
import numpy as np

from outrider.assertions import assertion


@assertion
def unsure(batch):
    return batch.column("outputs.margin") < 0.002


@assertion
def certain(batch):
    return batch.column("outputs.score") > 0.13


@assertion
def dark(batch):
    return batch.tensor("inputs.image").mean(axis=(1, 2)) < 0.48


@assertion
def bright(batch):
    return batch.tensor("inputs.image").mean(axis=(1, 2)) > 0.52


@assertion
def entropy(batch):
    probs = batch.tensor("outputs.probs")
    return -(probs * np.log(probs)).sum(axis=1) > 2.302


@assertion
def disagrees(batch):
    return batch.column("outputs.label") != batch.answers("champion").column("outputs.label")
"""


def project(folder: Path) -> Path:
    """Write configuration, code and random weights."""
    (folder / "outrider.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    (folder / "checks.py").write_text(CHECKS, encoding="utf-8")
    torch.manual_seed(0)
    save_file(module().state_dict(), folder / "cnn.safetensors")
    return folder / "outrider.toml"


def module() -> nn.Module:
    """The CNN."""
    scope: dict[str, object] = {}
    exec(MODEL, scope)
    built: nn.Module = scope["build"]()  # type: ignore[operator]  # defined in the text above
    return built


def forward_loop(images: np.ndarray) -> float:
    """Records per second of the bare model."""
    model = module().eval()
    blocks = torch.split(torch.from_numpy(images), BLOCK_ROWS)
    with torch.inference_mode():
        model(blocks[0])
        start = time.perf_counter()
        for block in blocks:
            torch.softmax(model(block), dim=1)
    return len(images) / (time.perf_counter() - start)


def entries(images: np.ndarray) -> list[Entry]:
    """Blocks as intake hands them to the journal."""
    made = []
    for start in range(0, len(images), BLOCK_ROWS):
        part = images[start : start + BLOCK_ROWS]
        ids = np.array([f"r{start + row}" for row in range(len(part))], dtype=object)
        batch = Batch.from_columns({"id": ids, "inputs.image": part}, model="cnn")
        made.append(Entry(kind="records", model="cnn", rows=batch.rows, payload=batch.to_ipc()))
    return made


def whole_path(images: np.ndarray) -> float:
    """Records per second from the first append to the last committed verdict."""
    with tempfile.TemporaryDirectory() as name:
        config = project(Path(name))
        settings = load_settings(config)
        settings.data_folder.mkdir()
        migrate(settings)
        with SqliteJournal(settings.journal_path, max_bytes=None) as journal:
            engine = open_database(settings.database_url, journal_uuid=journal.uuid)
            host = HostClient(config, deadline_s=10.0)
            metrics = WorkerMetrics(Metrics(CollectorRegistry(), models=("cnn",)))
            engines = EngineGroups(settings, engine, LocalObjects(settings.data_folder / "objects"))
            try:
                worker = Worker(settings, engine, journal, host, engines, metrics=metrics)
                worker.start()
                while worker.context.versions["cnn"].champion is None:
                    engines.wait(IDLE_S)
                    worker.step()
                blocks = entries(images)
                start = time.perf_counter()
                for block in blocks:
                    journal.append([block], int(time.time() * 1e6))
                while judged(engine) < journal.last_seq():
                    if not worker.step():
                        engines.wait(IDLE_S)
                seconds = time.perf_counter() - start
            finally:
                engines.stop()
                host.stop()
                engine.dispose()
    return len(images) / seconds


def judged(engine: Engine) -> int:
    """Last block whose verdicts are committed."""
    with engine.connect() as connection:
        return cursor(connection, "cnn", CHAMPION)


def main() -> None:
    """Measure both, and print the figure."""
    torch.set_num_threads(1)
    images = np.random.default_rng(0).random((RECORDS, 28, 28), dtype=np.float32)
    assert UNIT_ROWS >= BLOCK_ROWS
    pairs = [(forward_loop(images), whole_path(images)) for _ in range(RUNS)]  # side by side: load varies
    floor = statistics.median(pair[0] for pair in pairs)
    Figure.of_pairs(
        "loop.throughput",
        statistics.median(pair[1] for pair in pairs),
        "records/s",
        f"bare static-batch forward loop, {floor:.0f} records/s, 1 thread",
        [whole / bare for bare, whole in pairs],
        data=f"{len(images)} images of 28 x 28, seed 0, in turn; by the clock",
    ).show()


if __name__ == "__main__":
    main()
