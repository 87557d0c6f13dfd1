"""Strict reader of suite files; errors name test, case and field."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from outrider.behavioral_tests.expect import Rule, equal, from_spec, same
from outrider.behavioral_tests.metamorphic import DIR, INV
from outrider.behavioral_tests.mft import MFT
from outrider.errors import ConfigError, SchemaMismatch

from .columns import grouped
from .written import VERSION, WrittenCase, WrittenSuite, WrittenTest

SUFFIX = ".suite.json"
_PLACE = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\[(\d+)\]|\.([^.\[\]]+)")
DEFAULTS = {"MFT": equal("label"), "INV": same("label")}
_KINDS: dict[str, type[MFT] | type[INV] | type[DIR]] = {"MFT": MFT, "INV": INV, "DIR": DIR}


class _Head(msgspec.Struct):
    outrider_suite: Any = None


def read_written(path: Path) -> WrittenSuite:
    """Read and validate a suite file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    return parse(content, str(path))


def parse(content: bytes, file: str) -> WrittenSuite:
    """Parse and validate the bytes of a suite file."""
    try:
        _check_version(msgspec.json.decode(content, type=_Head).outrider_suite, file)
        suite = msgspec.json.decode(content, type=WrittenSuite)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {_named(str(error), content)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not JSON: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{file}: objects or lists are nested too deeply") from error
    _check_distinct([test.name for test in suite.tests], f"{file}: two tests are called")
    for test in suite.tests:
        numbers = [case.id or str(number) for number, case in enumerate(test.cases)]
        _check_distinct(numbers, f"{file}: test {test.name!r}: two cases have the id")
        if not test.cases:
            raise ConfigError(f"{file}: test {test.name!r}: at least one case expected, got none")
    return suite


def runnable(suite: WrittenSuite, *, file: str) -> tuple[MFT | INV | DIR, ...]:
    """Runnable tests of a suite, without unreviewed candidates."""
    return tuple(
        _test(test, suite.name, file) for test in suite.tests if any(case.reviewed for case in test.cases)
    )


def candidates_of(suite: WrittenSuite) -> int:
    """Number of cases that await review."""
    return sum(not case.reviewed for test in suite.tests for case in test.cases)


def revision_of(test: WrittenTest) -> str:
    """Digest of all fields of a test."""
    return hashlib.blake2b(msgspec.json.encode(test), digest_size=6).hexdigest()


def numbered(cases: Sequence[WrittenCase]) -> list[WrittenCase]:
    """Cases with an id each: their own, or their number."""
    return [
        case if case.id else msgspec.structs.replace(case, id=str(number))
        for number, case in enumerate(cases)
    ]


def _test(test: WrittenTest, suite: str, file: str) -> MFT | INV | DIR:
    where = f"{file}: test {test.name!r}"
    cases = [case for case in numbered(test.cases) if case.reviewed]
    try:
        found = grouped(cases, test.labels, test.types)
    except SchemaMismatch as error:
        raise ConfigError(f"{where}: {error}") from error
    rule = _rule(test, where)
    try:
        return _KINDS[test.kind](
            cases=found,
            expect=rule,
            name=test.name,
            capability=test.capability,
            description=test.description,
            tolerance=test.tolerance,
            aggregate=test.aggregate,
            stop=test.stop,
            confidence=test.confidence,
            suite=suite,
            revision=revision_of(test),
        )
    except ValueError as error:  # what fits only one by one
        raise ConfigError(f"{where}: {error}") from error


def _rule(test: WrittenTest, where: str) -> Rule:
    if test.expect is None:
        if test.kind not in DEFAULTS:
            raise ConfigError(f"{where}: a DIR needs 'expect': the direction in which the answer must move")
        return DEFAULTS[test.kind]
    try:
        return from_spec(test.expect)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{where}, expect: {error}") from error


def _check_version(version: object, file: str) -> None:
    if version is None:
        raise ConfigError(f'{file}: "outrider_suite": {VERSION} expected; without it this is no suite file')
    if version != VERSION:
        raise ConfigError(
            f'{file}: "outrider_suite": {VERSION} expected, got {str(version)[:40]}; '
            "a newer Outrider may have written it"
        )


def _check_distinct(names: list[str], fault: str) -> None:
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{fault} {double!r}; one distinct name each is expected")


def _named(message: str, content: bytes) -> str:
    """Error message with ``$.tests[3].cases[17].label`` replaced by names and the value there."""
    match = _PLACE.search(message)
    if match is None:
        return message
    steps = [int(number) if number else name for number, name in _STEP.findall(match[1])]
    where, field = [], ""
    try:
        at: Any = msgspec.json.decode(content)
    except msgspec.MsgspecError:  # a number that nothing can hold
        return message
    for depth, step in enumerate(steps):
        try:
            at = at[step]
        except (KeyError, IndexError, TypeError):
            at = None
        if isinstance(step, int) and depth in (1, 3) and steps[depth - 1] in ("tests", "cases"):
            key, what = ("name", "test") if depth == 1 else ("id", "case")
            where.append(f"{what} {at.get(key, str(step)) if isinstance(at, dict) else str(step)!r}")
            field = ""
        else:
            field += f"[{step}]" if isinstance(step, int) else f".{step}"
    where += [field.lstrip(".")] if field else []
    came = "" if isinstance(at, dict | list) else f", got {str(at)[:80]!r}"
    return f"{', '.join(where)}: {message[: match.start()]}{came}".lstrip(": ")
