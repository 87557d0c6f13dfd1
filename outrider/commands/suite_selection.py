"""Selection of tests for ``outrider test``, and its progress bar."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from outrider.behavioral_tests import Suite
from outrider.behavioral_tests.expect.rule import scope_of
from outrider.behavioral_tests.running import Stop
from outrider.behavioral_tests.suite import BehavioralTest

_T = TypeVar("_T", bound=BehavioralTest)


def selected(suites: Sequence[Suite], only: Sequence[str], stop: Stop | None) -> list[Suite]:
    """Suites reduced to tests that match ``only``; ``stop`` allows early stopping.

    Tests of one overall figure never stop early.
    """
    found = [
        replace(suite, tests=tuple(test for test in suite.tests if not only or fits(test, only)))
        for suite in suites
    ]
    if stop is not None:
        found = [
            replace(suite, tests=tuple(_stopping(test, stop) for test in suite.tests)) for suite in found
        ]
    return found


def why_nothing(suites: Sequence[Suite], only: Sequence[str]) -> str:
    """Message for a run without tests."""
    tests = [test for suite in suites for test in suite.tests]
    if not tests:
        return "no behavioral tests found: write test_… = MFT(…), INV(…) or DIR(…) into behavior/"
    if only and not any(fits(test, only) for test in tests):
        there = ", ".join(dict.fromkeys(test.capability for test in tests))
        return f"none of {len(tests)} tests fits --only {' '.join(only)}; there are the capabilities {there}"
    return "no test has cases of its own: --dataset gives them some"


def _stopping(test: _T, stop: Stop) -> _T:
    return test if scope_of(test.expect) == "suite" else replace(test, stop=stop)


def fits(test: BehavioralTest, patterns: Sequence[str]) -> bool:
    """True if a pattern matches the test or its capability.

    A pattern is a substring, a wildcard, or ``capability/name``.
    """
    return any(_fits(test, pattern) for pattern in patterns)


def _fits(test: BehavioralTest, pattern: str) -> bool:
    capability, slash, name = pattern.lower().partition("/")
    texts = test.capability.lower(), test.name.lower()
    if not slash:
        return any(fnmatch(text, f"*{capability}*") for text in texts)
    return fnmatch(texts[0], f"*{capability}*") and fnmatch(texts[1], f"*{name}*")


def watched(tests: Sequence[_T], *, silent: bool) -> Iterator[_T]:
    """Yield tests, with a progress bar if stderr is a terminal."""
    console = Console(stderr=True)
    if silent or not console.is_terminal:
        yield from tests
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=len(tests))
        for test in tests:
            progress.update(
                task, description=f"{test.capability}/{test.name}".replace("[", r"\["), refresh=True
            )
            yield test
            progress.advance(task)


def without_cases(tests: Iterable[BehavioralTest]) -> int:
    """Print on stderr, and return, the number of tests without own cases."""
    count = sum(test.cases is None for test in tests)
    if count:
        sys.stderr.write(
            f"{count} tests without cases of their own are left out: --dataset gives them some\n"
        )
    return count


def check_together(compare: tuple[str, str] | None, given: Mapping[str, object]) -> None:
    """Refuse options for a single model if two models are compared."""
    if compare and (wrong := [name for name, value in given.items() if value]):
        raise typer.BadParameter(f"--compare names its two models: without {', '.join(wrong)}")
