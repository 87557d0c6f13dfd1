"""Values of JSON and JSON lines files, each with its line."""

import codecs
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from outrider.assertions.batch.columns import as_type, from_values, wider_type
from outrider.assertions.batch.schema import PARTS
from outrider.errors import ConfigError, NothingToRead

from .left_out import LeftOut
from .opening import ending_of, kept_columns, opened

JSON_BYTES = 1_000_000_000
"""A file that is one JSON value is read whole."""
ROWS = 4096
_ONE_VALUE = (".json", ".json.gz")
_NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
LABEL_TASK = (
    "an export of Label Studio, whose annotations are labels and no inputs; send a line "
    '{"id": "id of the record", "label": {"label": "its choice"}} for each task, by outrider replay or '
    "POST /v1/labels"
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_json_values(path: Path, left: LeftOut) -> Iterator[tuple[int, Any, float]]:
    """Values of a file as :func:`read_json_texts` has them.

    A line that is no JSON is left out and named.

    Raises
    ------
    ConfigError
        If the file as a whole cannot be read.
    """
    for place, text, share in read_json_texts(path):
        try:
            value = msgspec.json.decode(text)
        except _NO_JSON as error:
            left.row(place, json_reason(text, error))
            continue
        if is_label_task(value):
            raise ConfigError(f"{path}, line {place}: {LABEL_TASK}")
        yield place, value, share


def json_rows(path: Path) -> dict[int, Any]:
    """Values of JSON lines, or of a JSON file's list, by line.

    None may be left out.

    Raises
    ------
    ConfigError
        Naming the first line that cannot be used.
    NothingToRead
        If there is no value.
    """

    def refuse(line: int, why: str) -> None:
        raise ConfigError(f"{path}, line {line}: {why}")

    values = {place: value for place, value, _ in read_json_values(path, LeftOut(refuse))}
    if not values:
        raise NothingToRead(f"{path}: no row")
    if len(values) == 1 and ending_of(path) in _ONE_VALUE:
        with opened(path) as file:
            if not _body(file.read()).startswith(b"["):
                raise ConfigError(f"{path}: a list expected, got {type(values[1]).__name__}")
    return values


def is_label_task(value: Any) -> bool:
    """Test for a task of Label Studio, as JSON or JSON-MIN."""
    if not isinstance(value, Mapping):
        return False
    is_task = isinstance(value.get("data"), Mapping) and isinstance(value.get("annotations"), list)
    return is_task or {"annotation_id", "annotator", "lead_time"} <= value.keys()


def read_json_texts(path: Path) -> Iterator[tuple[int, bytes, float]]:
    """Place and text of each JSON value, and share read.

    Values are the lines of JSON lines, else the elements of an array, or the one value.

    Raises
    ------
    ConfigError
        If the file as a whole cannot be read.
    """
    try:
        with opened(path) as file:
            if ending_of(path) not in _ONE_VALUE:
                is_packed = path.suffix.lower() == ".gz"
                yield from _lines(file, float("inf") if is_packed else path.stat().st_size)
            else:
                yield from _elements(path, _body(file.read(JSON_BYTES + 1)))
    except ConfigError as error:
        raise ConfigError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None


def _body(content: bytes) -> bytes:
    return content.removeprefix(codecs.BOM_UTF8).strip()


def _elements(path: Path, body: bytes) -> Iterator[tuple[int, bytes, float]]:
    if not body:
        return
    if len(body) > JSON_BYTES:
        raise ConfigError(f"{path}: one JSON value of more than {JSON_BYTES} bytes; use JSON lines")
    is_array = body.startswith(b"[")
    try:
        decoded: Any = msgspec.json.decode(body, type=list[msgspec.Raw] if is_array else msgspec.Raw)
        values = decoded if is_array else [decoded]
    except _NO_JSON as error:
        if not (is_array and (values := _apart(body))):
            lines = body.split(b"\n")
            if len(lines) < 2 or not lines[0].rstrip().endswith((b"}", b"]")):
                raise ConfigError(f"{path}: {json_reason(body, error)}") from None
            yield from _lines(lines, len(body))  # JSON lines under another name
            return
    yield from ((at, bytes(each), at / len(values)) for at, each in enumerate(values, 1))


def _apart(body: bytes) -> list[bytes]:
    """Elements of an array of which some are no JSON; empty where it cannot be taken apart."""
    try:
        return [json.dumps(each).encode() for each in json.loads(body)]
    except (ValueError, RecursionError):
        return []


def _lines(lines: Iterable[bytes], size: float) -> Iterator[tuple[int, bytes, float]]:
    behind = 0
    for at, line in enumerate(lines, 1):
        behind += len(line)
        if text := _body(line):
            yield at, text, min(1.0, behind / size)


def json_reason(text: bytes, error: Exception, *, expected: str = "JSON") -> str:
    """Likely cause of an error in a JSON text."""

    def refuse(name: str) -> None:
        raise ConfigError(f"{name} is not JSON; send null")

    if text.rstrip().endswith((b"},", b"],")):
        return f"{expected} expected, got a comma behind it: delete it, or write all values as one list"
    try:
        value = json.loads(text, parse_constant=refuse)
    except ConfigError as found:
        return str(found)
    except UnicodeDecodeError as found:
        return f"UTF-8 expected, got byte 0x{found.object[found.start]:02x}"
    except (ValueError, RecursionError):
        return f"{expected} expected: {error}"
    for place, text_ in _texts_of(value, ""):
        if half := _SURROGATE.search(text_):
            what = f"\\u{ord(half[0]):04x} is half a character (a surrogate without its other half)"
            return f"{place}{': ' if place else ''}{what}: cut the text elsewhere"
    return f"{expected} expected: {error}"


def _texts_of(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Names and texts of a value, each with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _texts_of(each, f"{place}[{at}]")
    elif isinstance(value, dict):
        for name, each in value.items():
            yield f"the name {name!a}", name
            yield from _texts_of(each, f"{place}.{name}" if place else name)


def json_table(path: Path, left: LeftOut) -> tuple[pa.Table, list[int]]:
    """Objects of a file as a table, and their lines.

    Fields of ``inputs``, ``outputs``, ``attrs`` and ``label`` are columns under full names, other nested
    objects structs. A column whose values have no common type is left out.
    """
    values = read_json_values(path, left)
    places: list[int] = []
    chunks: list[tuple[int, dict[str, pa.Array | None]]] = []
    for first in values:
        rows = []
        for place, value, _ in chain([first], islice(values, ROWS - 1)):
            try:
                rows.append(_object(value))
                places.append(place)
            except ConfigError as error:
                left.row(place, str(error))
        names = dict.fromkeys(name for row in rows for name in row)
        chunks.append((len(rows), {name: _column([row.get(name) for row in rows]) for name in names}))
    found = {}
    names_of_all = [*dict.fromkeys(name for _, columns in chunks for name in columns)]
    for name in [names_of_all[at] for at in kept_columns(names_of_all, left)] if names_of_all else []:
        parts = [columns.get(name, pa.nulls(rows)) for rows, columns in chunks]
        kind = reduce(_common_type, parts, pa.null())
        if kind is None:
            left.column(name, "its values have no common type")
        else:
            found[name] = pa.chunked_array([as_type(part, kind) for part in parts], kind)
    return pa.table(found), places


def flat_parts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Object whose parts (``inputs``, …) are fields under full names.

    Raises
    ------
    ConfigError
        If two fields have one name.
    """
    flat: dict[str, Any] = {}
    for name, value in row.items():
        is_part = name in PARTS and isinstance(value, Mapping)
        fields = {f"{name}.{field}": inner for field, inner in value.items()} if is_part else {name: value}
        if twice := flat.keys() & fields.keys():
            raise ConfigError(
                f"field {min(twice)!r} stands twice, inside {min(twice).split('.')[0]!r} and beside it"
            )
        flat |= fields
    return flat


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"a JSON object expected, got {type(value).__name__}")
    return flat_parts(value)


def _column(values: list[Any]) -> pa.Array | None:
    try:
        return from_values(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None


def _common_type(kind: pa.DataType | None, column: pa.Array | None) -> pa.DataType | None:
    return None if kind is None or column is None else wider_type(kind, column.type)
