"""Suites: tests grouped by capability, read from a user's file."""

import ast
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
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
PASSED, FAILED, UNANSWERED, NOTHING = 0, 1, 4, 5  # exit codes of the command line


@dataclass(frozen=True, slots=True)
class Suite:
    """Behavioral tests of one file, with distinct names."""

    name: str
    tests: tuple[BehavioralTest, ...]
    candidates: int = 0
    """Number of unreviewed cases in the file; they are in none of the tests."""

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
        """Tests that the service also runs on live records."""
        return tuple(test for test in self.tests if isinstance(test, Metamorphic) and test.is_live)

    def run(self, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> tuple[Outcome, ...]:
        """Run all tests.

        Parameters
        ----------
        cases
            Records (a dataset version) for the INV and DIR tests without cases; if not given, these tests are
            left out, because they can only run live.
        """
        return tuple(run_tests(self.tests, predictor, cases=cases, seed=seed))


def load_suite(path: Path | str) -> Suite:
    """Suite from a ``*.suite.json``, or a Python file's module-level ``test_*``.

    A Python file is executed; paths of case files are relative to it. A test is named after its variable
    unless it has a name; its revision is a digest of the syntax of its definition. Nothing in a
    ``*.suite.json`` is executed.

    Raises
    ------
    ConfigError
        If the file does not exist, cannot be executed (the cause is chained), or is invalid.
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
    """Module-level behavioral tests of a module, in order of definition."""
    known = revisions(path)
    for name, value in vars(module).items():
        test = _unmarked(value) if name.startswith("test_") else None
        if isinstance(test, MFT | INV | DIR):
            revision = known.get(name, known[""])
            yield test.named(name, folder=path.parent, suite=path.stem, revision=revision)


def revisions(path: Path) -> dict[str, str]:
    """Syntax digest of each module-level assignment. Key ``""`` has that of the whole file."""
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
    """Value without pytest's marks, as in ``pytest.mark.slow(MFT(…))``."""
    while type(value).__name__ == "MarkDecorator" and value.args:
        value = value.args[-1]
    return value


def find_suites(paths: Sequence[Path]) -> list[Suite]:
    """Suites of files, and of ``test_*.py`` and ``*.suite.json`` in folders.

    Each file counts once. Hidden folders and virtual environments are skipped, as by pytest.
    """
    files: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path} does not exist; name suite files or folders with them")
        for file in suite_files(path):
            files.setdefault(file.resolve(), file)
    suites = [load_suite(file) for file in files]
    known: dict[tuple[str, str], Path] = {}
    for file, suite in zip(files.values(), suites, strict=True):
        for test in suite.tests:
            other = known.setdefault((test.suite, test.name), file)
            if other != file:
                raise ConfigError(
                    f"{other} and {file} both have a test {test.name!r} in a suite {test.suite!r}: "
                    "name one of the suites otherwise"
                )
    return suites


def suite_files(path: Path) -> list[Path]:
    """Suite files below a folder, sorted, or the file itself."""
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for place, folders, names in os.walk(path):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and not (Path(place) / name / "pyvenv.cfg").is_file()
        ]
        matching = (name for name in names if fnmatchcase(name, "test_*.py") or name.endswith(SUFFIX))
        found += [Path(place) / name for name in matching]
    return sorted(found)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Exit code: 0 passed, 1 failed, 4 unanswered, 5 nothing judged."""
    if any(o.status in ("failed", "error") and not o.is_unanswered for o in outcomes):
        return FAILED
    if any(outcome.is_unanswered for outcome in outcomes):
        return UNANSWERED
    return PASSED if any(outcome.passed for outcome in outcomes) else NOTHING
