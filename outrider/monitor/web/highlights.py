"""Fields of a record that a flag is about."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outrider.monitor.queries.payload_views import flatten
from outrider.monitor.queries.queries import FlagView

PARTS = ("inputs", "outputs", "attrs")
MOST_FIELDS = 14
AROUND = 120
"""Letters shown before the first marked place of a long text."""
MOST_LETTERS = 400
_ELEMENT = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Shown:
    name: str
    text: str
    named: bool
    """The flag is about it."""
    pieces: tuple[tuple[str, bool], ...] = ()
    """Its text in parts, those that the evidence points at marked."""


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


def pieces_of(text: str, spans: Sequence[tuple[int, int]]) -> tuple[tuple[str, bool], ...]:
    """Text in parts, marked within the spans, cut around them.

    Examples
    --------
    >>> pieces_of("call 555 now", [(5, 8)])
    (('call ', False), ('555', True), (' now', False))
    """
    found: list[tuple[str, bool]] = []
    at = max(0, min(start for start, _ in spans) - AROUND)
    stop = min(len(text), at + MOST_LETTERS)
    if at:
        found.append(("…", False))
    for start, end in sorted(spans):
        start, end = max(start, at), min(end, stop)
        if start < end:
            found += [(text[at:start], False), (text[start:end], True)]
            at = end
    found.append((text[at:stop] + ("…" if stop < len(text) else ""), False))
    return tuple(piece for piece in found if piece[0])


def spans_of(
    evidence: Any, texts: Mapping[str, str], column: str | None = None
) -> dict[str, list[tuple[int, int]]]:
    """Places in texts with ``start`` and ``end`` in evidence, by column.

    The column is the key above them, or named beside them (``column``, ``field``), or the only text there is.

    Examples
    --------
    >>> texts = {"inputs.text": "call 555", "outputs.answer": "no"}
    >>> spans_of({"inputs.text": [{"start": 5, "end": 8}]}, texts)
    {'inputs.text': [(5, 8)]}
    >>> spans_of({"column": "answer", "start": 0, "end": 2}, texts)
    {'outputs.answer': [(0, 2)]}
    """
    found: dict[str, list[tuple[int, int]]] = {}
    if isinstance(evidence, Mapping):
        told = _text_column(evidence.get("column", evidence.get("field")), texts) or column
        start, end = evidence.get("start"), evidence.get("end")
        place = told or (next(iter(texts)) if len(texts) == 1 else None)
        if (
            place is not None
            and type(start) is int
            and type(end) is int
            and 0 <= start < end <= len(texts[place])
        ):
            found[place] = [(start, end)]
        inner = [(value, _text_column(key, texts) or told) for key, value in evidence.items()]
    elif isinstance(evidence, list):
        inner = [(value, column) for value in evidence[:100]]
    else:
        inner = []
    for value, of in inner:
        for name, places in spans_of(value, texts, of).items():
            found.setdefault(name, []).extend(places)
    return found


def _text_column(name: Any, texts: Mapping[str, str]) -> str | None:
    if not isinstance(name, str) or name in texts:
        return name if isinstance(name, str) else None
    return next((column for column in texts if column.partition(".")[2] == name), None)


def shown_fields(
    record: Mapping[str, Any] | None,
    evidence: Mapping[str, Any],
    *,
    description: str = "",
    most: int = MOST_FIELDS,
) -> tuple[tuple[Shown, ...], set[str]]:
    """Fields of a record as text, flagged ones first; and their columns.

    These are the columns that the evidence names or, where it names none, the assertion's description.
    Tensors are left out: what can be seen of them are pictures.
    """
    columns = {
        f"{part}.{name}": value for part in PARTS for name, value in ((record or {}).get(part) or {}).items()
    }
    named = named_fields(evidence, list(columns)) or described_fields(description, list(columns))
    texts = {column: value for column, value in columns.items() if isinstance(value, str)}
    spans = spans_of(evidence, texts)
    named |= spans.keys()
    fields = [
        Shown(name, text, column in named, pieces_of(value, spans[column]) if column in spans else ())
        for column, value in columns.items()
        if not _is_tensor(value)
        for name, text in flatten(value, column)
    ]
    return tuple(sorted(fields, key=lambda one: not one.named)[:most]), named


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


def fields_of(
    record: Mapping[str, Any] | None,
    flags: Sequence[FlagView],
    about: Mapping[str, str],
    most: int = MOST_FIELDS,
) -> tuple[tuple[Shown, ...], set[str]]:
    evidence = {flag.assertion: flag.evidence for flag in flags}
    description = " ".join(about.get(flag.assertion, "") for flag in flags)
    only = flags[0].evidence if len(flags) == 1 else evidence
    return shown_fields(record, only, description=description, most=most)


def fields_of_part(values: Mapping[str, Any], part: str, marked: Mapping[str, Shown]) -> list[Shown]:
    return [
        replace(marked.get(f"{part}.{name}", Shown(name, text, named=False)), name=name)
        for name, text in flatten(values)
    ]
