"""One training for one job, which the environment names: ``python train.py``.

Run by receiver.py, and as it is by Airflow, Kubernetes and GitHub Actions.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from census import as_onnx, better

from outrider.train import Job


def learned(rows, task):
    """Inputs and classes of rows."""
    x = np.stack([rows[f"inputs.{name}"].to_numpy() for name in task["inputs"]], axis=1)
    return x.astype(np.float32), np.array(rows[f"label.{task['target']}"].to_pylist())


def retrain(job, folder):
    """Fetch the rows, train, and upload the version."""
    task = job.task
    paths = [job.fetch(folder)]
    if task["replay"]:  # old rows, against forgetting: retrain.replay names them
        paths.append(job.fetch(folder, "replay"))
    x, y = map(np.concatenate, zip(*(learned(pq.read_table(path), task) for path in paths), strict=True))

    def progress(step, steps, loss):
        job.progress(step=step, steps=steps, loss=float(loss))

    model = better(x, y, seed=task["settings"]["seed"], progress=progress)
    path = Path(folder) / "census.onnx"
    path.write_bytes(as_onnx(model, x.shape[1]))
    return job.upload(path, note=f"boosted trees on {len(y)} labelled people")


if __name__ == "__main__":
    with Job.from_env() as job, tempfile.TemporaryDirectory() as folder:
        made = retrain(job, folder)
        sys.stdout.write(f"version {made['version']} is before the gate as {made['job']}\n")
