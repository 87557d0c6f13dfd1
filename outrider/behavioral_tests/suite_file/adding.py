"""Addition of single cases to suite files, safe for concurrent use."""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from outrider.behavioral_tests.expect import spec_of
from outrider.errors import ConfigError

from .reading import DEFAULTS, SUFFIX, numbered, read_written, runnable
from .written import WrittenCase, WrittenSuite, WrittenTest, write

State = Literal["added", "changed", "present"]
"""Effect of adding a case: new, replaces a case of the same id, or already present."""


def add_case(path: Path, test: WrittenTest) -> State:
    """Add the single case of ``test`` to its suite file.

    A missing test of that name is created. An equal case changes nothing; a case with the same id is
    replaced. Several processes may add to a file concurrently.
    """
    state: State = "present"

    def change(suite: WrittenSuite) -> WrittenSuite:
        nonlocal state
        changed, state = with_case(suite, test)
        return changed

    update(path, change)
    return state


def update(path: Path, change: Callable[[WrittenSuite], WrittenSuite]) -> None:
    """Read, change, validate and write a suite file under a lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(path.parent):
        name = path.name.removesuffix(SUFFIX)
        before = read_written(path) if path.exists() else WrittenSuite(outrider_suite=1, name=name, tests=[])
        after = change(before)
        if after != before:
            runnable(after, file=path.name)
            write(after, path)


def with_case(suite: WrittenSuite, test: WrittenTest) -> tuple[WrittenSuite, State]:
    """Suite with the single case of ``test``, and its effect."""
    (case,) = test.cases
    old = next((each for each in suite.tests if each.name == test.name), None)
    if old is None:
        return replace(suite, tests=[*suite.tests, test]), "added"
    if (old.kind, _expected(old)) != (test.kind, _expected(test)):
        raise ConfigError(
            f"test {test.name!r} is there and asks something else ({old.kind}, {_expected(old)}); expected "
            f"{test.kind}, {_expected(test)}: rename one of them"
        )
    odd = [name for name, kind in test.types.items() if old.types.get(name, kind) != kind]
    if odd:
        raise ConfigError(
            f"test {test.name!r}: {odd[0]} is {old.types[odd[0]]} in its cases, {test.types[odd[0]]} came; "
            "the model's inputs have changed since: name another file"
        )
    cases = numbered(old.cases)
    there = next((number for number, each in enumerate(cases) if each.id == case.id), None)
    if there is not None and _is_equal(cases[there], case):
        return suite, "present"
    if there is None:
        cases.append(case)
    else:
        cases[there] = case
    new = replace(old, cases=cases, types=old.types | test.types)
    tests = [new if each is old else each for each in suite.tests]
    return replace(suite, tests=tests), "added" if there is None else "changed"


def _expected(test: WrittenTest) -> Mapping[str, Any] | None:
    """Expectation of a test, including the default."""
    return test.expect or (spec_of(DEFAULTS[test.kind]) if test.kind in DEFAULTS else None)


def _is_equal(one: WrittenCase, other: WrittenCase) -> bool:
    return replace(one, source=None) == replace(other, source=None)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder; a lock on the file would be lost when the file is replaced."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
