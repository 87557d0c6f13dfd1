"""Blocks of Parquet, Arrow, Feather, CSV, JSON, JSON lines files."""

import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from outrider.dataops.state.stored_texts import SURROGATE, has_surrogate
from outrider.errors import ConfigError

from .blocks import NOT_DONE, FileBlock, Route
from .captures import CaptureNames, Unreadable, is_sagemaker, kserve_event, sagemaker
from .columns import Names, record_of, record_table, time_text

Blame = Callable[[int, str], None]
"""Told of a line (or row, from 1) that cannot be used, and why."""
TABLES = (".parquet", ".arrow", ".feather", ".ipc")
TEXTS = (".csv", ".jsonl", ".ndjson", ".json")
ENDINGS = (*TABLES, *TEXTS, *(f"{ending}.gz" for ending in TEXTS))
ENVELOPE = {
    "model",
    "id",
    "ts",
    "version",
    "entity",
    "seq",
    "weight",
    "partial",
    "inputs",
    "outputs",
    "attrs",
}
BLOCK_BYTES = 4_000_000
"""Bodies about so large, whatever their rows."""
JSON_BYTES = 1_000_000_000
"""A file that is one JSON value is read whole."""
MOST = 0.9
"""Share of the first values of a CSV column that say what its type is."""
_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading files."""

    names: Names
    captures: CaptureNames
    """``names`` and ``captures``: what columns, and values without names, are called."""
    rows: int = 1000
    """Of one block."""


def ending_of(path: Path) -> str | None:
    """Known ending of a file, in lower case."""
    name = path.name.lower()
    return next((ending for ending in sorted(ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)


def find_files(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Files to read, each with its name in ids.

    Named files, and in folders the files of a known ending, by name.

    Raises
    ------
    ConfigError
        If one is not there, or has an ending that says nothing.
    """
    found: list[tuple[Path, str]] = []
    for path in paths:
        if path.is_dir():
            inner = sorted(p for p in path.rglob("*") if p.is_file() and ending_of(p))
            found += [(p, p.relative_to(path).as_posix()) for p in inner if not p.name.startswith((".", "_"))]
        elif not path.exists():
            raise ConfigError(f"{path} does not exist")
        elif ending_of(path) is None:
            raise ConfigError(f"{path}: a file in {', '.join(ENDINGS)} expected, by its ending")
        else:
            found.append((path, path.name))
    return list(dict.fromkeys(found))


