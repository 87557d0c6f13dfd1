"""Redaction of texts: keyed placeholders in place of values, also within JSON.

A placeholder is the HMAC-SHA-256 of kind and value, cut to 64 bits; those already there stay. JSON is
redacted in place, literal by literal; other text in each of its readings.
"""

import hmac
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from . import readings
from .detectors import DETECTORS, PHONE_NAME, SECRET_NAME, is_bare_phone, is_card_number, is_phone
from .kinds import KINDS, Kind
from .sieve import may_hold

PLACEHOLDER = re.compile(rf"(<(?:{'|'.join(KINDS)}):[0-9a-f]{{16}}>)")
_BEGINS_JSON = ("{", "[", '"')
_BEFORE_JSON = " \t\r\n\ufeff\x1e"
_JSON_LINE = re.compile(r"^[ \t\ufeff\x1e]*(?:data:[ \t]*)?([{\[\"].*)$", re.MULTILINE)
"""JSON on a line of its own: JSON lines, RFC 7464, and server-sent events."""
_STRING = r'[^"\\]*+(?:\\.[^"\\]*+)*+'
_LITERAL = re.compile(
    rf'"(?P<text>{_STRING})"(?:(?P<colon>\s*:\s*)(?:"(?P<value>{_STRING})"|(?P<number>-?\d[\d.eE+-]*))?)?'
    r"|(?P<bare>-?\d[\d.eE+-]*)",
    re.DOTALL,
)
"""Texts and numbers of JSON, a member's value with its name."""
_NAMED_NUMBER = re.compile(r'((?:\\)*")\s{0,8}:\s{0,8}\Z')
_NUMBER = re.compile(r"\d[\d.eE+-]*")
_LONG, _SHORTEST, _FEWEST_SIGNS = 1000, 6, 8
"""Characters from which a sieve pays; of the shortest value, and of the shortest among numbers."""
_DEEPEST = 64
_DEEPEST_TEXT = 8
"""Levels of JSON within texts of JSON; deeper ones are redacted as text."""


class _Found(NamedTuple):
    start: int
    end: int
    rank: int
    depth: int
    kind: Kind
    value: str


