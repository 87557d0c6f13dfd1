r"""Readings of a text, with escapes decoded and other scripts folded.

A value that a reader sees may stand in other bytes: ``\u0034111``, ``%40``, a no-break space, full-width
digits. Every reading knows which signs of the text each of its signs came from.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from html import unescape
from urllib.parse import unquote

Span = tuple[int, int]

_MOST = 12
"""Readings of one text, but for those without invisible characters: bounds the work on hostile texts."""
_HEX = "[0-9a-fA-F]"
_BACKSLASH = re.compile(
    rf"\\(?:u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|u{_HEX}{{4}}|x{_HEX}{{2}}|[\"'\\/bfnrt])"
)
ENTITIES = (
    "nbsp", "ensp", "emsp", "thinsp", "Tab", "NewLine", "shy", "zwnj", "zwj", "commat", "plus", "hyphen",
    "dash", "ndash", "mdash", "period", "middot", "bull", "sol", "lowbar", "lpar", "rpar", "amp",
)  # fmt: skip
_ENTITY = re.compile(
    rf"%(?:0[9aAdD]|[2-7]{_HEX}|[cCdD]{_HEX}%{_HEX}{{2}}|[eE]{_HEX}(?:%{_HEX}{{2}}){{2}}"
    rf"|[fF]{_HEX}(?:%{_HEX}{{2}}){{3}})|&\#(?:x{_HEX}{{1,6}}|\d{{1,7}});?|&(?:{'|'.join(ENTITIES)});"
)
_UNSEEN = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\u20e3\ufe00-\ufe0f\ufeff"
)
_UNSEEN_RUN = re.compile(rf"(?:[{_UNSEEN}]|\x1b\[[0-9;]*m)+")
"""Zero-width characters, and terminal colours."""
_OTHER = re.compile(
    r"[^\x00-\x7f](?<=[\d\s\u00b7\u2022\u2027\u2219\u22c5\u2010-\u2015\u2043\u2212\ufe58\ufe63\ufe6b\ufe52\uff01-\uff5e])"
)
_NAMED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_MARKS = dict.fromkeys("\ufe52\u00b7\u2022\u2027\u2219\u22c5", ".") | {
    "\ufe6b": "@", "\u0085": "\n", "\u2028": "\n", "\u2029": "\n",
}  # fmt: skip
_ZEROS = (
    "\u0660\u06f0\u07c0\u0966\u09e6\u0a66\u0ae6\u0b66\u0be6\u0c66\u0ce6\u0d66\u0de6\u0e50"
    "\u0ed0\u0f20\u1040\u1090\u17e0\u1810\u1946\u19d0\u1a80\u1a90\u1b50\u1bb0\u1c40\u1c50"
    "\ua620\ua8d0\ua900\ua9d0\ua9f0\uaa50\uabf0\U0001d7ce"
)
"""Digits 0 of other scripts, each followed by those up to 9."""
SIGNS = [
    *"\ufe52\ufe6b",
    *(chr(code) for code in range(0xFF01, 0xFF5F)),
    *(chr(ord(zero) + more) for zero in _ZEROS for more in range(10)),
    *(
        chr(code)
        for first, last in re.findall("(.)(?:-(.))?", _UNSEEN)
        for code in range(ord(first), ord(last or first) + 1)
    ),
]
"""Non-ASCII characters that stand for a letter, digit or mark, or are invisible."""


class Reading:
    """Text whose characters know their origin."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._before: Reading | None = None
        self._news: list[int] = []
        self._olds: list[tuple[int, int, int]] = []

    def place(self, start: int, end: int) -> Span:
        """Span in the original text of a non-empty span."""
        if self._before is None:
            return start, end
        return self._before.place(self._old(start)[0], self._old(end - 1)[1])

    def decoded(self, pattern: re.Pattern[str], sign_of: Callable[[str], str]) -> "Reading | None":
        """One character, or none, for every match; None without a match."""
        parts: list[str] = []
        news: list[int] = []
        olds: list[tuple[int, int, int]] = []
        at = new = 0
        for match in pattern.finditer(self.text):
            start, end = match.span()
            sign = sign_of(match[0])
            new += start - at
            news.append(new)
            olds.append((start, end, len(sign)))
            parts += (self.text[at:start], sign)
            new += len(sign)
            at = end
        if not news:
            return None
        made = Reading("".join([*parts, self.text[at:]]))
        made._before, made._news, made._olds = self, news, olds
        return made

    def folded(self) -> str:
        """Same length, in similar ASCII characters."""
        return self.text if self.text.isascii() else _OTHER.sub(_as_ascii, self.text)

    def _old(self, at: int) -> Span:
        last = bisect_right(self._news, at) - 1
        if last < 0:
            return at, at + 1
        start, end, length = self._olds[last]
        beyond = at - self._news[last] - length
        return (start, end) if beyond < 0 else (end + beyond, end + beyond + 1)


def readings(text: str) -> Iterator[Reading]:
    """The text itself first, the deepest last."""
    found, seen = [Reading(text)], {text}
    for reading in found:
        for marks, pattern, sign_of in (("\\", _BACKSLASH, _of_backslash), ("%&", _ENTITY, _of_entity)):
            if len(found) >= _MOST or not any(mark in reading.text for mark in marks):
                continue
            made = reading.decoded(pattern, sign_of)
            if made is not None and made.text not in seen:
                seen.add(made.text)
                found.append(made)
    yield from found
    for reading in found:
        if (not reading.text.isascii() or "\x1b" in reading.text) and (
            made := reading.decoded(_UNSEEN_RUN, lambda _: "")
        ):
            yield made


def _of_backslash(escape: str) -> str:
    sign = escape[1]
    if sign not in "ux":
        return _NAMED.get(sign, sign)
    code = int(escape[2:6], 16)
    if len(escape) < 12:
        return chr(code)
    return chr(0x10000 + ((code - 0xD800) << 10) + int(escape[8:], 16) - 0xDC00)


def _of_entity(entity: str) -> str:
    return (unquote(entity) if entity[0] == "%" else unescape(entity))[:1]


def _as_ascii(match: re.Match[str]) -> str:
    sign = match[0]
    if sign in _MARKS:
        return _MARKS[sign]
    if sign.isdecimal():
        return str(unicodedata.decimal(sign))
    if sign.isspace():
        return " "
    return chr(ord(sign) - 0xFEE0) if "\uff01" <= sign <= "\uff5e" else "-"
