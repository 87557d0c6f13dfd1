"""Suites: tests grouped by capability, read from a user's file."""

import ast
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from outrider.assertions import Batch, Predictor
from outrider.assertions.texts.syntax import text_of
from outrider.errors import ConfigError, check_name
from outrider.user_code import load_file

from .metamorphic import DIR, INV, Metamorphic
from .mft import MFT
from .outcome import Outcome
from .running import run_tests
from .suite_file import SUFFIX, candidates_of, read_written, runnable

BehavioralTest: TypeAlias = MFT | INV | DIR


@dataclass(frozen=True, slots=True)
class Suite:
    """Behavioral tests that belong together, with distinct names."""

    name: str
    tests: tuple[BehavioralTest, ...]
    candidates: int = 0
    """Unreviewed cases in its file; they are in none of the tests."""

    def __post_init__(self) -> None:
        names = [test.name for test in self.tests]
        double = sorted({name for name in names if names.count(name) > 1 or not name})
        if double:
            raise ValueError(
                f"suite {self.name!r}: one distinct name per test expected, got {double} twice or empty"
            )

        check_name(self.name, "suite", has_parts=True)
        for name in names:
            check_name(name, f"suite {self.name!r}: test", has_parts=True)

    def __add__(self, other: "Suite") -> "Suite":
        return Suite(self.name, self.tests + other.tests, self.candidates + other.candidates)

    @property
    def live(self) -> tuple[Metamorphic, ...]:
        """Tests that the service runs on live records too."""
        return tuple(test for test in self.tests if isinstance(test, Metamorphic) and test.is_live)

    def run(self, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> tuple[Outcome, ...]:
        """Run every test.

        Parameters
        ----------
        cases
            Records (a dataset version) for the INV and DIR tests that have no cases of their own; without it
            those are left out, because they can only run live.
        """
        return tuple(run_tests(self.tests, predictor, cases=cases, seed=seed))


def load_suite(path: Path | str) -> Suite:
    """Suite of a ``*.suite.json``, or Python file's module-level ``test_*``.

    A Python file is executed; relative paths of case files are relative to it. A test's name is that of its
    variable unless its author gave one; its revision digests the syntax of its definition. Nothing in a
    ``*.suite.json`` is executed.

    Raises
    ------
    ConfigError
        If the file does not exist, cannot be executed (the cause is chained), or says something wrong.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise ConfigError(
            f"{path} does not exist; a suite is a Python file with test_… = MFT(…), INV(…) or DIR(…), "
            f"or a *{SUFFIX} file"
        )
    if path.name.endswith(SUFFIX):
        written = read_written(path)
        return Suite(written.name, runnable(written, file=path.name), candidates_of(written))
    tests = tuple(collect(load_file(path), path))
    try:
        return Suite(path.stem, tests)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def collect(module: ModuleType, path: Path) -> Iterable[BehavioralTest]:
    """The module-level behavioral tests of a module, in order of definition."""
    known = revisions(path)
    for name, value in vars(module).items():
        test = _unmarked(value) if name.startswith("test_") else None
        if isinstance(test, MFT | INV | DIR):
            revision = known.get(name, known[""])
            yield test.named(name, folder=path.parent, suite=path.stem, revision=revision)


def revisions(path: Path) -> dict[str, str]:
    """Syntax digest of each module-level assignment; the file's under ``""``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {"": _digest(tree)}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name):
                found[target.id] = _digest(node)
    return found


def _digest(node: ast.AST) -> str:
    return hashlib.blake2b(text_of(node).encode(), digest_size=6).hexdigest()


def _unmarked(value: Any) -> Any:
    """Value inside pytest's marks, as in ``pytest.mark.slow(MFT(…))``."""
    while type(value).__name__ == "MarkDecorator" and value.args:
        value = value.args[-1]
    return value
