"""A census model that scikit-learn trains elsewhere: people, first version, one repair."""

import importlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import data_folder
from benchmarks.results import ROOT
from tests.end_to_end.service import Service
from tests.nginx import free_port

from ._repair import PATIENCE_S, Clock, label, promoted, send, wait_while

EXAMPLE = ROOT / "examples" / "external_training"
OLD, POOL, TEST = slice(0, 6_000), slice(6_000, 12_000), slice(16_000, None)
HEALTHY, LABELS = 300, 400
"""Records before the fault; labels, half of which the gate keeps to itself."""
CHECK = '''
@assertion
def has_capital(batch):
    """Capital gain or loss, which nobody had whom the model learned from."""
    return (batch.column("inputs.capital_gain") > 0) | (batch.column("inputs.capital_loss") > 0)
'''
SETTINGS = {
    "port = 8491": "port = 0",
    'rows = "labelled"                # learn from all labelled records, not the flagged ones alone': (
        f'replay = "census-old"\nlabelled_flags = {LABELS}'
    ),
}


@dataclass(frozen=True, slots=True)
class People:
    """Inputs, incomes, and who has capital."""

    x: pd.DataFrame
    y: NDArray[Any]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def has_capital(self) -> NDArray[np.bool_]:
        """Those whom the assertion flags."""
        return np.asarray((self.x.capital_gain > 0) | (self.x.capital_loss > 0))

    @property
    def rows(self) -> NDArray[np.float32]:
        """Inputs as the model is fed."""
        return self.x.to_numpy(np.float32)

    def take(self, rows: Any) -> "People":
        """People by place."""
        return People(self.x.iloc[rows], self.y[rows])

    def records(self, prefix: str) -> list[dict[str, Any]]:
        """Records of the service, ids from ``prefix``."""
        return [
            {"model": "census", "id": f"{prefix}{n}", "inputs": one}
            for n, one in enumerate(self.x.to_dict("records"))
        ]


@cache
def example() -> Any:
    """``census.py`` of the example."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        return importlib.import_module("census")
    finally:
        sys.path.remove(str(EXAMPLE))


def people() -> People:
    """All people, in the order of the data set."""
    frame = pd.read_parquet(data_folder("adult_census") / "adult.parquet")
    return People(example().features(frame), frame["income"].to_numpy(str))


def fitted(some: People, seed: int) -> Any:
    """The example's model of these people."""
    return example().better(some.rows, some.y, seed=seed, progress=lambda *_: None)


def joined(one: People, other: People) -> People:
    """Both."""
    return People(pd.concat([one.x, other.x]), np.concatenate([one.y, other.y]))


def repair(home: Path, old: People, pool: People) -> tuple[Clock, bytes]:
    """Seconds of each stage of one repair by the real processes, and the promoted ONNX file.

    The first version meets people without capital, then the pool as it is. Labels are given as soon as a
    record is judged; the trigger, the webhook, its receiver, ``train.py`` and the gate do the rest.
    """
    project = _project(home, old)
    with Service(project / "outrider.toml", is_started=True) as service, _receiver(project):
        service.run_command("dataset", "import", "census-old", "old.parquet", "--model", "census")
        healthy = pool.take(np.flatnonzero(~pool.has_capital)[:HEALTHY])
        send(service, healthy.records("healthy"))
        service.wait_judged(HEALTHY)

        flagged = np.flatnonzero(pool.has_capital)[:LABELS]
        faulty = pool.take(np.arange(flagged[0], flagged[-1] + 1))
        clock = Clock()
        send(service, faulty.records("p"))
        service.wait_judged(HEALTHY + len(faulty), PATIENCE_S)
        clock.ends("flagged")
        asked = np.flatnonzero(faulty.has_capital)
        label(service, "census", {f"p{row}": str(faulty.y[row]) for row in asked})
        clock.ends("labelled")
        wait_while(service, "", "queued", "running")
        clock.ends("dataset_and_event")
        wait_while(service, "waiting")
        clock.ends("trained_elsewhere")
        wait_while(service, "waiting", "queued", "running")
        version = promoted(service, "census")
        clock.ends("judged_and_promoted")
        weights = service.client.get(f"/v1/models/census/versions/{version}/weights").content
    return clock, weights


def _project(home: Path, old: People) -> Path:
    project = home / "project"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
    text = (project / "outrider.toml").read_text(encoding="utf-8").replace(":8492", f":{free_port()}")
    for known, other in SETTINGS.items():
        assert known in text, f"{known!r} expected in outrider.toml of the example"
        text = text.replace(known, other)
    (project / "outrider.toml").write_text(text, encoding="utf-8")
    head = (project / "checks.py").read_text(encoding="utf-8").partition("@assertion")[0]
    (project / "checks.py").write_text(head.rstrip() + "\n\n" + CHECK, encoding="utf-8")
    secret = project / "webhook.secret"
    secret.write_text("whsec_" + secrets.token_hex(16), encoding="utf-8")
    secret.chmod(0o600)
    model = example().as_onnx(fitted(old, 0), old.rows.shape[1])
    (project / "census_1.onnx").write_bytes(model)
    table = old.x.add_prefix("inputs.").assign(**{"label.label": old.y})
    table.assign(id=[f"old{n}" for n in range(len(old))]).to_parquet(project / "old.parquet", index=False)
    return project


@contextmanager
def _receiver(project: Path) -> Iterator[None]:
    text = (project / "outrider.toml").read_text(encoding="utf-8")
    port = text.partition('url = "http://127.0.0.1:')[2].partition("/")[0]
    with (project / "receiver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "receiver.py"], cwd=project, env=os.environ | {"PORT": port}, stdout=log,
            stderr=log,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            process.wait(10)
