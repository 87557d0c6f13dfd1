"""Blocks of the records in files of tables, JSON and JSON lines."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.assertions.batch.schema import PARTS
from outrider.data_files import (
    LeftOut,
    TableOptions,
    ending_of,
    is_json,
    known_ending,
    read_json_values,
    read_parts,
)
from outrider.errors import ConfigError

from .blocks import NOT_DONE, FileBlock, Route, Sent
from .captures import CaptureNames, Unreadable, is_sagemaker, kserve_event, sagemaker
from .chats import chat_record
from .columns import SYSTEM, TEXTS, Names, record_of, record_table, time_text

ENVELOPE = {*SYSTEM, *PARTS}
LABEL = {"id", "label", "model", "ts", "source", "entity", "key"}
_NOT_OF_LABELS = "these rows are labels, which have none; send it with inputs or outputs"
BLOCK_BYTES = 4_000_000
"""Approximate size of bodies."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    names: Names
    captures: CaptureNames
    rows: int = 1000
    table: TableOptions = field(default_factory=TableOptions)


def find_files(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Files to read with their names in ids: named ones, and in folders those of a known ending.

    ConfigError for a missing or unnameable one.
    """
    found: list[tuple[Path, str]] = []
    for path in paths:
        if path.is_dir():
            inner = sorted(p for p in path.rglob("*") if p.is_file() and ending_of(p))
            found += [(p, p.relative_to(path).as_posix()) for p in inner if not p.name.startswith((".", "_"))]
        elif not path.is_file():
            raise ConfigError(f"{path} {'is no file' if path.exists() else 'does not exist'}")
        else:
            known_ending(path)
            found.append((path, path.name))
    return _told_apart(list(dict.fromkeys(found)))


def _told_apart(found: Sequence[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """Files with unique names, extended by the folders in which these differ."""
    for path, name in found:
        if not name.isprintable():
            raise ConfigError(
                f"{str(path)!a}: a name of letters in UTF-8 expected, from which ids are made; rename it"
            )
    places: dict[str, set[Path]] = {}
    for path, name in found:
        places.setdefault(name, set()).add(path.resolve())
    above = {name: os.path.commonpath(paths) for name, paths in places.items() if len(paths) > 1}
    return [
        (path, path.resolve().relative_to(above[name]).as_posix() if name in above else name)
        for path, name in found
    ]


def read_blocks(
    path: Path,
    name: str,
    how: ReadOptions,
    left: LeftOut,
    *,
    sent: Sent = Sent(),  # noqa: B008 - frozen
) -> Iterator[FileBlock]:
    """Blocks of the rows of a file that are not sent yet; ConfigError for an unreadable file."""
    if is_json(path):
        yield from _json_blocks(read_json_values(path, left), name, how, left, sent)
        return
    named = how.names.named
    texts = (*TEXTS, *(name for name, full in named.items() if full in TEXTS))
    options = replace(how.table, text=(*how.table.text, *texts), named=frozenset(named), times=False)
    for table, places, share in read_parts(path, options, left, rows=how.rows):
        yield from _table_blocks(table, places, share, name, how, left, sent)


def _table_blocks(
    table: pa.Table,
    places: Sequence[int],
    share: float,
    name: str,
    how: ReadOptions,
    left: LeftOut,
    sent: Sent,
) -> Iterator[FileBlock]:
    if sent.done:
        kept = np.array([place not in sent for place in places], np.bool_)
        table, places = table.filter(pa.array(kept)), np.asarray(places)[kept].tolist()
    if not len(table):
        return
    if {"req_type", "bytes", "id"} <= set(table.column_names):
        yield from _json_blocks(_events(table, places, share, left), name, how, left, Sent())
    else:
        yield from _blocks_of(table, name, how, places, left, share)


def _events(
    table: pa.Table, places: Sequence[int], share: float, left: LeftOut
) -> Iterator[tuple[int, dict[str, Any], float]]:
    for place, row in zip(places, table.to_pylist(), strict=True):
        try:
            event = kserve_event(row)
        except Unreadable as error:
            left.row(place, str(error))
            continue
        if event is None:
            left.row(place, "a call of KServe's logger expected: req_type, id and content_type")
        else:
            yield place, event, share


def _blocks_of(
    table: pa.Table, name: str, how: ReadOptions, places: Sequence[int], left: LeftOut, share: float
) -> Iterator[FileBlock]:
    done = places[-1]
    rows, places = record_table(table, how.names, places, left)
    labels = [column for column in rows.column_names if column.startswith("label.")]
    is_labels = not any(column.startswith(("inputs.", "outputs.")) for column in rows.column_names)
    if is_labels and not labels:
        there = ", ".join(table.column_names[:50])
        raise ConfigError(f"no column of inputs, outputs or labels; there are {there}")
    blocks: list[FileBlock] = []
    if is_labels:
        for column in rows.drop_columns(labels).column_names:
            if column not in LABEL:
                left.column(column, _NOT_OF_LABELS)
    else:
        rows = _with_ids_of(rows, name, places)
        parts = _by_size(rows.drop_columns(labels), places)
        blocks += [FileBlock("records", part, where, done, share) for part, where in parts]
    if labels:
        beside = LABEL if is_labels else {"id", "model"}
        told = rows.select([*labels, *(column for column in rows.column_names if column in beside)])
        known = reduce(pc.or_, [told.column(column).combine_chunks().is_valid() for column in labels])
        where = np.asarray(places)[known.to_numpy(zero_copy_only=False)].tolist()
        blocks.append(FileBlock("labels", told.filter(known), where, done, share))
    yield from _together(blocks)


def _with_ids_of(rows: pa.Table, name: str, places: Sequence[int]) -> pa.Table:
    """Table with ids; a row without one has that of its place."""
    at = rows.schema.get_field_index("id")
    ids = pa.nulls(len(rows), pa.string()) if at < 0 else rows.column(at).combine_chunks()
    if ids.null_count:
        ids = pc.coalesce(ids, pa.array([f"{name}:{place}" for place in places], pa.string()))
    return rows.append_column("id", ids) if at < 0 else rows.set_column(at, "id", ids)


def _together(blocks: Sequence[FileBlock]) -> Iterator[FileBlock]:
    """Blocks of the same rows of a file: these are done with the last."""
    for block in blocks[:-1]:
        yield replace(block, done=NOT_DONE)
    yield from blocks[-1:]


def _by_size(table: pa.Table, places: Sequence[int]) -> Iterator[tuple[pa.Table, Sequence[int]]]:
    size = table.nbytes
    step = max(1, int(len(table) * BLOCK_BYTES / max(BLOCK_BYTES, size)))
    for start in range(0, len(table), step):
        yield table.slice(start, step), places[start : start + step]


@dataclass(frozen=True, slots=True)
class _Routed:
    place: int
    route: Route
    rows: list[dict[str, Any]]


def _json_blocks(
    items: Iterable[tuple[int, Any, float]], name: str, how: ReadOptions, left: LeftOut, sent: Sent
) -> Iterator[FileBlock]:
    routed: list[_Routed] = []
    size, at, share = 0, 0, 1.0
    for at, item, share in items:
        if at in sent:
            continue
        try:
            found = _routed(item, name, at, how, left)
        except (Unreadable, ConfigError) as error:
            left.row(at, str(error))
            continue
        routed += found
        size += sum(len(msgspec.json.encode(one.rows)) for one in found)
        if sum(len(r.rows) for r in routed) >= how.rows or size >= BLOCK_BYTES:
            yield from _grouped(routed, at, share)
            routed, size = [], 0
    yield from _grouped(routed, at, share)


def _grouped(routed: Sequence[_Routed], done: int, share: float) -> Iterator[FileBlock]:
    blocks: list[FileBlock] = []
    for route in ("records", "cloudevents", "labels"):
        members = [one for one in routed if one.route == route]
        rows = [row for one in members for row in one.rows]
        if rows:
            places = [one.place for one in members for _ in one.rows]
            blocks.append(FileBlock(route, rows, places, done, share))
    yield from _together(blocks)


def _routed(item: Any, name: str, place: int, how: ReadOptions, left: LeftOut) -> list[_Routed]:
    if not isinstance(item, dict):
        raise Unreadable(f"a JSON object expected, got {type(item).__name__}")
    if is_sagemaker(item):
        route, rows = sagemaker(item, how.captures)
        return [_Routed(place, route, _with_ids(rows, name, place))]  # type: ignore[arg-type]  # one of the three
    if (event := kserve_event(item)) is not None:
        return [_Routed(place, "cloudevents", [event])]
    if "specversion" in item:
        return [_Routed(place, "cloudevents", [item])]
    is_whole = any(
        isinstance(item.get(part), dict) and item.keys() <= known
        for part, known in (("inputs", ENVELOPE), ("outputs", ENVELOPE), ("label", LABEL))
    )
    record = dict(item) if is_whole else chat_record(item, how.names) or record_of(item, how.names)
    if record.get("ts") is not None:
        record["ts"] = time_text(record["ts"])
    if "label" in record and not record.keys() & {"inputs", "outputs"}:
        for field_ in record.keys() - LABEL:
            left.column(field_, _NOT_OF_LABELS)
        return [_Routed(place, "labels", [{n: value for n, value in record.items() if n in LABEL}])]
    label = record.pop("label", None)
    found = [_Routed(place, "records", _with_ids([record], name, place))]
    if label:
        told = {n: record[n] for n in ("id", "model") if n in record}
        found.append(_Routed(place, "labels", [told | {"label": label}]))
    return found


def _with_ids(rows: list[dict[str, Any]], name: str, place: int) -> list[dict[str, Any]]:
    for at, row in enumerate(rows):
        if row.get("id") is None:
            row["id"] = f"{name}:{place}" if len(rows) == 1 else f"{name}:{place}:{at}"
    return rows
