"""``outrider test`` and its subcommands."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from outrider.behavioral_tests.suite import find_suites
from outrider.commands.default_group import DefaultGroup
from outrider.commands.suite_selection import watched
from outrider.errors import ConfigError

MODEL = """
import numpy as np

def predict(batch):
    print("a model that talks")
    return {"label": np.array([int(text.endswith("!")) for text in batch.column("inputs.text")])}

def silent(batch):
    return {"label": np.zeros(batch.rows, dtype=int)}

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


def outcomes_in(text: str) -> dict[str, dict[str, Any]]:
    return {test["name"]: test for test in json.loads(text)["tests"]}


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


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["marks"], {"test_marks"}),
        (["form/case"], {"test_case"}),
        (["*/test_*a*"], {"test_marks", "test_case"}),
        (["form", "MARKS"], {"test_marks", "test_case"}),
        (["form/marks"], set()),
    ],
)
def test_tests_are_selected_by_capability_and_name(project: Path, only: list[str], names: set[str]) -> None:
    options = [option for pattern in only for option in ("--only", pattern)]
    code, text = call("test", "--model", "model.py:predict", "--json", *options)
    assert set(outcomes_in(text)) == names
    assert code == (5 if not names else int("test_marks" in names))


def test_two_models_are_compared(project: Path) -> None:
    cases = [f"{'hi' * number}!" for number in range(20)]
    suite = f"from outrider.behavioral_tests import MFT\ntest_loud = MFT(cases={cases}, labels=1)\n"
    (project / "behavior" / "test_toy.py").write_text(suite, encoding="utf-8")
    good, bad = "model.py:predict", "model.py:silent"
    code, text = call("test", "--compare", good, bad, "--html", "report.html")
    assert code == 1
    assert "1 worse, 0 better of 1 tests" in text
    assert "newly failing" in (project / "report.html").read_text(encoding="utf-8")
    code, text = call("test", "--compare", bad, good, "--json")
    assert code == 0
    assert json.loads(text)["improvements"] == ["test_loud"]
    assert call("test", "--compare", good, "model.py:broken")[0] == 1
    assert call("test", "--compare", good, good, "--only", "nothing")[0] == 5
    assert call("test", "--compare", good, bad, "--model", good)[0] == 2


def test_a_test_that_raises_is_an_error_and_the_rest_runs(project: Path) -> None:
    code, text = call("test", "--model", "model.py:broken", "--json")
    assert code == 1
    assert {test["status"] for test in outcomes_in(text).values()} == {"error"}
    code, text = call("test", "--model", "model.py:broken")
    assert "RuntimeError: no weights" in text


def test_a_report_is_written_beside_what_is_printed(project: Path) -> None:
    code, text = call("test", "--model", "model.py:predict", "--html", "new/folder/report.html")
    assert code == 1
    assert "FAIL 1/3" in text
    assert "test_marks" in (project / "new/folder/report.html").read_text(encoding="utf-8")


def test_hidden_folders_and_virtual_environments_hold_no_suites(project: Path) -> None:
    for folder in (".cache", "venv/lib"):
        (project / folder).mkdir(parents=True)
        (project / folder / "test_other.py").write_text("raise SystemError", encoding="utf-8")
    (project / "venv" / "pyvenv.cfg").touch()
    assert [suite.name for suite in find_suites([project, project / "behavior"])] == ["test_toy"]


def test_tests_that_could_not_be_told_apart_are_refused(project: Path) -> None:
    (project / "behavior" / "more").mkdir()
    (project / "behavior" / "more" / "test_toy.py").write_text(SUITE, encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"more/test_toy.py and .*/test_toy.py both have a test 'test_marks'"
    ):
        find_suites([project / "behavior"])
    twice = SUITE.replace("MFT(", 'MFT(name="x", ', 1).replace("INV(", 'INV(name="x", ', 1)
    (project / "behavior" / "more" / "test_toy.py").write_text(twice, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"more/test_toy.py: .*one distinct name per test"):
        find_suites([project / "behavior" / "more"])


def test_a_test_ends_early_when_its_verdict_is_decided(project: Path) -> None:
    suite = "from outrider.behavioral_tests import MFT\ntest_much = MFT(cases=['a'] * 20_000, labels=1)\n"
    (project / "behavior" / "test_toy.py").write_text(suite, encoding="utf-8")
    _, text = call("test", "--model", "model.py:silent", "--json", "--stop", "decided")
    assert 0 < outcomes_in(text)["test_much"]["cases"] < 20_000
    assert call("test", "--model", "model.py:silent", "--stop", "sometimes")[0] == 2


def test_progress_is_seen_on_a_terminal_only(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (suite,) = find_suites([project / "behavior"])
    assert list(watched(suite.tests, silent=False)) == list(suite.tests)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert list(watched(suite.tests, silent=True)) == list(suite.tests)
    assert capsys.readouterr() == ("", "")
    assert list(watched(suite.tests, silent=False)) == list(suite.tests)
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "marks/test_marks" in seen.err


def test_what_is_broken_is_shown_once_and_without_the_frames_of_outrider(project: Path) -> None:
    from outrider.cli import app

    error = CliRunner().invoke(app, ["test", "--model", "model.py:broken"]).stderr
    assert error.count('raise RuntimeError("no weights")') == 1
    assert "RuntimeError: no weights" in error
    assert "run_safely" not in error


def test_a_pattern_that_fits_nothing_says_what_there_is(project: Path) -> None:
    code, text = call("test", "--model", "model.py:predict", "--only", "negation")
    assert code == 5
    assert "none of 2 tests fits --only negation; there are the capabilities marks, form" in text


def test_a_test_that_judged_nothing_says_so(project: Path) -> None:
    suite = """
from outrider.behavioral_tests import INV, perturb
test_case = INV(cases=["HI"], perturb=perturb.text.case(to="upper"))
"""
    (project / "behavior" / "test_toy.py").write_text(suite, encoding="utf-8")
    code, text = call("test", "--model", "model.py:predict")
    assert code == 5
    assert "test_case: no case was applicable (1 tried)" in text


def test_what_is_piped_is_not_broken_at_the_width_of_a_terminal(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    capability = "what a customer who is angry would say to us on the telephone"
    suite = f"""
from outrider.behavioral_tests import MFT
test_a = MFT(cases=["hi"], labels=0, capability="{capability}")
"""
    (project / "behavior" / "test_toy.py").write_text(suite, encoding="utf-8")
    text = call("test", "--model", "model.py:predict")[1]
    assert f"│ {capability} │ ok   0/1 0.0% [0.0%, 79.3%] │" in text
