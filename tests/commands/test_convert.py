"""outrider convert: what it writes answers as the model did, or is not written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from outrider.assertions import Batch
from outrider.cli import app
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError
from tests.requirements import require_package

require_package("skl2onnx", "pip install outrider[onnx]")

MODEL = """
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

def trained():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    return LogisticRegression().fit(x, np.where(x[:, 0] > 0, "up", "down"))

def tree():
    x = np.array([[0.1], [0.2]])
    return DecisionTreeClassifier().fit(x, [0, 1])

def net():
    import torch
    torch.manual_seed(0)
    return torch.nn.Linear(2, 2)

def broken():
    raise OSError("no disk")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    rows = [f"{value},{-value}" for value in np.linspace(-2, 2, 50)]
    (tmp_path / "sample.csv").write_text("\n".join(["a,b", *rows]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def test_an_estimator_becomes_a_file_that_answers_the_same(folder: Path) -> None:
    told = run("model.py:trained", "--to", "m.onnx", "--sample", "sample.csv", "--inputs", "a,b", "--json")
    assert told.exit_code == 0, told.output
    facts = json.loads(told.stdout)
    assert (facts["rows"], facts["labels"], facts["is_drawn"]) == (50, 1.0, False)
    assert (facts["inputs"], facts["classes"]) == (["a", "b"], ["down", "up"])
    predict = as_predictor(load_model(Source("onnx", "m.onnx"), folder=folder))
    batch = Batch.from_columns({"inputs.a": [1.0, -1.0], "inputs.b": [0.0, 0.0]}, model="m")
    assert predict(batch)["label"].tolist() == ["up", "down"]


def test_without_a_sample_it_says_that_numbers_were_drawn(folder: Path) -> None:
    told = run("model.py:trained", "--to", "m.onnx")
    assert told.exit_code == 0
    assert "m.onnx written: labels equal on 100.00%" in told.stdout
    assert "of 256 drawn rows" in told.stdout
    assert "name a --sample of real records" in told.stdout
    assert 'inputs = ["x0", "x1"]\nclasses = ["down", "up"]' in told.stdout


def test_what_differs_is_not_written(folder: Path) -> None:
    told = run("model.py:trained", "--to", "m.onnx", "--tolerance", "0")
    assert told.exit_code == 1
    assert "not written: it does not answer as the model does" in told.stdout
    assert not (folder / "m.onnx").exists()


def test_torch_weights_become_safetensors(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    told = run("model.py:net", "--to", "net.safetensors", "--json")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["tensors"] == 2
    torch.manual_seed(0)
    want = torch.nn.Linear(2, 2).state_dict()
    assert all(
        torch.equal(value, want[name]) for name, value in load_file(folder / "net.safetensors").items()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["weights.pt:net", "--to", "m.onnx"],
            "weights.pt is a pickle: reading it runs whatever code is in it",
        ),
        (["model.joblib", "--to", "m.onnx"], "model.joblib is a pickle"),
        (["model.py:broken", "--to", "m.onnx"], "raised OSError: no disk"),
        (["model.py:gone", "--to", "m.onnx"], "gone is not defined there"),
        (
            ["model.py:trained", "--to", "gone/m.onnx", "--sample", "sample.csv"],
            "gone/m.onnx cannot be written",
        ),
        (["model.py:trained", "--to", "m.pkl"], r"NAME.onnx or NAME.safetensors expected, got m.pkl"),
        (["model.py:trained", "--to", "m.onnx", "--sample", "s.xls"], "s.xls: there is no such file"),
        (["model.py:trained", "--to", "m.onnx", "--sample", "s.csv"], "s.csv: there is no such file"),
        (
            ["model.py:trained", "--to", "m.onnx", "--sample", "sample.csv", "--inputs", "a,c"],
            "no column 'c'",
        ),
        (
            ["model.py:trained", "--to", "m.safetensors"],
            "a torch module or its state_dict expected, got Logistic",
        ),
    ],
)
def test_what_cannot_be_converted_is_said(folder: Path, arguments: list[str], message: str) -> None:
    told = run(*arguments)
    assert isinstance(told.exception, ConfigError)
    assert message in str(told.exception)
    assert not list(folder.glob("m.*"))
