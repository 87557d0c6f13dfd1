"""Fields of a record that a flag is about."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.monitor.queries.payload_views import flatten

PARTS = ("inputs", "outputs", "attrs")
MOST_FIELDS = 14
_ELEMENT = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Shown:
    """Field of a record."""

    name: str
    text: str
    named: bool
    """Whether the flag is about it."""


def named_fields(evidence: Mapping[str, Any], columns: Sequence[str]) -> set[str]:
    """Columns named in evidence, as key or text, ``inputs.`` optional.

    Examples
    --------
    >>> columns = ["inputs.age", "inputs.income", "outputs.label"]
    >>> sorted(named_fields({"age": -1, "field": "outputs.label"}, columns))
    ['inputs.age', 'outputs.label']
    """
    words = {_ELEMENT.sub("", word) for word in _words(evidence)}
    return {name for name in columns if name in words or name.partition(".")[2] in words}


def described_fields(description: str, columns: Sequence[str]) -> set[str]:
    """Columns that a description, like the library's, names in full.

    Examples
    --------
    >>> columns = ["inputs.hi", "inputs.high", "inputs.low"]
    >>> sorted(described_fields("inputs.low exceeds inputs.high.", columns))
    ['inputs.high', 'inputs.low']
    """
    return {
        name
        for name in columns
        if re.search(rf"(?<![\w.]){re.escape(name)}(?!\.?\w)", description) is not None
    }


def shown_fields(
    record: Mapping[str, Any] | None, evidence: Mapping[str, Any], *, description: str = ""
) -> tuple[tuple[Shown, ...], set[str]]:
    """Fields of a record as text, flagged ones first; and their columns.

    These are the columns that the evidence names or, where it names none, the assertion's description.
    Tensors are left out: what can be seen of them are pictures.
    """
    columns = {
        f"{part}.{name}": value for part in PARTS for name, value in ((record or {}).get(part) or {}).items()
    }
    named = named_fields(evidence, list(columns)) or described_fields(description, list(columns))
    fields = [
        Shown(name, text, column in named)
        for column, value in columns.items()
        if not _is_tensor(value)
        for name, text in flatten(value, column)
    ]
    return tuple(sorted(fields, key=lambda one: not one.named)[:MOST_FIELDS]), named


def _is_tensor(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def _words(value: Any, name: str = "") -> Iterator[str]:
    """Keys, dotted keys and short texts of nested evidence."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            full = f"{name}.{key}" if name else str(key)
            yield from (str(key), full)
            yield from _words(inner, full)
    elif isinstance(value, str):
        if len(value) <= 200:
            yield value
    elif isinstance(value, list) and len(value) <= 100:
        for inner in value:
            if isinstance(inner, str | Mapping):
                yield from _words(inner, name)
