"""Patterns of texts, parsed once and filled column by column.

A pattern is a text, or a dict, list or tuple of texts.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from string import Formatter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_FORMATTER = Formatter()
_TARGET = re.compile(r"([A-Za-z_]\w*)((?:\.\w+|\[[^\]]+\])*)")
_ROWS_PER_COMBINATION = 16
_STEP = re.compile(r"\.(\w+)|\[([^\]]+)\]")
# Spelled with a vowel, spoken with a consonant: "a user", "a European", "a one-off", "a US firm".
_SOUNDS_LIKE_YOU = re.compile(r"u(ni([^nmd]|$)|nanim|biq|kr|gan|[srt][aeiou]|topia)|eu|ewe|one\b|once\b")
_SILENT_H = ("hour", "honest", "honor", "honour", "heir")
_CAPITALS = re.compile(r"([A-Z]+)(?![a-z])")
_SPELLED_WITH_A_VOWEL = frozenset("AEFHILMNORSX")  # "an F", "an SMS"


@dataclass(frozen=True, slots=True)
class SlotPiece:
    """Slot of a text with the following literal.

    ``value`` maps a value of the slot's list to the displayed value, ``text`` to the displayed text with
    article, format and literal.
    """

    slot: str
    value: Callable[[Any], Any]
    text: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Text:
    """Text with slots: a literal, then pieces."""

    head: str
    pieces: tuple[SlotPiece, ...]
    is_one_slot: bool
    """True for a single slot without format or literals: a label ``"{stars}"`` then keeps its type."""

    def column(self, values: Mapping[str, Sequence[Any]], picks: Mapping[str, NDArray[Any]]) -> pa.Array:
        """Filled text of each row.

        Displayed texts are computed once per list value, or per combination of values if these are few, then
        joined as Arrow columns: the work in Python does not grow with the rows.
        """
        if not self.pieces:
            raise ValueError("a text without slots has no rows of its own")
        rows = len(picks[self.pieces[0].slot])
        columns: list[Any] = [pa.scalar(self.head)] if self.head else []
        columns += [_run_shown(run, values, picks) for run in _runs(self.pieces, values, rows)]
        return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, "")


@dataclass(frozen=True, slots=True)
class Fixed:
    """Part of a pattern without slots."""

    value: Any


Node = Text | Fixed | dict[Any, Any] | list[Any] | tuple[Any, ...]


def compiled(pattern: Any) -> Node:
    """Pattern with its texts parsed."""
    if isinstance(pattern, str):
        return _text(pattern)
    if isinstance(pattern, Mapping):
        return {key: compiled(part) for key, part in pattern.items()}
    if isinstance(pattern, list | tuple):
        return type(pattern)([compiled(part) for part in pattern])
    return Fixed(pattern)


def texts(node: Node) -> Iterator[Text]:
    """All texts with slots in a compiled pattern, in order."""
    if isinstance(node, Text):
        yield node
    elif not isinstance(node, Fixed):
        for part in node.values() if isinstance(node, dict) else node:
            yield from texts(part)


def rows_of(node: Node, rows: int, column: Callable[[Text], pa.Array]) -> list[Any]:
    """Filled pattern of each row as Python values."""
    if isinstance(node, Text):
        filled: list[Any] = column(node).to_pylist()
        return filled
    if isinstance(node, Fixed):
        return [node.value] * rows
    parts = [rows_of(part, rows, column) for part in (node.values() if isinstance(node, dict) else node)]
    if isinstance(node, dict):
        return [dict(zip(node, row, strict=True)) for row in _across(parts, rows)]
    return [type(node)(row) for row in _across(parts, rows)]


def _across(parts: list[list[Any]], rows: int) -> Iterator[tuple[Any, ...]]:
    return zip(*parts, strict=True) if parts else iter([()] * rows)


def _runs(
    pieces: Sequence[SlotPiece], values: Mapping[str, Sequence[Any]], rows: int
) -> list[list[SlotPiece]]:
    """Groups of adjacent pieces whose values have far fewer combinations than there are rows."""
    runs: list[list[SlotPiece]] = []
    for piece in pieces:
        if runs:
            slots = {each.slot for each in (*runs[-1], piece)}
            if prod(len(values[slot]) for slot in slots) * _ROWS_PER_COMBINATION <= rows:
                runs[-1].append(piece)
                continue
        runs.append([piece])
    return runs


def _run_shown(
    run: Sequence[SlotPiece], values: Mapping[str, Sequence[Any]], picks: Mapping[str, NDArray[Any]]
) -> pa.Array:
    if len(run) == 1:
        return _shown(run[0], values[run[0].slot], picks[run[0].slot])
    slots = list(dict.fromkeys(piece.slot for piece in run))
    sizes = [len(values[slot]) for slot in slots]
    grid = dict(zip(slots, np.unravel_index(np.arange(prod(sizes)), sizes), strict=True))
    shown = [_shown(piece, values[piece.slot], grid[piece.slot]) for piece in run]
    number = picks[slots[0]]
    for slot, size in zip(slots[1:], sizes[1:], strict=True):
        number = number * size + picks[slot]
    return pc.binary_join_element_wise(*shown, "").take(pa.array(number))


def _shown(piece: SlotPiece, values: Sequence[Any], picks: NDArray[Any]) -> pa.Array:
    if len(values) > len(picks):
        used, picks = np.unique(picks, return_inverse=True)
        values = [values[pick] for pick in used.tolist()]
    return pa.array([piece.text(value) for value in values], pa.string()).take(pa.array(picks))


def _text(pattern: str) -> Text | Fixed:
    parsed = list(_FORMATTER.parse(pattern))
    merged: list[tuple[str, tuple[str, str, str | None] | None]] = []
    for literal, field, spec, conversion in parsed:  # "{{" ends a literal without a slot after it
        if merged and merged[-1][1] is None:
            literal = merged.pop()[0] + literal
        merged.append((literal, None if field is None else (field, spec or "", conversion)))
    slots = [slot for _, slot in merged if slot is not None]
    literals = [literal for literal, _ in merged] + ([""] if merged and merged[-1][1] is not None else [])
    if not slots:
        return Fixed("".join(literals))
    pieces = tuple(_piece(*slot, tail) for slot, tail in zip(slots, literals[1:], strict=True))
    plain = len(slots) == 1 and not any(literals) and not slots[0][1] and not slots[0][2]
    return Text(literals[0], pieces, plain)


def _piece(field: str, spec: str, conversion: str | None, tail: str) -> SlotPiece:
    with_article = field in ("a", "A") and _TARGET.fullmatch(spec) is not None
    target = spec if with_article else field
    match = _TARGET.fullmatch(target)
    if match is None:
        raise ValueError(f"slot names expected between braces, got {{{target}}}; write {{{{ for a brace")
    value = _reader(target, match[2])

    def text(given: Any) -> str:
        shown = value(given)
        if conversion:
            shown = _FORMATTER.convert_field(shown, conversion)
        if with_article:
            return f"{article(str(shown), capital=field == 'A')} {shown}{tail}"
        return f"{format(shown, spec)}{tail}"

    return SlotPiece(match[1], value, text)


def _reader(target: str, path: str) -> Callable[[Any], Any]:
    """Function that follows ``.name`` and ``[0]`` into a value."""
    steps = [(name, int(key) if key.isdigit() else key) for name, key in _STEP.findall(path)]

    def read(given: Any) -> Any:
        value = given
        for name, key in steps:
            try:
                value = _attribute(value, name) if name else value[key]
            except (AttributeError, LookupError, TypeError) as error:
                raise ValueError(f"slot {{{target}}} cannot be read from {given!r}: {error}") from error
        return value

    return read


def _attribute(value: Any, name: str) -> Any:
    """Item of a mapping, else attribute of an object."""
    return value[name] if isinstance(value, Mapping) and name in value else getattr(value, name)


def article(word: str, *, capital: bool = False) -> str:
    """Article ``a`` or ``an`` for a word.

    Examples
    --------
    >>> [article(word) for word in ("engineer", "user", "umbrella", "hour", "X-ray", "SMS", "NASA", "8")]
    ['an', 'a', 'an', 'an', 'an', 'an', 'a', 'an']
    """
    found = "an" if _starts_with_a_vowel(word) else "a"
    return found.capitalize() if capital else found


def _starts_with_a_vowel(word: str) -> bool:
    letters = _CAPITALS.match(word)
    if letters and letters[1] not in ("A", "I") and _is_spelled_out(letters[1]):
        return letters[1][0] in _SPELLED_WITH_A_VOWEL
    lower = word.lower()
    if lower.startswith(_SILENT_H):
        return True
    if lower[:1].isdigit():  # eight, eleven, eighteen, eighty
        return lower.startswith("8") or re.match(r"1[18](?!\d)", lower) is not None
    return lower[:1] in tuple("aeiou") and not _SOUNDS_LIKE_YOU.match(lower)


def _is_spelled_out(capitals: str) -> bool:
    """True if capitals are read letter by letter: single, without vowel, or starting with U ("a US firm")."""
    return len(capitals) == 1 or not set(capitals) & set("AEIOU") or capitals[0] == "U"
