"""Suite file as values and bytes, with all fields."""

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from outrider.errors import ConfigError

VERSION = 1
Rate = Annotated[float, Meta(ge=0.0, le=1.0)]
Confidence = Annotated[float, Meta(gt=0.0, lt=1.0)]
Named = Annotated[str, Meta(min_length=1)]


class CaseSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Origin of a case: a production record or a language model."""

    model: str = ""
    record_id: str = ""
    flag: str = ""
    version: str = ""
    by: str = ""
    """Source of the right answer: a person, or ``weak:<assertion>``."""
    at: str = ""
    prompt: str = ""
    """Digest of the prompt for which a language model generated this case."""


class WrittenCase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One case: its examples, in INV and DIR the original first."""

    id: str = ""
    inputs: Annotated[list[str | dict[Named, Any]], Meta(min_length=1)]
    """Examples of the case; a text is short for ``{"text": …}``."""
    label: Any | UnsetType = UNSET
    """Right answer: a value (``label.label``), or an object of values by field."""
    labels: list[Any] | UnsetType = UNSET
    """Right answer of each example, if they differ."""
    attrs: dict[Named, Any] = field(default_factory=dict)
    source: CaseSource | None = None
    reviewed: bool = True
    """False for a candidate, which does not run."""


class TensorType(Struct, frozen=True, forbid_unknown_fields=True):
    """Type of a tensor column."""

    dtype: Literal[
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    ]  # fmt: skip
    shape: list[Annotated[int, Meta(ge=0)]]


class WrittenTest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One MFT, INV or DIR with its cases."""

    name: Named
    kind: Literal["MFT", "INV", "DIR"]
    capability: Named = "general"
    description: str = ""
    tolerance: Rate = 0.0
    expect: dict[str, Any] | None = None
    aggregate: Literal["all", "all_except_first", "any", "mean"] = "all"
    stop: Literal["never", "decided"] = "never"
    confidence: Confidence = 0.95
    labels: Any | UnsetType = UNSET
    """Right answer of cases without their own."""
    types: dict[Named, str | TensorType] = field(default_factory=dict)
    """Types of columns that do not follow from the values, such as ``{"inputs.age": "int32"}``."""
    cases: list[WrittenCase]


class WrittenSuite(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Content of a suite file."""

    outrider_suite: Literal[1]
    name: Named
    notice: str = ""
    """Licence and origin of the cases."""
    tests: list[WrittenTest]


def to_bytes(suite: WrittenSuite) -> bytes:
    """File content as bytes, equal for equal suites."""
    head = {"outrider_suite": suite.outrider_suite, "name": suite.name}
    head |= {"notice": suite.notice} if suite.notice else {}
    lines = [f"{_json(name)}: {_json(value)}," for name, value in head.items()]
    tests = ",\n".join(_test(test) for test in suite.tests)
    return "\n".join(["{", *lines, f'"tests": [\n{tests}\n]', "}", ""]).encode()


def write(suite: WrittenSuite, path: Path) -> None:
    """Write a suite file atomically."""
    atomically(path, to_bytes(suite))


def atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: to a temporary file, then renamed."""
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
