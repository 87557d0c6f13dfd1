"""Steps of the GitHub action, run as a runner does, beside a ``gh`` that keeps comments in a file."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.requirements import require_program
from tests.soak import PATIENCE_S

yaml: Any = importlib.import_module("yaml")  # comes with transformers, without types
ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
DECIDED, FEW = "--deterministic", "--deterministic\n--until=20"
MODELS = """
import numpy as np


def production(batch):
    return {"label": np.where(batch.column("inputs.radius") > 0, "malignant", "benign").astype(object)}


def twin(batch):
    return production(batch)


def linear(batch):
    is_large = batch.column("inputs.radius") + batch.column("inputs.texture") / 4 > 0
    return {"label": np.where(is_large, "malignant", "benign").astype(object)}
"""
GH = """#!{python}
import json, pathlib, subprocess, sys
file = pathlib.Path({file!r})
comments = json.loads(file.read_text())
words = sys.argv[1:]
if not {may_write} and "-X" in words:
    sys.exit("gh: Resource not accessible by integration (HTTP 403)")
if "-X" not in words:
    done = subprocess.run(["jq", "-r", words[-1]], input=json.dumps(comments), text=True, capture_output=True)
    sys.stdout.write(done.stdout)
    sys.exit(done.returncode)
body = pathlib.Path(words[-1].removeprefix("body=@")).read_text()
path = next(word for word in words if word.startswith("repos/"))
if words[words.index("-X") + 1] == "PATCH":
    next(one for one in comments if one["id"] == int(path.rpartition("/")[2]))["body"] = body
else:
    assert path == "repos/acme/shop/issues/7/comments"
    comments.append({{"id": 100 + len(comments), "user": {{"type": "Bot"}}, "body": body}})
file.write_text(json.dumps(comments))
"""


@dataclass
class Runner:
    """Runner of the action's steps in a folder."""

    folder: Path
    may_write: bool = True

    def __post_init__(self) -> None:
        require_program("jq", "apt-get install -y jq")
        self.comments = self.folder / "comments.json"
        self.comments.write_text(
            '[{"id": 1, "user": {"type": "User"}, "body": "<!-- outrider compare compare --> me"}]'
        )
        programs = self.folder / "programs"
        programs.mkdir()
        kept = {"python": sys.executable, "file": str(self.comments), "may_write": self.may_write}
        (programs / "gh").write_text(GH.format(**kept))
        (programs / "outrider").write_text(f'#!/bin/sh\nexec {sys.executable} -m outrider "$@"\n')
        for program in programs.iterdir():
            program.chmod(0o755)
        (self.folder / "temp").mkdir()
        self.summary = self.folder / "summary.md"

    def run(self, **inputs: str) -> tuple[int, str]:
        """Exit code of the action, and the log of its steps."""
        names = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
        values = {f"inputs.{name}": value for name, value in names.items()}
        values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
        values |= {"github.event.pull_request.number": "7", "github.token": "secret"}
        log = ""
        for name in ("Compare", "Comment", "Verdict"):
            step, output = STEPS[name], self.folder / f"{name}.out"
            output.write_text("")
            env = {key: self._filled(text, values) for key, text in step["env"].items()}
            files = {"GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": self.summary}
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.folder / self._filled(step.get("working-directory", "."), values),
                env=os.environ | env | {key: str(path) for key, path in files.items()} | {
                    "GITHUB_REPOSITORY": "acme/shop",
                    "RUNNER_TEMP": str(self.folder / "temp"),
                    "PATH": f"{self.folder / 'programs'}:{os.environ['PATH']}",
                },
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            log += done.stdout
            for line in output.read_text().splitlines():
                key, _, value = line.partition("=")
                values[f"steps.{step['id']}.outputs.{key}"] = value
            if done.returncode:
                return done.returncode, log
        return 0, log

    def written(self) -> list[str]:
        """Comments of the action."""
        return [one["body"] for one in json.loads(self.comments.read_text()) if one["user"]["type"] == "Bot"]

    @staticmethod
    def _filled(text: str, values: dict[str, str]) -> str:
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: values[found[1]], text)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded traffic beside the models of the pull request, and of the branch that it is for."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "pr" / "base").mkdir(parents=True)
    for place in (folder / "pr", folder / "pr" / "base"):
        (place / "models.py").write_text(MODELS, encoding="utf-8")
    random = np.random.default_rng(0)
    inputs = {f"inputs.{name}": random.normal(size=20_000) for name in ("radius", "texture")}
    pd.DataFrame(inputs).to_parquet(folder / "pr" / "traffic.parquet")
    return folder


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(models, tmp_path / "work"))


