"""Runs a guide as its reader would: writes the files it shows, runs its commands, compares what they print.

A code block behind a line that ends with a file name in bold and backticks is that file. A ``console`` block
is run: lines that start with ``$`` are commands (of pytest and outrider, in this process; others are an
error), the lines behind them what they print; ``…`` stands for anything, on a line of its own for any lines.
"""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

BLOCK = re.compile(r"(?P<before>[^\n]*)\n+```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
FILE = re.compile(r"\*\*`(?P<name>[\w./-]+)`\*\*:?\s*$")
PLUGIN = ("-p", "outrider.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly")
Run = Callable[[list[str]], str]


@dataclass(frozen=True)
class Step:
    """A file to write (``name``), a command with what it prints, or a block that is only compared."""

    kind: str
    name: str
    text: str


def section(path: Path, title: str) -> str:
    """Text under one heading of second rank."""
    parts = re.split(r"^## (.+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def steps(text: str) -> Iterator[Step]:
    """Files and commands in the order of the page."""
    for block in BLOCK.finditer(text):
        if block["language"] == "console":
            for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                command, _, printed = part.partition("\n")
                yield Step("command", command, printed.rstrip())
        elif named := FILE.search(block["before"]):
            yield Step("file", named["name"], block["text"])
        else:
            yield Step("block", block["language"], block["text"])


def follow(text: str, folder: Path, runners: dict[str, Run]) -> int:
    """Do what a part of a guide says in a folder; the number of commands that were compared."""
    compared = 0
    for step in steps(text):
        if step.kind == "file":
            target = folder / step.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(step.text, encoding="utf-8")
        elif step.kind == "command":
            program, *arguments = shlex.split(step.name)
            printed = runners[program](arguments)
            told = f"$ {step.name}\n--- the guide\n{step.text}\n--- came\n{printed}"
            assert matches(step.text, printed), told
            compared += 1
    return compared


def matches(expected: str, printed: str) -> bool:
    """Whether ``printed`` is what the page shows; blank lines and ends of lines do not count."""
    lines = [line.rstrip() for line in expected.splitlines() if line.strip()]
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else ".*?".join(map(re.escape, line.split("…"))) + r"\n"
        for line in lines
    )
    came = "".join(f"{line.rstrip()}\n" for line in printed.splitlines() if line.strip())
    return re.fullmatch(pattern, came) is not None


def in_process(pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> dict[str, Run]:
    """Runners of pytest and outrider that use this process: a new one takes seconds to import."""

    def run_pytest(arguments: list[str]) -> str:
        result = pytester.runpytest_inprocess(*PLUGIN, *arguments)
        capsys.readouterr()
        return result.stdout.str()

    def run_outrider(arguments: list[str]) -> str:
        from outrider.cli import main

        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
            patch.setattr(sys, "argv", ["outrider", *arguments])
            main()
        return capsys.readouterr().out

    return {"pytest": run_pytest, "outrider": run_outrider}


def as_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Width, colours and import path of a user's terminal, whatever runs the tests."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    root = str(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, *filter(None, sys.path)]))
