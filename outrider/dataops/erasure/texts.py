"""Texts and JSON without quotations of erased records."""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .values import LEAST_LETTERS

GONE = "[erased]"
ID_KEYS = frozenset({"id", "ids", "record", "records", "record_id", "entity", "first_record", "members"})
"""Keys whose values name records: only there may a short name be matched."""
_AT_ONCE = 200


@dataclass(slots=True)
class Quotations:
    """Search for names and values of erased records in texts.

    Parameters
    ----------
    names
        Ids and entities: those of six letters and more are found inside of texts, shorter ones where a value
        of JSON names a record.
    values
        Texts and numbers, found inside of texts.
    model
        Only what is told of this one is searched; None for all.

    Examples
    --------
    >>> quoted = Quotations({"a1"}, {"call 555 now"})
    >>> quoted.cleaned('{"id": "a1", "said": "I call 555 now!", "x": 0.5}')
    '{"id": "[erased]", "said": "I [erased]!", "x": 0.5}'
    >>> quoted.cleaned("record a1x") is None
    True
    """

    names: Collection[str]
    values: Collection[str]
    model: str | None = None
    _parts: list[str] = field(init=False)
    _short: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._short = {one for one in self.names if len(one) < LEAST_LETTERS}
        self._parts = sorted({*self.names, *self.values} - self._short, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._parts or self._short)

    def suspects(self, texts: Iterable[str | None]) -> list[int]:
        column = pa.array([text or "" for text in texts], pa.large_string())
        found = pa.array([False] * len(column))
        quoted = [f'"{one}"' for one in self._short]
        needles = list(dict.fromkeys(form for one in (*self._parts, *quoted) for form in _written(one)))
        for start in range(0, len(needles), _AT_ONCE):
            pattern = "|".join(map(_escaped, needles[start : start + _AT_ONCE]))
            found = pc.or_(found, pc.match_substring_regex(column, pattern))
        return [at for at, is_one in enumerate(found.to_pylist()) if is_one]

    def is_in(self, value: Any) -> bool:
        return bool(self.cleaned_value(value) != value)

    def cleaned(self, text: str) -> str | None:
        try:
            given = json.loads(text)
            clean = self.cleaned_value(given)
        except (ValueError, RecursionError):  # no JSON, or nested too deeply to be read as such
            clean = self._plain(text, is_json=text[:1] in ("{", "["))
            return None if clean == text else clean
        return None if clean == given else json.dumps(clean)

    def cleaned_value(self, value: Any, *, names: bool = False) -> Any:
        """Value of JSON without quotations; ``names`` where it names records."""
        if isinstance(value, dict):
            return {
                self._plain(key): self.cleaned_value(one, names=key in ID_KEYS) for key, one in value.items()
            }
        if isinstance(value, list):
            return [self.cleaned_value(one, names=names) for one in value]
        if isinstance(value, str):
            return GONE if names and value in self._short else self._nested(value)
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and json.dumps(value) in self._parts
        ):
            return None
        return value

    def _nested(self, text: str) -> str:
        if text[:1] in ("{", "["):
            clean = self.cleaned(text)
            return text if clean is None else clean
        return self._plain(text)

    def _plain(self, text: str, *, is_json: bool = False) -> str:
        for part in self._parts:
            for form in _written(part) if is_json else (part,):
                if form in text:
                    text = text.replace(form, GONE)
        return text


def _written(text: str) -> Iterator[str]:
    """Text as it stands, and as JSON writes it, once and inside a JSON text."""
    yield text
    for is_ascii in (True, False):
        inner = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        yield inner
        yield json.dumps(inner)[1:-1]


def _escaped(text: str) -> str:
    return "".join(f"\\x{{{ord(one):x}}}" if ord(one) < 128 and not one.isalnum() else one for one in text)
