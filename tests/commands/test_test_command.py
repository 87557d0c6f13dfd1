"""``outrider test`` and its subcommands."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from outrider.commands.default_group import DefaultGroup

MODEL = """
import numpy as np

def predict(batch):
    print("a model that talks")
    return {"label": np.array([int(text.endswith("!")) for text in batch.column("inputs.text")])}

def broken(batch):
    raise RuntimeError("no weights")
"""
SUITE = """
from outrider.behavioral_tests import INV, MFT, perturb

test_marks = MFT(cases=["hi!", "hi", "ho"], labels=[1, 0, 1], capability="marks", description="loud is 1")
test_case = INV(cases=["Hi!", "hi"], perturb=perturb.text.case(to="upper"), capability="form")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "behavior").mkdir()
    (tmp_path / "behavior" / "test_toy.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> tuple[int, str]:
    """Exit code and stdout of ``outrider …``, through the door that people use."""
    from outrider.cli import app

    result = CliRunner().invoke(app, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_running_is_the_default_and_paths_need_no_subcommand(project: Path) -> None:
    for arguments in (["behavior"], [], ["run", "behavior"], ["behavior/test_toy.py"]):
        code, text = call("test", *arguments, "--model", "model.py:predict", "--json")
        assert code == 1
        assert {test["name"]: test["failures"] for test in json.loads(text)["tests"]} == {
            "test_marks": 1,
            "test_case": 0,
        }
    assert call("test", "--model", "model.py:predict", "--json")[0] == 1


def test_help_shows_the_options_of_running() -> None:
    code, text = call("test", "--help")
    assert code == 0
    assert "--model" in text
    assert "paths" in text.lower()


def test_subcommands_stand_beside_the_default() -> None:
    app = typer.Typer(cls=DefaultGroup)
    app.command("run")(lambda: typer.echo("ran"))
    app.command("add")(lambda: typer.echo("added"))
    assert CliRunner().invoke(app, []).stdout == "ran\n"
    assert CliRunner().invoke(app, ["add"]).stdout == "added\n"
    assert "add" in CliRunner().invoke(app, ["--help"]).stdout
    assert CliRunner().invoke(app, ["--nonsense"]).exit_code == 2
