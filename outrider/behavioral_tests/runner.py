"""Runner of suite files, for ``outrider test`` and the promotion gate."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from outrider.errors import ConfigError

from .outcome import Outcome
from .suite import Suite, load_suite
from .suite_file import SUFFIX

PASSED, FAILED, UNANSWERED, NOTHING = 0, 1, 4, 5  # exit codes of the command line


def find_suites(paths: Sequence[Path]) -> list[Suite]:
    """Suites of files, and of ``test_*.py`` and ``*.suite.json`` below folders.

    Each file counts once. Hidden folders and virtual environments are left alone, as pytest leaves them.
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
    """Exit code: 0 passed, 1 one failed, 4 unanswered, 5 nothing judged."""
    if any(o.status in ("failed", "error") and not o.is_unanswered for o in outcomes):
        return FAILED
    if any(outcome.is_unanswered for outcome in outcomes):
        return UNANSWERED
    return PASSED if any(outcome.passed for outcome in outcomes) else NOTHING
