"""Model versions and dataset versions of a project's data folder, by name."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sqlalchemy import Engine
from typer.testing import CliRunner

from outrider.assertions import Batch
from outrider.cli import app
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataset_reference import load_dataset
from outrider.errors import ConfigError
from outrider.model_reference import load_predictor
from outrider.monitor.settings.config import load_settings
from tests.databases import migrated_for
from tests.model_sources import section_source

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
        return self.bias + 0 * x.reshape(len(x), -1).sum(1, keepdim=True)
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
    engine = migrated_for(settings)
    objects = LocalObjects(settings.data_folder / "objects")
    with write(engine) as connection:
        for model, content in (("net", weights(1.0, 0.0)), ("plain", PLAIN.encode())):
            models.register_initial(
                connection, objects, model=model, version="1", content=content, is_weights=model == "net",
                now_us=1, source=section_source(settings, model),
            )  # fmt: skip
        digest = objects.put(weights(0.0, 1.0))
        models.register(
            connection,
            model="net",
            version="2",
            status="challenger",
            digest=digest,
            weights=digest,
            now_us=2,
            source=section_source(settings, "net"),
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


def commit(project: Path, engine: Engine, rows: int) -> None:
    objects = LocalObjects(load_settings(project / "outrider.toml").data_folder / "objects")
    batch = Batch.from_records(
        [{"id": f"r{row}", "inputs": {"text": f"text {row}"}, "label": {"label": 0}} for row in range(rows)],
        model="net",
    )
    with write(engine) as connection:
        draft = changes.prepare(
            connection, objects, dataset="train", batch=batch, append=False,
            provenance=[datasets.Provenance(f"r{row}", "", "test", "train") for row in range(rows)],
        )  # fmt: skip
        changes.commit(connection, draft, validation={}, now_us=rows)


def test_versions_of_a_dataset_are_read_from_the_data_folder(project: Path, engine: Engine) -> None:
    commit(project, engine, 2)
    commit(project, engine, 3)
    assert load_dataset("train", folder=project).rows == 3
    assert load_dataset("train", part="train", folder=project).rows == 3
    assert load_dataset("train", part="held_out", folder=project).rows == 0
    assert load_dataset("train@1", folder=project).column("inputs.text").tolist() == ["text 0", "text 1"]
    with pytest.raises(ConfigError, match=r"no version 5 .* there is train@1, train@2"):
        load_dataset("train@5", folder=project)


def test_tests_without_cases_run_on_a_dataset_version(
    project: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(project, engine, 3)
    monkeypatch.chdir(project)
    (project / "test_suite.py").write_text(
        "from outrider.behavioral_tests import INV, perturb\n"
        "test_case = INV(perturb=perturb.text.case(to='upper'), capability='form')\n",
        encoding="utf-8",
    )
    (project / "length.py").write_text(
        "import numpy as np\n"
        "def predict(batch):\n"
        "    return {'label': np.array([len(text) for text in batch.column('inputs.text')])}\n",
        encoding="utf-8",
    )
    arguments = ["test", "test_suite.py", "--model", "length.py:predict", "--json"]
    told = CliRunner().invoke(app, [*arguments, "--dataset", "train@1"])
    assert told.exit_code == 0
    assert [test["cases"] for test in json.loads(told.stdout)["tests"]] == [3]
    alone = CliRunner().invoke(app, arguments)
    assert alone.exit_code == 5
    assert "1 tests without cases of their own are left out" in alone.stderr
    wrong = CliRunner().invoke(app, [*arguments, "--dataset", "other"])
    assert isinstance(wrong.exception, ConfigError)


@pytest.mark.parametrize("reference", ["@1", "@", ""])
def test_what_is_no_dataset_is_said(project: Path, reference: str) -> None:
    with pytest.raises(ConfigError, match="name@3 expected"):
        load_dataset(reference, folder=project)
