"""Gate policy in a file."""

import hashlib
import re
import tomllib
from pathlib import Path

from pydantic import ValidationError

from .explanations import Location, explain
from .gate_sections import FrozenPolicy, GateSettings

MOST_BYTES = 65_536
"""Maximum size of a policy file, because each verdict stores all of it."""
VERSION = 1
"""Version of the policy file's format."""


def with_file(gate: GateSettings, base: Path) -> GateSettings:
    """Replace a reference to a policy file by its content; an invalid file becomes a policy that
    refuses every candidate."""
    if gate.policy is None:
        return gate
    try:
        return read_policy(base / gate.policy, gate.policy)
    except ValueError as error:
        return FrozenPolicy(file=gate.policy, fault=str(error))


def frozen(gate: GateSettings) -> FrozenPolicy:
    """Policy with its text and digest; if it is not from a file, those of its keys as JSON."""
    if isinstance(gate, FrozenPolicy):
        return gate
    text = gate.model_dump_json(exclude={"policy"})
    return FrozenPolicy(**gate.model_dump(), digest=_digest(text), text=text)


def read_policy(path: Path, name: str) -> FrozenPolicy:
    """Read and check a policy file; a ValueError names file, line and key."""
    text = _read(path, name)
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of numbers too long, too
        raise ValueError(f"{name} is no TOML: {error}") from None
    version = raw.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"{_at(name, text, ('version',))}: version = {VERSION} expected, got {version!r}")
    if odd := sorted(raw.keys() & (FrozenPolicy.model_fields.keys() - GateSettings.model_fields.keys())):
        raise ValueError(f"{_at(name, text, (odd[0],))}: {odd[0]}: unknown key; see docs/gate.md")
    if "policy" in raw:
        raise ValueError(f"{_at(name, text, ('policy',))}: policy: a policy names no other file")
    try:
        found = GateSettings.model_validate(raw)
    except ValidationError as error:
        lines = [f"{_at(name, text, location)}: {line}" for location, line in explain(error, GateSettings)]
        raise ValueError("\n".join(lines)) from None
    return FrozenPolicy(**found.model_dump(), file=name, digest=_digest(text), text=text)


def _read(path: Path, name: str) -> str:
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ValueError(f"{name}: a file expected, got a folder or a device: {path}")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}: {path}") from None
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name}: {MOST_BYTES:,} bytes at most expected, got {path.stat().st_size:,}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{name}, line {line}: UTF-8 expected, got byte {content[error.start]:#x}") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _at(name: str, text: str, location: Location) -> str:
    """File and line of a key, or of its table if the key is not found."""
    tables = [part for part in location if isinstance(part, str)]
    if not tables:
        return name
    number = next((part for part in location if isinstance(part, int)), 0)
    found, seen, table = 0, -1, ""
    for line, content in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([\w.-]+)", content):
            table = header[1]
            seen += table == tables[0]
            if table == tables[0] and seen == number:
                found = line
        elif key := re.match(r"""\s*["']?([\w-]+)["']?\s*[=.]""", content):
            is_top = not table and key[1] == tables[0]
            is_inner = table == tables[0] and seen == number and key[1] in tables[1:]
            if is_top or is_inner:
                found = line
    return f"{name}, line {found}" if found else name
