"""Writer of suite files, one case per line for readable diffs."""

import os
import tempfile
from pathlib import Path

import msgspec

from outrider.errors import ConfigError

from .written import WrittenSuite, WrittenTest


def to_bytes(suite: WrittenSuite) -> bytes:
    """The file's content, the same for equal suites.

    Raises
    ------
    ConfigError
        If a value cannot be written as JSON.
    """
    head = {"outrider_suite": suite.outrider_suite, "name": suite.name}
    head |= {"notice": suite.notice} if suite.notice else {}
    lines = [f"{_json(name)}: {_json(value)}," for name, value in head.items()]
    tests = ",\n".join(_test(test) for test in suite.tests)
    return "\n".join(["{", *lines, f'"tests": [\n{tests}\n]', "}", ""]).encode()


def write(suite: WrittenSuite, path: Path) -> None:
    """Write a suite file whole or not at all."""
    atomically(path, to_bytes(suite))


def atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, beside, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _test(test: WrittenTest) -> str:
    try:
        head = _json(msgspec.structs.replace(test, cases=[]))
        cases = ",\n".join([_json(case) for case in test.cases])
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise ConfigError(f"test {test.name!r} cannot be written as JSON: {error}") from error
    return f"{head[: -len('[]}')]}[\n{cases}\n]}}"


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
