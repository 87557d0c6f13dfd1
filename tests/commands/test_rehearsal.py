"""check-config runs model, assertions and suites on a sample: what cannot run is not "ok"."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.commands.init import Modality, write_project
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.errors import ConfigError
from outrider.user_code import load_file
from tests.forked import forks

CONFIG = """
[models.m]
predictor = "model.py:predict"
inputs = ["age"]
classes = ["no", "yes"]
target = "label"
assertions = ["checks.py"]
behavior = ["test_m.py"]
"""
MODEL = """
import numpy as np

def predict(batch):
    print("noise on stdout")
    return {"label": np.where(batch.column("inputs.age") > 40, "yes", "no")}
"""
CHECKS = """
from outrider.assertions import Window, assertion
from outrider.assertions.library import required

given = required(["inputs.age"])

@assertion(window=Window(rows=2))
def old(batch):
    return (batch.column("inputs.age") > 90) & (batch.column("outputs.label") == "no")
"""
SUITE = """
from outrider.behavioral_tests import INV, MFT, expect, perturb

test_young = MFT(cases=[{"age": 20.0}], labels=["no"])
test_noise = INV(perturb=perturb.tabular.jitter("age", noise=0.1), expect=expect.same("label"), live=0.1)
"""
SAMPLE = '{"age": 30.0, "label": "no"}\n{"age": 50.0, "label": "yes"}\n'


@pytest.fixture(autouse=True)
def forked() -> Iterator[None]:
    """The processes that load and try the files."""
    with forks():
        yield


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for name, text in {
        "outrider.toml": CONFIG,
        "model.py": MODEL,
        "checks.py": CHECKS,
        "test_m.py": SUITE,
        "data/sample.jsonl": SAMPLE,
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def check(project: Path, *options: str) -> dict[str, Any]:
    """What ``check-config --json`` says; its exit code fits."""
    command = ["check-config", "--config", str(project / "outrider.toml"), "--json", *options]
    done = CliRunner().invoke(app, command)
    found: dict[str, Any] = json.loads(done.stdout)
    assert isinstance(done.exception, ConfigError) == bool(found["problems"]), done.output
    if done.exception is not None:
        assert str(done.exception) == "\n".join(found["problems"])
    return found


def change(project: Path, file: str, old: str, new: str) -> None:
    path = project / file
    text = path.read_text(encoding="utf-8")
    assert old in text, (file, old)
    path.write_text(text.replace(old, new), encoding="utf-8")


def only(project: Path, *options: str) -> str:
    (problem,) = check(project, *options)["problems"]
    return str(problem).removeprefix(f"{(project / 'outrider.toml').resolve()}: models.m.")


def test_what_runs_is_ok_and_the_sample_is_named(project: Path) -> None:
    found = check(project)
    assert found["problems"] == found["warnings"] == []
    assert found["samples"] == {"m": "2 records of data/sample.jsonl"}


def test_a_model_that_raises_is_not_ok(project: Path) -> None:
    change(project, "model.py", "inputs.age", "inputs.agee")
    said = only(project)
    assert said.startswith("predictor: model.py:6: no column inputs.agee (did you mean inputs.age?)")
    change(project, "model.py", "return", "raise ValueError('weights are of another day')\n    return")
    assert "predictor: model.py:6: ValueError: weights are of another day" in only(project)
    assert check(project, "--no-run")["problems"] == []


def test_an_assertion_that_reads_an_unknown_column_is_named(project: Path) -> None:
    change(project, "checks.py", '"inputs.age") > 90', '"inputs.agee") > 90')
    said = only(project)
    assert said.startswith("assertions: checks.py: old: checks.py:9: no column inputs.agee (did you mean")


def test_an_unknown_column_of_an_assertion_that_stays_silent_is_warned_of(project: Path) -> None:
    change(project, "checks.py", '["inputs.age"]', '["inputs.agee"]')
    found = check(project)
    assert found["problems"] == []
    (warning,) = found["warnings"]
    assert warning.startswith("checks.py: no column inputs.agee (did you mean inputs.age?)")


def test_suites_declared_inputs_target_and_classes_are_held_against_the_sample(project: Path) -> None:
    change(project, "test_m.py", '{"age": 20.0}', '{"aeg": 20.0, "age": 20.0}')
    change(project, "test_m.py", '"label"), live', '"score"), live')
    change(project, "outrider.toml", 'classes = ["no", "yes"]', 'classes = ["no", "yess"]')
    change(project, "outrider.toml", '["age"]', '["agge"]')
    said = "\n".join(check(project)["problems"])
    assert "models.m.behavior: test_m.py: test_young: no column inputs.aeg (did you mean inputs.age?)" in said
    assert "models.m.behavior: test_m.py: test_noise: " in said
    assert "models.m.inputs: no column inputs.agge (did you mean inputs.age?)" in said
    assert "models.m.classes: the model answers outputs.label = 'yes', expected among 'no', 'yess'" in said
    assert "models.m.classes: the sample has label.label = 'yes', expected among 'no', 'yess'" in said
    change(project, "outrider.toml", 'target = "label"', 'target = "answer"')
    said = "\n".join(check(project)["problems"])
    assert "models.m.target: outputs.answer expected among the model's answers, got outputs.label" in said


def test_without_a_sample_of_its_own_a_named_file_or_the_cases_of_a_suite_serve(project: Path) -> None:
    (project / "data" / "sample.jsonl").rename(project / "mine.jsonl")
    assert check(project)["samples"] == {"m": "1 records of test_young in test_m.py"}
    named = str(project / "mine.jsonl")
    assert check(project, "--sample", named)["samples"] == {"m": f"2 records of {named}"}
    change(project, "outrider.toml", 'behavior = ["test_m.py"]', "")
    (warning,) = check(project)["warnings"]
    assert "no sample to run it on: name one with --sample FILE" in warning


def test_a_model_that_ends_or_holds_up_the_process_is_named(project: Path) -> None:
    change(project, "model.py", "    print", "    import os; os._exit(7)\n    print")
    assert "predictor: asked about data/sample.jsonl ended the process (exit code 7)" in only(project)
    change(project, "model.py", "import os; os._exit(7)", "import time; time.sleep(600)")
    assert "takes longer than 8 s; --deadline-s gives it more" in only(project, "--deadline-s", "8")


OTHER = {
    Modality.tabular: ("radius", "width"),
    Modality.text: ("text", "review"),
    Modality.image: ("image", "photo"),
    Modality.chat: ("prompt", "question"),
}


@pytest.mark.parametrize("modality", list(Modality))
def test_of_a_model_with_other_inputs_every_file_to_change_is_named(
    tmp_path: Path, modality: Modality
) -> None:
    project = tmp_path / "mine"
    write_project(project, modality)
    old, new = OTHER[modality]
    told = (project / "README.md").read_text(encoding="utf-8").partition("## Your own model")[2]
    assert re.findall(r"\| \d\. `([\w./]+)`", told) == ["data/", "outrider.toml", "checks.py", "behavior/"]

    if modality == Modality.image:  # a module names no column
        net = load_file(project / "model.py").Net()
        (project / "net.safetensors").write_bytes(dump_weights(net.state_dict()))
    else:
        place = '["{}"' if modality == Modality.tabular else '"inputs.{}"'
        change(project, "model.py", place.format(old), place.format(new))
        assert f"no column inputs.{new}" in "\n".join(check(project)["problems"])

    (sample,) = (project / "data").iterdir()
    place = ",{}," if sample.suffix == ".csv" else '"{}":'
    change(project, f"data/{sample.name}", place.format(old), place.format(new))
    found = check(project)
    said = "\n".join(found["problems"])
    assert f"inputs: no column inputs.{old}" in said
    if modality == Modality.image:  # it cannot be asked until its inputs are named
        change(project, "outrider.toml", f'inputs = ["{old}"]', f'inputs = ["{new}"]')
        found = check(project)
        said = "\n".join(found["problems"])
    assert f"checks.py: no column inputs.{old}" in "\n".join(found["warnings"]) or "checks.py: " in said
    assert re.search(r"behavior: behavior/test_\w+\.py: ", said), said
