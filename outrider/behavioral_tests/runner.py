"""Runner of suite files, for ``outrider test`` and the promotion gate."""

import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from outrider.assertions import Batch, Predictor
from outrider.errors import ConfigError

from .outcome import Outcome
from .running import run_safely
from .suite import BehavioralTest, Suite, load_suite
from .suite_file import SUFFIX

PASSED, FAILED, UNANSWERED, NOTHING = 0, 1, 4, 5  # exit codes of the command line


def find_suites(paths: Sequence[Path]) -> list[Suite]:
    """Suites of files, and of ``test_*.py`` and ``*.suite.json`` below folders.

    Each file counts once. Hidden folders and virtual environments are left alone, as pytest leaves them.

    Raises
    ------
    ConfigError
        If a path does not exist, a file cannot be executed, or two tests have one name in suites of one name:
        their outcomes could not be told apart.
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


def run_tests(
    tests: Iterable[BehavioralTest], predictor: Predictor, *, cases: Batch | None = None, seed: int = 0
) -> list[Outcome]:
    """Outcomes of tests with cases of their own, or ``cases``."""
    return [
        run_safely(test, predictor, cases=cases if test.cases is None else None, seed=seed)
        for test in tests
        if test.cases is not None or cases is not None
    ]


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Exit code: 0 passed, 1 one failed, 4 unanswered, 5 nothing judged."""
    if any(o.status in ("failed", "error") and not o.is_unanswered for o in outcomes):
        return FAILED
    if any(outcome.is_unanswered for outcome in outcomes):
        return UNANSWERED
    return PASSED if any(outcome.passed for outcome in outcomes) else NOTHING
