"""Content of received text files and tokenizers, compared with their names."""

import pickletools
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from .announced import Announced, WrongUpload

_EXECUTABLE = re.compile(rb"#!|\x7fELF|MZ|\xca\xfe\xba\xbe|[\xce\xcf]\xfa\xed\xfe")
_CALLS = frozenset({"REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID"})
"""Operations of a pickle that run what it names."""
_MOST_OPERATIONS = 100_000
_RANKS = re.compile(rb"(?:[A-Za-z0-9+/]+={0,2} \d{1,9}\n)+")
_CONSTANT = re.compile(r'("(?:[^"\\]|\\.?)*+"?)|-?\b(?:Infinity|NaN)\b', re.DOTALL)
"""Numbers that Python's JSON writer adds, as in configurations; texts are skipped."""
_VARINT, _FIXED, _TEXT = 0, 5, 2
_MODEL, _PIECE = {1: _TEXT, 2: _TEXT, 3: _TEXT, 4: _TEXT, 5: _TEXT}, {1: _TEXT, 2: _FIXED, 3: _VARINT}
"""Fields of a sentencepiece model and of its pieces, with wire types; 200 and above are extensions."""
_EXTENSIONS = 200


class _Otherwise(ValueError):  # noqa: N818 - reads as the thing it is
    pass


def check_contents(announced: Announced, parts: Mapping[str, Path]) -> None:
    for file in announced.files:
        form = _FORMS.get(Path(file.name).suffix)
        if form is None:  # weights have checks of their own
            continue
        expected, check = form
        data = parts[file.name].read_bytes()
        if what := _code(data, parts[file.name]):
            raise _wrong(file.name, expected, what)
        try:
            check(data)
        except ValueError as error:
            raise _wrong(file.name, expected, str(error) or "something else") from None


def _wrong(file: str, expected: str, got: str) -> WrongUpload:
    why = f"{file}: {expected} expected, got {got}; a pickle or code is never read"
    return WrongUpload(why, file=file, expected=expected, got=got)


def _code(data: bytes, path: Path) -> str:
    """Kind of a file that can run code; empty for none."""
    if data.startswith((b"PK\x03\x04", b"\x1f\x8b")) or zipfile.is_zipfile(path):
        return "an archive"
    if _EXECUTABLE.match(data):
        return "a program"
    return "a pickle" if data[:1] == b"\x80" or _is_pickle(data) else ""


def _is_pickle(data: bytes) -> bool:
    """True if a complete pickle runs something, or has too many operations."""
    has_calls = False
    try:
        for number, (operation, _, _) in enumerate(pickletools.genops(data)):
            has_calls |= operation.name in _CALLS
            if number > _MOST_OPERATIONS:
                return True
    except Exception:  # noqa: BLE001 - whatever the reader of another's format raises: it is no pickle
        return False
    return has_calls


def _text(data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _Otherwise(f"other bytes at {error.start}") from None
    if "\0" in text:
        raise _Otherwise("a NUL character")


def _json(data: bytes) -> None:
    """Parsed by SQLite, which makes no object of any value."""
    _text(data)
    text = data.decode()
    with closing(sqlite3.connect(":memory:")) as database:
        ask = partial(database.execute, "SELECT json_valid(?)")
        is_json = ask((text,)).fetchone()[0] or ask((_CONSTANT.sub(_as_json, text),)).fetchone()[0]
    if not is_json or data.lstrip()[:1] not in (b"{", b"["):
        raise _Otherwise("other text")


def _as_json(found: re.Match[str]) -> str:
    return found[1] or "0"


def _tokenizer(data: bytes) -> None:
    """A sentencepiece model, or lines of ``base64 rank`` as tiktoken reads them."""
    if _RANKS.fullmatch(data):
        return
    pieces = 0
    for number, value in _fields(data, _MODEL):
        if number == 1 and isinstance(value, bytes):
            pieces += 1
            for part, text in _fields(value, _PIECE):
                if part == 1 and isinstance(text, bytes):
                    text.decode()
    if not pieces:
        raise _Otherwise("no piece")


def _fields(data: bytes, known: Mapping[int, int]) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if known.get(number, _TEXT if number >= _EXTENSIONS else None) != wire:
            raise _Otherwise(f"field {number} of type {wire}")
        value: bytes | int
        if wire == _VARINT:
            value, at = _varint(data, at)
        else:
            size, at = (4, at) if wire == _FIXED else _varint(data, at)
            if at + size > len(data):
                raise _Otherwise("a cut message")
            value, at = data[at : at + size], at + size
        yield number, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise _Otherwise("a cut message")


_FORMS: Mapping[str, tuple[str, Callable[[bytes], None]]] = {
    ".json": ("a JSON object or list", _json),
    ".jinja": ("UTF-8 text", _text),
    ".txt": ("UTF-8 text", _text),
    ".model": ("a sentencepiece model", _tokenizer),
}
