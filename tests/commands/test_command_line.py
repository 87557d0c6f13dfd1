"""The command line itself: its version, mistyped names, models named either way."""

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli import COMMANDS, _load, app
from outrider.commands.default_group import Commands, with_model


def said(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    return found.exit_code, found.output


def commands() -> Iterator[tuple[str, Any]]:
    """Every command of every level, by the words that call it."""
    for name in COMMANDS:
        command = _load(name)
        yield name, command
        for own, below in getattr(command, "commands", {}).items():
            yield f"{name} {own}", below


def test_the_version_is_that_of_the_package() -> None:
    assert said("--version") == (0, f"outrider {metadata.version('outrider')}\n")


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("asertions", "assertions"),
        ("rolback churn", "rollback"),
        ("dataset lst", "list"),
        ("export flgs", "flags"),
        ("label estimat m", "estimate"),
        ("assertions lsit", "list"),
        ("incidents resolv i-1", "resolve"),
        ("columns forgt a", "forget"),
        ("test generat", "generate"),
    ],
)
def test_a_mistyped_command_names_the_nearest_one(words: str, near: str) -> None:
    code, output = said(*words.split())
    assert code == 2
    assert f"Did you mean '{near}'" in output


def test_suites_and_models_that_are_called_like_commands_are_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "generat").mkdir()
    assert "Did you mean" not in said("test", "generat")[1]
    assert "Did you mean" not in said("assertions", "--model", "lsit")[1]


def test_every_group_is_one_that_names_near_commands() -> None:
    groups = [(name, command) for name, command in commands() if hasattr(command, "commands")]
    assert len(groups) > 5
    assert [name for name, command in groups if not isinstance(command, Commands)] == []


def test_a_model_that_is_an_argument_is_taken_as_an_option_too() -> None:
    called = 0
    for name, command in commands():
        arguments = [param for param in getattr(command, "params", []) if param.param_type_name == "argument"]
        if not any(param.name == "model" for param in arguments):
            continue
        others = [str(param.name) for param in arguments[1:] if param.required]
        for given in (["churn", *others], ["--model", "churn", *others], [*others, "--model=churn"]):
            taken = command.make_context(name, with_model(command, given), resilient_parsing=True).params
            assert [taken[str(param.name)] for param in arguments[: 1 + len(others)]] == ["churn", *others], (
                name
            )
            called += 1
    assert called > 50
    code, output = said("promote", "--model", "churn")
    assert (code, "Missing argument 'version'" in output) == (2, True)
    assert "--model NAME" in said("promote", "--help")[1]
