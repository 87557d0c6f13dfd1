"""Values of JSON and JSON lines files, each with its line."""

import codecs
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from outrider.assertions.batch_schema import PARTS
from outrider.assertions.columns import as_type, from_values, wider_type
from outrider.errors import ConfigError

from .left_out import LeftOut
from .opening import ending_of, kept_columns, opened

JSON_BYTES = 1_000_000_000
"""A file that is one JSON value is read whole."""
ROWS = 4096
Items = Iterator[tuple[int, Any, float]]
"""Line (element of an array), value, and how much of the file is behind it."""
_MIXED = "its values have no common type"
LABEL_TASK = (
    "an export of Label Studio, whose annotations are labels and no inputs; send a line "
    '{"id": "id of the record", "label": {"label": "its choice"}} for each task, by outrider replay or '
    "POST /v1/labels"
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_json_values(path: Path, left: LeftOut) -> Items:
    """Values of a file.

    A line that is no JSON is left out and named.

    Raises
    ------
    ConfigError
        If the file as a whole cannot be read.
    """
    for place, text, share in _texts(path):
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            left.row(place, json_reason(text, error))
            continue
        if is_label_task(value):
            raise ConfigError(f"{path}, line {place}: {LABEL_TASK}")
        yield place, value, share


def json_list(path: Path) -> list[Any]:
    """Values of JSON lines, or of a JSON file's list.

    None may be left out.

    Raises
    ------
    ConfigError
        Naming the first line that cannot be used.
    """

    def refuse(line: int, why: str) -> None:
        raise ConfigError(f"{path}, line {line}: {why}")

    values = [value for _, value, _ in read_json_values(path, LeftOut(refuse))]
    if len(values) == 1 and ending_of(path) in (".json", ".json.gz"):
        with opened(path) as file:
            if not file.read().removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
                raise ConfigError(f"{path}: a list expected, got {type(values[0]).__name__}")
    return values


def is_label_task(value: Any) -> bool:
    """Test for a task of Label Studio, as JSON or JSON-MIN."""
    if not isinstance(value, Mapping):
        return False
    is_task = isinstance(value.get("data"), Mapping) and isinstance(value.get("annotations"), list)
    return is_task or {"annotation_id", "annotator", "lead_time"} <= value.keys()


def read_json_texts(path: Path) -> Iterator[tuple[int, bytes]]:
    """Place and text of each JSON value of a file, unparsed.

    Lines of JSON lines, else the elements of an array, or the one value.

    Raises
    ------
    ConfigError
        If the file as a whole cannot be read.
    """
    yield from ((place, text) for place, text, _ in _texts(path))


def _texts(path: Path) -> Iterator[tuple[int, bytes, float]]:
    try:
        yield from _opened_texts(path)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None


def _apart(body: bytes) -> list[bytes]:
    """Elements of an array of which some are no JSON; empty where it cannot be taken apart."""
    try:
        return [json.dumps(each).encode() for each in json.loads(body)]
    except (ValueError, RecursionError):
        return []


def _opened_texts(path: Path) -> Iterator[tuple[int, bytes, float]]:
    size = path.stat().st_size if path.suffix.lower() != ".gz" else 0
    with opened(path) as file:
        if ending_of(path) not in (".json", ".json.gz"):
            yield from _lines(file, size)
            return
        body = file.read(JSON_BYTES + 1).removeprefix(codecs.BOM_UTF8)
    if len(body) > JSON_BYTES:
        raise ConfigError(f"{path}: one JSON value of more than {JSON_BYTES} bytes; use JSON lines")
    many = body.lstrip()[:1] == b"["
    try:
        value = msgspec.json.decode(body, type=list[msgspec.Raw] if many else msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if many and (elements := _apart(body)):
            yield from ((at, each, at / len(elements)) for at, each in enumerate(elements, 1))
            return
        lines = body.strip().split(b"\n")
        if len(lines) < 2 or not lines[0].rstrip().endswith((b"}", b"]")):
            raise ConfigError(f"{path}: {json_reason(body, error)}") from None
        yield from _lines(lines, len(body))  # JSON lines under another name
        return
    values = value if isinstance(value, list) else [value]
    yield from ((at, bytes(each), at / len(values)) for at, each in enumerate(values, 1))


def _lines(lines: Iterable[bytes], size: int) -> Iterator[tuple[int, bytes, float]]:
    behind = 0
    for at, line in enumerate(lines, 1):
        behind += len(line)
        text = (line.removeprefix(codecs.BOM_UTF8) if at == 1 else line).strip()
        if text:
            yield at, text, min(1.0, behind / size) if size else 0.0


def json_reason(text: bytes, error: Exception, *, expected: str = "JSON") -> str:
    """Likely cause of an error in a JSON text."""

    def refuse(name: str) -> None:
        raise ConfigError(f"{name} is not JSON; send null")

    try:
        value = json.loads(text, parse_constant=refuse)
    except ConfigError as found:
        return str(found)
    except UnicodeDecodeError as found:
        return f"UTF-8 expected, got byte 0x{found.object[found.start]:02x}"
    except (ValueError, RecursionError):
        return f"{expected} expected: {error}"
    if half := _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        said = f"\\u{ord(half[0]):04x}"
        why = "is half a character (a surrogate without its other half): cut the text elsewhere"
        return f"{_place_of_half(value)}{said} {why}"
    return f"{expected} expected: {error}"


def _place_of_half(value: Any, place: str = "") -> str:
    """Field of the first text with an unpaired surrogate, to stand before a reason."""
    if isinstance(value, str):
        return f"{place}: " if place and _SURROGATE.search(value) else ""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        if isinstance(name, str) and _SURROGATE.search(name):
            return f"the name {name!a}: "
        below = f"{place}[{name}]" if isinstance(name, int) else f"{place}.{name}" if place else name
        if found := _place_of_half(each, below):
            return found
    return ""


def json_table(path: Path, left: LeftOut) -> tuple[pa.Table, list[int]]:
    """Objects of a file as a table, and their lines.

    Fields of ``inputs``, ``outputs``, ``attrs`` and ``label`` are columns under full names, other nested
    objects structs. A column whose values have no common type is left out.
    """
    items = read_json_values(path, left)
    places: list[int] = []
    chunks: list[tuple[int, dict[str, pa.Array]]] = []
    for first in items:
        rows = []
        for place, value, _ in chain([first], islice(items, ROWS - 1)):
            if isinstance(value, Mapping):
                rows.append(_flat(value))
                places.append(place)
            else:
                left.row(place, f"a JSON object expected, got {type(value).__name__}")
        chunks.append((len(rows), _columns(rows, left)))
    names = list(dict.fromkeys(name for _, columns in chunks for name in columns))
    found = {name: _joined(name, chunks, left) for name in names}
    table = pa.table({name: column for name, column in found.items() if column is not None})
    return table.select(kept_columns(names, left, named=names)) if names else table, places


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name in PARTS and isinstance(value, Mapping):
            flat |= {f"{name}.{field}": inner for field, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _columns(rows: list[dict[str, Any]], left: LeftOut) -> dict[str, pa.Array | None]:
    return {
        name: _column(name, [row.get(name) for row in rows], left)
        for name in dict.fromkeys(name for row in rows for name in row)
    }


def _column(name: str, values: list[Any], left: LeftOut) -> pa.Array | None:
    try:
        return from_values(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        left.column(name, _MIXED)
        return None


def _joined(
    name: str, chunks: list[tuple[int, dict[str, pa.Array | None]]], left: LeftOut
) -> pa.ChunkedArray | None:
    """Column over all chunks in their common type, None where there is none."""
    kind: pa.DataType | None = pa.null()
    for _, columns in chunks:
        column = columns.get(name, pa.nulls(0))
        if column is None:
            return None
        kind = wider_type(kind, column.type)
        if kind is None:
            left.column(name, _MIXED)
            return None
    parts = [as_type(columns.get(name, pa.nulls(rows)), kind) for rows, columns in chunks]
    return pa.chunked_array(parts, kind)
