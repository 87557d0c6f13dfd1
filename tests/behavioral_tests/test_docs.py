"""The guide's examples run, and its matrix is what they give."""

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from outrider.behavioral_tests import expect, load_suite, perturb
from outrider.behavioral_tests.expect.rule import _FACTORIES
from outrider.behavioral_tests.report import matrix_lines
from outrider.commands.test import app
from outrider.model_reference import load_predictor

GUIDE = Path(__file__).parents[2] / "docs" / "behavioral-tests.md"
PYTEST = GUIDE.with_name("pytest.md")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
CODE = [text for language, text in BLOCKS if language == "python"]
STATISTICS = (GUIDE.parent / "test-statistics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", CODE, ids=range(len(CODE)))
def test_every_example_runs(block: str) -> None:
    exec(compile(block, str(GUIDE), "exec"), {"__name__": "guide"})


@pytest.mark.parametrize(
    "block", re.findall(r"```python\n(.*?)```", PYTEST.read_text(encoding="utf-8"), re.DOTALL)
)
def test_every_example_for_pytest_runs(block: str) -> None:
    exec(compile(block, str(PYTEST), "exec"), {"__name__": "guide"})


def test_every_option_is_in_the_guide() -> None:
    text = PYTEST.read_text(encoding="utf-8")
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    options = {name for each in command.commands["run"].params for name in each.opts if name.startswith("--")}
    options |= {"--outrider-model", "--outrider-json", "--outrider-html", "--outrider-seed"}
    assert len(options) > 12
    assert [name for name in sorted(options) if f"`{name}" not in text] == []


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", STATISTICS, re.DOTALL), ids=range(4))
def test_every_example_of_the_statistics_runs(block: str) -> None:
    exec(compile(block, "test-statistics.md", "exec"), {"__name__": "guide"})


def test_every_expectation_is_in_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8") + STATISTICS
    made = [name for name in _FACTORIES if name in vars(expect)]
    assert len(made) > 15
    assert [name for name in made if f"expect.{name}(" not in text] == []


def test_the_first_suite_gives_the_printed_matrix(tmp_path: Path) -> None:
    (tmp_path / "test_mood.py").write_text(CODE[0], encoding="utf-8")
    (tmp_path / "model.py").write_text(CODE[1], encoding="utf-8")
    outcomes = load_suite(tmp_path / "test_mood.py").run(load_predictor("model.py:predict", folder=tmp_path))
    (printed,) = (text for language, text in BLOCKS if language == "text")
    assert "\n".join(matrix_lines(sorted(outcomes, key=lambda outcome: outcome.name))) == printed.strip()


@pytest.mark.parametrize(
    "module", [perturb.text, perturb.chat, perturb.image, perturb.tabular, perturb.series]
)
def test_every_perturbation_is_in_the_guide(module: object) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "").startswith(getattr(module, "__name__", ""))
        and callable(value)
        and not name.startswith("_")
    ]
    assert len(own) >= 3
    assert [name for name in own if f"`{name}`" not in text] == []