def read_blocks(path: Path, name: str, how: ReadOptions, *, skip: int, blame: Blame) -> Iterator[FileBlock]:
    """Blocks of a file behind its first ``skip`` rows.

    Raises
    ------
    ConfigError
        If the file as a whole cannot be read.
    """
    ending = ending_of(path)
    try:
        if ending in TABLES:
            tables = _parquet(path, how.rows) if ending == ".parquet" else _arrow(path, how.rows)
            yield from _table_blocks(tables, name, how, skip)
        elif ending is not None and ending.startswith(".csv"):
            yield from _csv(path, name, how, skip, blame)
        else:
            yield from _json_blocks(_items(path, ending or "", blame), name, how, skip, blame)
    except (OSError, EOFError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: byte 0x{error.object[error.start]:02x}") from None


Tables = Iterator[tuple[pa.Table, float]]


def _parquet(path: Path, rows: int) -> Tables:
    with pa.parquet.ParquetFile(path) as file:
        total, done = max(1, file.metadata.num_rows), 0
        for batch in file.iter_batches(batch_size=rows):
            done += batch.num_rows
            yield pa.Table.from_batches([batch]), done / total


def _arrow(path: Path, rows: int) -> Tables:
    """File or stream of Arrow; Feather of version 2 is the file format."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    with pa.memory_map(str(path)) as source:
        if is_file:
            with pa.ipc.open_file(source) as reader:
                count = max(1, reader.num_record_batches)
                for at in range(reader.num_record_batches):
                    yield from _cut(reader.get_batch(at), rows, (at + 1) / count)
        else:
            with pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    yield from _cut(batch, rows, min(1.0, source.tell() / max(1, source.size())))


def _cut(batch: pa.RecordBatch, rows: int, share: float) -> Tables:
    for start in range(0, batch.num_rows, rows):
        yield pa.Table.from_batches([batch.slice(start, rows)]), share


def _table_blocks(tables: Tables, name: str, how: ReadOptions, skip: int) -> Iterator[FileBlock]:
    done = 0
    for table, share in tables:
        first, done = done, done + len(table)
        if done <= skip:
            continue
        begin = max(0, skip - first)
        table = table.slice(begin)
        places = range(first + begin + 1, done + 1)
        if {"req_type", "bytes", "id"} <= set(table.column_names):
            items = zip(places, table.to_pylist(), strict=True)
            yield from _grouped(
                [one for at, item in items for one in _routed(item, name, at, how)], done, share
            )
        else:
            yield from _blocks_of(table, name, how, places, done, share)


def _blocks_of(
    table: pa.Table, name: str, how: ReadOptions, places: Sequence[int], done: int, share: float
) -> Iterator[FileBlock]:
    """Records of a table, and the labels that stand beside them."""
    rows = record_table(table, how.names)
    ids = pa.nulls(len(rows), pa.string())
    if "id" in rows.column_names:
        ids = rows.column("id").combine_chunks()
        rows = rows.drop_columns(["id"])
    if ids.null_count:
        ids = pc.coalesce(ids, pa.array([f"{name}:{place}" for place in places], pa.string()))
    rows = rows.append_column("id", ids)
    labels = [column for column in rows.column_names if column.startswith("label.")]
    records = rows.drop_columns(labels)
    blocks: list[FileBlock] = []
    if any(column.startswith(("inputs.", "outputs.")) for column in records.column_names):
        blocks += [
            FileBlock("records", part, where, done, share) for part, where in _by_size(records, places)
        ]
    if labels:
        told = rows.select(["id", *labels] + (["model"] if "model" in rows.column_names else []))
        known = reduce(pc.or_, [told.column(column).combine_chunks().is_valid() for column in labels])
        blocks.append(
            FileBlock(
                "labels",
                told.filter(known),
                np.asarray(places)[known.to_numpy(zero_copy_only=False)].tolist(),
                done,
                share,
            )
        )
    yield from _together(blocks)


def _together(blocks: Sequence[FileBlock]) -> Iterator[FileBlock]:
    """Blocks of the same rows of a file: only behind the last of them are these done."""
    for block in blocks[:-1]:
        yield replace(block, done=NOT_DONE)
    yield from blocks[-1:]


def _by_size(table: pa.Table, places: Sequence[int]) -> Iterator[tuple[pa.Table, Sequence[int]]]:
    """Parts of a table of about ``BLOCK_BYTES``."""
    size = table.nbytes
    step = max(1, int(len(table) * BLOCK_BYTES / max(BLOCK_BYTES, size)))
    for start in range(0, len(table), step):
        yield table.slice(start, step), places[start : start + step]


# ---- CSV -----------------------------------------------------------------------------------------------


def _csv(path: Path, name: str, how: ReadOptions, skip: int, blame: Blame) -> Iterator[FileBlock]:
    """Blocks of a CSV file with a header; a row or value that does not fit is left out and told."""
    kinds = _kinds(path, how.names.text)
    wrong: list[tuple[int, str]] = []

    def malformed(row: Any) -> str:
        wrong.append((row.number or 0, f"{row.expected_columns} values expected, got {row.actual_columns}"))
        return "skip"

    as_text = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(kinds, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=malformed)
    done = told = 0
    total = max(1, path.stat().st_size)
    with (
        _opened(path) as source,
        pa.csv.open_csv(
            source,
            read_options=pa.csv.ReadOptions(use_threads=False),
            convert_options=as_text,
            parse_options=parse,
        ) as reader,
    ):
        for batch in reader:
            for number, reason in wrong[told:]:
                blame(number, reason)
            told = len(wrong)
            share = min(1.0, source.tell() / total) if path.suffix == ".csv" else 0.0
            for start in range(0, batch.num_rows, how.rows):
                part = batch.slice(start, how.rows)
                first, done = done, done + part.num_rows
                if done <= skip:
                    continue
                begin = max(0, skip - first)
                part = part.slice(begin)
                # Lines of the file: its header is the first.
                places = range(first + begin + 2, done + 2)
                table, kept = _typed(part, kinds, places, blame)
                yield from _blocks_of(table, name, how, kept, done, share)
    for number, reason in wrong[told:]:
        blame(number, reason)


def _kinds(path: Path, text: Sequence[str]) -> dict[str, pa.DataType]:
    """Types of the columns of a CSV file by its first rows, of which a few may be odd."""
    convert = pa.csv.ConvertOptions(
        null_values=_MISSING,
        strings_can_be_null=True,
        column_types=dict.fromkeys(text, pa.string()),
    )
    parse = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip")
    with (
        _opened(path) as source,
        pa.csv.open_csv(source, convert_options=convert, parse_options=parse) as reader,
    ):
        schema = reader.schema
        first = next(iter(reader), None)
    kinds = {field.name: field.type for field in schema}
    for name, kind in kinds.items():
        if first is not None and pa.types.is_string(kind) and name not in text:
            kinds[name] = _mostly(first.column(name).drop_null())
    return kinds


def _mostly(texts: pa.Array) -> pa.DataType:
    """Number or truth where nearly all of the texts are one, else text."""
    enough = MOST * len(texts)
    if not len(texts):
        return pa.string()
    lower = pc.utf8_lower(texts)
    if pc.sum(pc.is_in(lower, pa.array(["true", "false"]))).as_py() >= enough:
        return pa.bool_()
    values = pd.to_numeric(pd.Series(texts.to_pylist(), dtype=object), errors="coerce").dropna()
    if len(values) < enough:
        return pa.string()
    return pa.int64() if (values.astype("float64") % 1 == 0).all() else pa.float64()


def _typed(
    batch: pa.RecordBatch, kinds: dict[str, pa.DataType], places: Sequence[int], blame: Blame
) -> tuple[pa.Table, Sequence[int]]:
    """Texts in the types of their columns; rows with a value that has none are left out."""
    columns: dict[str, pa.Array] = {}
    bad: set[int] = set()
    for name in batch.schema.names:
        column, odd = _numbers(batch.column(name), kinds[name])
        columns[name] = column
        for row in odd:
            if row not in bad:
                blame(
                    places[row],
                    f"{name}: {kinds[name]} expected, got {batch.column(name)[row].as_py()!r:.80}",
                )
            bad.add(row)
    table = pa.table(columns)
    if not bad:
        return table, places
    kept = [row for row in range(len(table)) if row not in bad]
    return table.take(kept), [places[row] for row in kept]


def _numbers(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Column of texts as the file's first rows say it is; int becomes float where it has to."""
    if pa.types.is_boolean(kind):
        lower = pc.utf8_lower(texts)
        missing = pc.is_in(texts, pa.array(_MISSING))
        known = pc.or_(pc.is_in(lower, pa.array(["true", "false", "0", "1"])), missing)
        value = pc.if_else(missing, None, pc.is_in(lower, pa.array(["true", "1"])))
        odd = pc.and_(pc.invert(known), texts.is_valid())
        return pc.if_else(texts.is_valid(), value, None), np.flatnonzero(
            odd.to_numpy(zero_copy_only=False)
        ).tolist()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return texts, []
    plain = pc.if_else(pc.is_in(texts, pa.array(_MISSING)), None, pc.utf8_trim_whitespace(texts))
    for target in (kind, pa.float64()):
        try:
            return plain.cast(target), []
        except pa.ArrowException:
            continue
    values = pd.to_numeric(pd.Series(plain.to_pylist(), dtype=object), errors="coerce")
    odd_rows = np.flatnonzero(values.isna().to_numpy() & plain.is_valid().to_numpy(zero_copy_only=False))
    return pa.array(values.astype("float64"), from_pandas=True), odd_rows.tolist()


# ---- JSON ----------------------------------------------------------------------------------------------

Items = Iterator[tuple[int, Any, float]]
"""Line, value, and how much of the file is behind it."""


def _opened(path: Path) -> Any:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _items(path: Path, ending: str, blame: Blame) -> Items:
    if ending.startswith(".json") and not ending.startswith(".jsonl"):
        with _opened(path) as file:
            body = file.read(JSON_BYTES + 1)
        if len(body) > JSON_BYTES:
            raise ConfigError(f"{path}: one JSON value of more than {JSON_BYTES} bytes; use JSON lines")
        try:
            value = json.loads(body)
        except ValueError as error:
            lines = body.strip().split(b"\n")
            if len(lines) < 2 or not lines[0].rstrip().endswith(b"}"):
                raise ConfigError(f"{path}: JSON expected: {error}") from None
            yield from _lines(io.BytesIO(body), len(body), blame)  # JSON lines under another name
            return
        listed = value if isinstance(value, list) else [value]
        for at, item in enumerate(listed, 1):
            yield at, item, at / len(listed)
        return
    with _opened(path) as file:
        yield from _lines(file, path.stat().st_size if path.suffix != ".gz" else 0, blame)


def _lines(file: Any, size: int, blame: Blame) -> Items:
    behind = 0
    for at, line in enumerate(file, 1):
        behind += len(line)
        if not line.strip():
            continue
        try:
            value = _parsed(line)
        except (ValueError, RecursionError) as error:
            blame(at, f"JSON expected: {error}")
            continue
        yield at, value, min(1.0, behind / size) if size else 0.0


def _parsed(line: bytes) -> Any:
    """JSON of a line, with texts that are none: what takes them names them."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return json.loads(line.decode(), parse_constant=_no_number)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON; write null")


def read_json_texts(path: Path) -> Iterator[tuple[int, bytes]]:
    """Place and text of each JSON value of a file, unparsed.

    Lines of JSON lines, else the elements of an array, or the one value.

    Raises
    ------
    ConfigError
        If the file as a whole cannot be read.
    """
    try:
        with _opened(path) as file:
            if ending_of(path) in (".json", ".json.gz"):
                yield from _json_values(path, file.read(JSON_BYTES + 1))
            else:
                yield from _stripped(file)
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None


def _json_values(path: Path, body: bytes) -> Iterator[tuple[int, bytes]]:
    if len(body) > JSON_BYTES:
        raise ConfigError(f"{path}: one JSON value of more than {JSON_BYTES} bytes; use JSON lines")
    lines = body.strip().split(b"\n")
    try:
        value = msgspec.json.decode(
            body, type=list[msgspec.Raw] if body.lstrip()[:1] == b"[" else msgspec.Raw
        )
    except msgspec.MsgspecError as error:
        if len(lines) < 2:
            raise ConfigError(f"{path}: JSON expected: {error}") from None
        yield from _stripped(lines)
        return
    for at, each in enumerate(value if isinstance(value, list) else [value], 1):
        yield at, bytes(each)


def _stripped(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for at, line in enumerate(lines, 1):
        if text := line.strip():
            yield at, text


@dataclass(frozen=True, slots=True)
class _Routed:
    place: int
    route: Route
    rows: list[dict[str, Any]]


def _json_blocks(items: Items, name: str, how: ReadOptions, skip: int, blame: Blame) -> Iterator[FileBlock]:
    routed: list[_Routed] = []
    size = at = 0
    share = 0.0
    for at, item, share in items:
        if at <= skip:
            continue
        try:
            found = _routed(item, name, at, how)
            size += sum(len(msgspec.json.encode(one.rows)) for one in found)
        except (Unreadable, ConfigError) as error:
            blame(at, str(error))
            continue
        except UnicodeEncodeError:
            blame(at, f"{_field_without_text(item)}: {SURROGATE}")
            continue
        routed += found
        if sum(len(r.rows) for r in routed) >= how.rows or size >= BLOCK_BYTES:
            yield from _grouped(routed, at, share)
            routed, size = [], 0
    yield from _grouped(routed, at, 1.0)


def _field_without_text(item: Any, place: str = "") -> str:
    """Place of the first text with an unpaired surrogate; empty without any."""
    if isinstance(item, str):
        return (place or "the line") if has_surrogate(item) else ""
    inner = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for name, value in inner:
        if isinstance(name, str) and has_surrogate(name):
            return f"the name {name!a}"
        below = f"{place}[{name}]" if isinstance(name, int) else f"{place}.{name}" if place else name
        if found := _field_without_text(value, below):
            return found
    return ""


def _grouped(routed: Sequence[_Routed], done: int, share: float) -> Iterator[FileBlock]:
    """Blocks of one route each; labels go behind the records that they may be of."""
    blocks: list[FileBlock] = []
    for route in ("records", "cloudevents", "labels"):
        members = [one for one in routed if one.route == route]
        rows = [row for one in members for row in one.rows]
        if rows:
            places = [one.place for one in members for _ in one.rows]
            blocks.append(FileBlock(route, rows, places, done, share))
    yield from _together(blocks)


def _routed(item: Any, name: str, place: int, how: ReadOptions) -> list[_Routed]:
    """Route of one value: records, labels or events."""
    if not isinstance(item, dict):
        raise Unreadable(f"a JSON object expected, got {type(item).__name__}")
    if is_sagemaker(item):
        route, rows = sagemaker(item, how.captures)
        return [_Routed(place, route, _with_ids(rows, name, place))]  # type: ignore[arg-type]  # one of the three
    if (event := kserve_event(item)) is not None:
        return [_Routed(place, "cloudevents", [event])]
    if "specversion" in item:
        return [_Routed(place, "cloudevents", [item])]
    if isinstance(item.get("label"), dict) and item.keys() <= {
        "id",
        "label",
        "model",
        "ts",
        "source",
        "entity",
    }:
        return [_Routed(place, "labels", [item])]
    is_record = isinstance(item.get("inputs"), dict) or isinstance(item.get("outputs"), dict)
    record = dict(item) if is_record and item.keys() <= ENVELOPE else record_of(item, how.names)
    if "ts" in record:
        record["ts"] = time_text(record["ts"])
    label = record.pop("label", None)
    found = [_Routed(place, "records", _with_ids([record], name, place))]
    if label:
        told = {"id": record["id"], "label": label} | (
            {"model": record["model"]} if "model" in record else {}
        )
        found.append(_Routed(place, "labels", [told]))
    return found if record.keys() & {"inputs", "outputs"} else found[1:] or found


def _with_ids(rows: list[dict[str, Any]], name: str, place: int) -> list[dict[str, Any]]:
    for at, row in enumerate(rows):
        if row.get("id") is None:
            row["id"] = f"{name}:{place}" if len(rows) == 1 else f"{name}:{place}:{at}"
    return rows
