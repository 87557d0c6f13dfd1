"""Sieve of columns. Rows whose texts may hold a value, by their bytes.

No detector finds anything in a text that does not pass, in any reading.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.library.personal import IBAN_LENGTHS

from .kinds import Kind
from .readings import ENTITIES, SIGNS

Places: TypeAlias = NDArray[np.int64]
Signs: TypeAlias = NDArray[np.uint8]

_DIGIT, _LETTER, _JOINER = 1, 2, 3
_FEWEST_DIGITS, _LONG_WORD, _SHORTEST_IBAN = 8, 20, 15
_PAD, _LOWER = 16, 0x20
_ANYTHING = re.compile(b"")
_WORD = re.compile(rb"(?:[^A-Za-z0-9]|\\[nrt])+?\S{16}")
_ASSIGNMENT = re.compile(rb"(?:or)?d?(?:\\[nrt]|[^A-Za-z0-9:=])*+[:=]")
_NAMES = (
    (b"eyJ", 2, _ANYTHING), (b"xox", 0, _ANYTHING), (b"SG.", 1, _ANYTHING), (b"ya29", 2, _ANYTHING),
    (b"whsec_", 5, _ANYTHING), (b"PRIVATE KEY", 8, _ANYTHING), (b"bearer", 0, _WORD), (b"basic", 0, _WORD),
    (b"key", 0, _ASSIGNMENT), (b"token", 2, _ASSIGNMENT), (b"secret", 2, _ASSIGNMENT),
    (b"passw", 4, _ASSIGNMENT),
)  # fmt: skip
"""Words, lower-case ones in any case; index of their rarest character, and what follows."""


def rows_with_hints(column: pa.Array, kinds: Collection[Kind]) -> NDArray[np.bool_]:
    is_there: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    if "value" in kinds:
        return is_there
    starts, data = _bytes_of(column)
    found = np.zeros(len(column), np.bool_)
    for places in (_of_readings(data), *_places(data, starts, kinds)):
        found[np.searchsorted(starts, places, side="right") - 1] = True
    return found & is_there


def may_hold(text: str, kind: Kind) -> bool:
    """Ignores the text's other readings."""
    data = text.encode("utf-8", "surrogatepass")
    return any(len(places) for places in _places(data, np.array([0, len(data)]), (kind,)))


def _bytes_of(column: pa.Array) -> tuple[Places, bytes]:
    """Offsets of rows, and the bytes of all."""
    _, offsets, data = column.buffers()
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    starts = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    first, last = int(starts[0]), int(starts[-1])
    return starts - first, b"" if data is None else data[first:last].to_pybytes()


def _places(data: bytes, starts: Places, kinds: Collection[Kind]) -> Iterator[Places]:
    signs, flags = _signs(data), _signs(data.translate(_FLAGS))
    if b"\\" in data:  # letters of \n and its like are none
        flags = flags.copy()
        ends = np.flatnonzero(signs == _BACKSLASH) + 1
        flags[ends[_IS_LINE_END[signs[ends]]]] = 0
    is_start = np.zeros(len(signs), np.bool_)
    is_start[starts] = True
    digits = np.flatnonzero(flags == _DIGIT)
    if "email" in kinds:
        yield _addresses(signs, is_start)
    if "iban" in kinds:
        yield _heads(signs, flags, digits, starts, is_start)
    if "card" in kinds or "phone" in kinds:
        yield _groups(flags, digits, starts)
    if "token" in kinds:
        yield _words(flags, is_start)
        yield np.fromiter(_names(data, signs), np.int64)


def _signs(data: bytes) -> Signs:
    """Padded with zeros, which a look-ahead at the end reads."""
    return np.frombuffer(data + bytes(_PAD), np.uint8)


def _of_readings(data: bytes) -> Places:
    """Escapes, entities, and characters that stand for others or for none."""
    marks: Places = np.flatnonzero(_signs(data.translate(_MARKS)))
    if not len(marks):
        return marks
    signs = _signs(data)
    first, second, third = (signs[marks + more].astype(np.int64) for more in range(3))
    is_escape = (first == _BACKSLASH) & _IS_CODE[second] & _IS_HEX[third]
    is_entity = ((first == _PERCENT) & _IS_HEX[second] & _IS_HEX[third]) | (
        (first == _AND) & _BEGINS_ENTITY[second]
    )
    short = first << 16 | second << 8
    is_sign = (_SIGNS[np.searchsorted(_SIGNS, short)] == short) | (
        _SIGNS[np.searchsorted(_SIGNS, short | third)] == short | third
    )
    found: Places = marks[is_escape | is_entity | is_sign | (first == _COLOUR)]
    return found


