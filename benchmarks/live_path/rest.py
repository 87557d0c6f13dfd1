"""What a service with one scikit-learn model takes while nothing comes: memory and processor time.

``python -m benchmarks.live_path.rest``: ``outrider serve`` with one logistic regression has judged a record.
Memory is the proportional set of all its processes: pages that they share count once.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks.figure import Figure

MOST_MB = 600.0
MOST_SHARE = 0.03
SETTLE_S, REST_S = 30.0, 60.0
CONFIG = """
[server]
port = 0

[models.toy]
predictor = "model.py:predict"
inputs = ["x", "y"]
target = "label"
assertions = ["checks.py"]
"""
MODEL = """
import numpy as np
from sklearn.linear_model import LogisticRegression

rows = np.random.default_rng(0).normal(size=(200, 2))
fitted = LogisticRegression().fit(rows, rows.sum(axis=1) > 0)


def predict(batch):
    found = fitted.predict_proba(np.column_stack([batch.column("inputs.x"), batch.column("inputs.y")]))[:, 1]
    return {"label": (found > 0.5).astype(int), "score": np.maximum(found, 1 - found)}
"""
CHECKS = """
from outrider.assertions import assertion


@assertion
def far(batch):
    return batch.column("inputs.x") > 3
"""


def main() -> None:
    """Print both figures."""
    with tempfile.TemporaryDirectory() as name, service(Path(name)) as root:
        time.sleep(SETTLE_S)
        before, began = cpu_s(root), time.monotonic()
        time.sleep(REST_S)
        share = (cpu_s(root) - before) / (time.monotonic() - began)
        memory = sum(map(proportional_mb, tree(root)))
    data = f"one logistic regression, {REST_S:.0f} s at rest, all processes"
    Figure(
        "live_path.rest.memory", memory, "MB", f"{MOST_MB:.0f} MB over it", MOST_MB / memory, 1.0, data=data
    ).show()
    Figure(
        "live_path.rest.cpu", 100 * share, "% of a core", f"{100 * MOST_SHARE:.0f} % over it",
        MOST_SHARE / share, 1.0, data=data,
    ).show()  # fmt: skip


@contextlib.contextmanager
def service(folder: Path) -> Iterator[int]:
    """A service that has judged one record; its process id."""
    for file, text in (("outrider.toml", CONFIG), ("model.py", MODEL), ("checks.py", CHECKS)):
        (folder / file).write_text(text, encoding="utf-8")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "outrider", "serve"], cwd=folder, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(httpx.TransportError, OSError):
                url = json.loads((folder / "outrider-data" / "run" / "server.json").read_text())["url"]
                key = (folder / "outrider-data" / "key").read_text().strip()
                headers = {"Authorization": f"Bearer {key}"}
                record = {"model": "toy", "id": "a", "inputs": {"x": 4.0, "y": 0.0}}
                httpx.post(f"{url}/v1/records", json=record, headers=headers, timeout=60)
                if httpx.get(f"{url}/v1/flags?model=toy", headers=headers, timeout=60).json()["flags"]:
                    break
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(1.0)
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def tree(root: int) -> list[int]:
    """A process and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def proportional_mb(pid: int) -> float:
    """Proportional set size of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def cpu_s(root: int) -> float:
    """Processor time of a process and all below it, so far."""
    ticks = 0
    for pid in tree(root):
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