def test_no_value_is_written_into_the_shell() -> None:
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS.values():
        assert "${{" not in step["run"], step["name"]
        assert step["shell"] == "bash"
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True)
    assert [name for name, step in STEPS.items() if "GH_TOKEN" in step["env"]] == ["Comment"]
    named = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text(encoding="utf-8")))
    assert named == set(ACTION["inputs"])


def test_the_workflow_of_the_page_gives_forks_no_secrets() -> None:
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert workflow[True] == "pull_request"  # YAML 1.1 takes the key `on` for a truth value
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    steps = workflow["jobs"]["compare"]["steps"]
    assert all(step["with"]["persist-credentials"] is False for step in steps[:2])
    assert not [step for step in steps if "${{" in step.get("run", "") or "secrets." in str(step)]
    assert set(steps[-1]["with"]) <= set(ACTION["inputs"])
    table = page.partition("| input | default | |")[2].partition("\n\n")[0]
    assert [name for name in ACTION["inputs"] if f"`{name}`" not in table] == []


@pytest.mark.costly("a shell starts the command as a runner does")
def test_a_difference_is_one_comment_that_is_updated(folder: Path) -> None:
    runner = Runner(folder)
    asked = {"production": "base/models.py:production", "from": "traffic.parquet", "working_directory": "pr"}
    code, log = runner.run(candidate="models.py:linear", arguments=DECIDED, **asked)
    assert code == 1, log
    [first] = runner.written()
    assert first.startswith(
        "<!-- outrider compare compare -->\n### Outrider compare\n\n**Different.** models"
    )
    assert "radius" not in first + log
    code, log = runner.run(
        candidate="models.py:linear",
        arguments=FEW.replace("20", "500"),
        allow_different="true",
        examples="true",
        **asked,
    )
    assert code in (0, 6), log
    [second] = runner.written()
    assert "radius" in second
    assert runner.summary.read_text() == first + second


@pytest.mark.costly("a shell starts the command as a runner does")
def test_an_undecided_comparison_may_pass(folder: Path) -> None:
    runner = Runner(folder)
    asked = {"production": "models.py:production", "from": "traffic.parquet", "working_directory": "pr"}
    few = {"candidate": "models.py:twin", "arguments": FEW}
    assert runner.run(**few, **asked)[0] == 6
    assert runner.run(**few, **asked, undecided="pass", name="twin")[0] == 0
    assert [body.partition("\n")[0] for body in runner.written()] == [
        "<!-- outrider compare compare -->", "<!-- outrider compare twin -->"
    ]  # fmt: skip


@pytest.mark.costly("a shell starts the command as a runner does")
def test_a_token_that_may_only_read_leaves_the_summary(folder: Path) -> None:
    runner = Runner(folder, may_write=False)
    code, log = runner.run(
        **{"production": "models.py:production", "from": "traffic.parquet", "working_directory": "pr"},
        candidate="models.py:linear", arguments=FEW,
    )  # fmt: skip
    assert (code, runner.written()) == (6, [])
    assert "::notice::The comment was not written" in log
    assert "**Undecided.**" in runner.summary.read_text()


@pytest.mark.parametrize(
    "hostile",
    ["$(touch owned)", "`touch owned`", "x; touch owned", '"; touch owned; "', "--keep=owned", "-h"],
)
def test_hostile_names_are_values(hostile: str, folder: Path) -> None:
    runner = Runner(folder)
    code, log = runner.run(**{"candidate": hostile, "from": "traffic.parquet", "working_directory": "pr"})
    assert code == 3, log
    assert [path.name for path in folder.rglob("owned*")] == []
    [body] = runner.written()
    assert body.endswith("Nothing was compared (exit code 3): the log of the job says why.\n")


def test_a_name_that_could_end_the_marker_is_refused(folder: Path) -> None:
    runner = Runner(folder)
    code, log = runner.run(
        candidate="x", name="a --> b", **{"from": "traffic.parquet", "working_directory": "pr"}
    )
    assert (code, runner.written()) == (2, [])
    assert "::error::name" in log