def _addresses(signs: Signs, is_start: NDArray[np.bool_]) -> Places:
    """An ``@`` with letters or digits of any script on both sides."""
    at: Places = np.flatnonzero(signs == _AT)
    at = at[~is_start[at] & ~is_start[at + 1]]
    return at[_ENDS_LOCAL[signs[at - 1]] & _BEGINS_DOMAIN[signs[at + 1]]]


def _heads(signs: Signs, flags: Signs, digits: Places, starts: Places, is_start: NDArray[np.bool_]) -> Places:
    """Beginnings of IBANs: a country and two digits, with enough characters after them."""
    digits = digits[digits >= 2]
    heads: Places = digits[
        (flags[digits + 1] == _DIGIT) & (flags[digits - 1] == _LETTER) & (flags[digits - 2] == _LETTER)
    ]
    first, second = (signs[heads - back].astype(np.int64) & 31 for back in (2, 1))
    heads = heads[_IS_COUNTRY[first << 5 | second]] - 2
    before = flags[heads - 1]
    heads = heads[(before == 0) | (before == _JOINER) | is_start[heads]]
    return heads[heads + _SHORTEST_IBAN <= starts[np.searchsorted(starts, heads, side="right")]]


def _groups(flags: Signs, digits: Places, starts: Places) -> Places:
    """First of eight digits of one row without a letter in between."""
    first, last = digits[: 1 - _FEWEST_DIGITS], digits[_FEWEST_DIGITS - 1 :]
    is_one_row = last < starts[np.searchsorted(starts, first, side="right")]
    first, last = first[is_one_row], last[is_one_row]
    if not len(first):
        return first
    letters = np.flatnonzero(flags == _LETTER)
    groups: Places = first[np.searchsorted(letters, first) == np.searchsorted(letters, last)]
    return groups


def _words(flags: Signs, is_start: NDArray[np.bool_]) -> Places:
    """Beginnings of long words of letters, digits, ``_`` and ``-``."""
    ends: Places = np.flatnonzero((flags == 0) | is_start)
    return ends[:-1][np.diff(ends) >= _LONG_WORD]


def _names(data: bytes, signs: Signs) -> Iterator[int]:
    """Beginnings of issued keys, and of names that announce one."""
    lower = signs | _LOWER
    seen: dict[int, Places] = {}
    for word, rare, follows in _NAMES:
        own, case = (lower, _LOWER) if word.islower() else (signs, 0)
        sign = word[rare] | case
        if sign not in seen:
            seen[sign] = np.flatnonzero(own == sign)
        places = seen[sign] - rare
        for more, sign in enumerate(word):
            if not len(places):
                break
            places = places[own[places + more] == sign | case]
        for at in places.tolist():
            if follows.match(data, at + len(word)):
                yield at


def _table(signs: Iterable[int]) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(signs)] = True
    return table


_BACKSLASH, _PERCENT, _AND, _COLOUR, _AT = b"\\%&\x1b@"
_DIGITS, _LETTERS = range(48, 58), [*range(65, 91), *range(97, 123)]
_BEYOND_ASCII = range(128, 256)
_IS_HEX = _table(b"0123456789abcdefABCDEF")
_IS_CODE, _IS_LINE_END = _table(b"ux"), _table(b"nrt")
_BEGINS_ENTITY = _table([ord("#"), *(ord(name[0]) for name in ENTITIES)])
_ENDS_LOCAL = _table([*_DIGITS, *_LETTERS, *_BEYOND_ASCII, *b"_%+-"])
_BEGINS_DOMAIN = _table([*_DIGITS, *_LETTERS, *_BEYOND_ASCII])
_IS_COUNTRY = np.zeros(1024, np.bool_)
_IS_COUNTRY[[(ord(country[0]) & 31) << 5 | ord(country[1]) & 31 for country in IBAN_LENGTHS]] = True
_SIGNS = np.unique([int.from_bytes(sign.encode()[:3].ljust(3, b"\0"), "big") for sign in SIGNS] + [2**24])
"""First three bytes of non-ASCII characters that a reading decodes or drops; an end."""
_FLAGS = bytes(
    _DIGIT if sign in _DIGITS else _LETTER if sign in _LETTERS else _JOINER if sign in b"_-" else 0
    for sign in range(256)
)
_MARKS = _table([_BACKSLASH, _PERCENT, _AND, _COLOUR, *np.unique(_SIGNS[:-1] >> 16).tolist()]).tobytes()