class TextRedactor:
    """Redactor of texts and of JSON values; ``counts`` values by kind."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.counts: Counter[Kind] = Counter()

    def placeholder(self, kind: Kind, value: str) -> str:
        self.counts[kind] += 1
        content = f"{kind}\0{DETECTORS[kind].plain(value)}".encode("utf-8", "replace")
        return f"<{kind}:{hmac.digest(self._key, content, 'sha256').hex()[:16]}>"

    def text(
        self, text: str, kinds: Collection[Kind], *, is_phone_number: bool = False, depth: int = _DEEPEST_TEXT
    ) -> str:
        """JSON stays JSON; ``is_phone_number`` if bare digits are one."""
        if "value" in kinds:
            return text if not text or PLACEHOLDER.fullmatch(text) else self.placeholder("value", text)
        if is_phone_number and "phone" in kinds and is_bare_phone(text):
            return self.placeholder("phone", text)
        if len(text) < _SHORTEST:
            return text
        if depth == 0:
            return self._plain(text, kinds)
        whole = self._json(text, kinds, depth)
        if whole is not None:
            return whole
        parts, at = [], 0
        for line in _JSON_LINE.finditer(text):
            made = self._json(line[1], kinds, depth)
            if made is not None:
                parts += [self._plain(text[at : line.start(1)], kinds), made]
                at = line.end(1)
        return "".join([*parts, self._plain(text[at:], kinds)])

    def value(
        self, value: Any, kinds: Collection[Kind], *, is_phone_number: bool = False, depth: int = _DEEPEST
    ) -> Any:
        """JSON value; redacted numbers become texts."""
        if isinstance(value, str):
            return self.text(value, kinds, is_phone_number=is_phone_number)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(repr(value), kinds, is_phone_number=is_phone_number) or value
        if not isinstance(value, dict | list):
            return value
        if depth == 0:
            raise RecursionError("JSON nested too deeply")
        if isinstance(value, list):
            return [
                self.value(item, kinds, is_phone_number=is_phone_number, depth=depth - 1) for item in value
            ]
        return {
            self.text(name, kinds): self._member(name, each, kinds, is_phone_number, depth - 1)
            for name, each in value.items()
        }

    def _member(self, name: str, value: Any, kinds: Collection[Kind], is_phone: bool, depth: int) -> Any:
        if isinstance(value, str) and self._is_secret(name, value, kinds):
            return self._secret(value)
        return self.value(value, kinds, is_phone_number=is_phone or names_phone(name), depth=depth)

    def _is_secret(self, name: str, value: str, kinds: Collection[Kind]) -> bool:
        return "token" in kinds and len(value) >= 8 and SECRET_NAME.fullmatch(name) is not None

    def _secret(self, value: str) -> str:
        return value if PLACEHOLDER.fullmatch(value) else self.placeholder("token", value)

    def _number(self, text: str, kinds: Collection[Kind], *, is_phone_number: bool) -> str | None:
        if "value" in kinds:
            return self.placeholder("value", text)
        if len(text) < _FEWEST_SIGNS:
            return None
        if "card" in kinds and is_card_number(text):
            return self.placeholder("card", text)
        if "phone" in kinds and is_phone_number and is_phone(text):
            return self.placeholder("phone", text)
        return None

    def _json(self, text: str, kinds: Collection[Kind], depth: int) -> str | None:
        """Everything but values stays as written; None for other texts."""
        body = text.lstrip(_BEFORE_JSON)
        if not body.startswith(_BEGINS_JSON):
            return None
        try:
            json.loads(body, parse_constant=_no_constant, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            return None
        return text[: len(text) - len(body)] + _LITERAL.sub(
            lambda found: self._literal(found, kinds, depth - 1), body
        )

    def _literal(self, found: re.Match[str], kinds: Collection[Kind], depth: int) -> str:
        text, colon, value, number, bare = found.groups()
        if text is None:
            made = self._number(bare, kinds, is_phone_number=False)
            return bare if made is None else f'"{made}"'
        shown = self._string(text, kinds, depth)
        if colon is None:
            return f'"{shown}"'
        name = _unescaped(text)
        if number is not None:
            made = self._number(number, kinds, is_phone_number=names_phone(name))
            return f'"{shown}"{colon}{number}' if made is None else f'"{shown}"{colon}"{made}"'
        if value is None:
            return f'"{shown}"{colon}'
        plain = _unescaped(value)
        if self._is_secret(name, plain, kinds):
            return f'"{shown}"{colon}{_quoted(self._secret(plain))}'
        return f'"{shown}"{colon}"{self._string(value, kinds, depth, is_phone_number=names_phone(name))}"'

    def _string(self, raw: str, kinds: Collection[Kind], depth: int, *, is_phone_number: bool = False) -> str:
        """JSON string without quotes, as written unless redacted."""
        plain = _unescaped(raw)
        made = self.text(plain, kinds, is_phone_number=is_phone_number, depth=depth)
        return raw if made == plain else _quoted(made)[1:-1]

    def _plain(self, text: str, kinds: Collection[Kind]) -> str:
        if len(text) < _SHORTEST:
            return text
        found = [
            _Found(*reading.place(start, end), rank, -depth, kind, folded[start:end])
            for depth, reading in enumerate(readings.readings(text))
            for folded in [_without_placeholders(reading.folded())]
            for digits in [sum(map(folded.count, "0123456789"))]
            for rank, (kind, detector) in enumerate(DETECTORS.items())
            if kind in kinds and digits >= detector.digits and detector.sign in folded
            if len(folded) < _LONG or may_hold(folded, kind)
            for start, end in detector.spans(folded)
        ]
        parts, at = [], 0
        for start, end, value in _places(text, sorted(found)):
            shown = self.placeholder(value.kind, value.value)
            quote = _quote(text, start, end)
            parts += [text[at:start], quote, shown, quote]
            at = end
        return "".join([*parts, text[at:]])


def names_phone(name: str) -> bool:
    return PHONE_NAME.search(name) is not None


def is_text(text: str) -> bool:
    """False for unpaired surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _places(text: str, found: Sequence[_Found]) -> Iterator[tuple[int, int, _Found]]:
    """Disjoint spans to replace; of overlapping values the first kind in the deepest reading wins."""
    at = 0
    while at < len(found):
        end, last = found[at].end, at + 1
        while last < len(found) and found[last].start < end:
            end = max(end, found[last].end)
            last += 1
        values = found[at:last]
        yield _start(text, values), end, min(values, key=lambda value: (value.rank, value.depth))
        at = last


def _start(text: str, values: Sequence[_Found]) -> int:
    r"""First position that cuts no escape: ``n`` of ``\nann@…`` is part of none."""
    whole = [value.start for value in values if not _is_in_escape(text, value.start)]
    if whole:
        return min(whole)
    start = values[0].start
    while start and text[start - 1] == "\\":
        start -= 1
    return start


def _is_in_escape(text: str, at: int) -> bool:
    return text[at - 1 : at] == "\\" and text[at] in "bfnrtux"


def _quote(text: str, start: int, end: int) -> str:
    """Quote that a placeholder needs as a member's value in place of a bare number."""
    named = _NAMED_NUMBER.search(text, max(start - 64, 0), start)
    return named[1] if named and _NUMBER.fullmatch(text, start, end) else ""


def _without_placeholders(text: str) -> str:
    """Same length, without what may look like a value in a placeholder."""
    return PLACEHOLDER.sub(lambda found: "<" * len(found[0]), text) if "<" in text else text


def _unescaped(raw: str) -> str:
    return json.loads(f'"{raw}"') if "\\" in raw else raw


def _quoted(text: str) -> str:
    """ASCII if it has half of a surrogate pair."""
    return json.dumps(text, ensure_ascii=not is_text(text))


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
