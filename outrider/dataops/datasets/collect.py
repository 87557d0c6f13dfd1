"""Rows for training: newly labelled records, and changed labels of the dataset."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, and_, func, select

from outrider.assertions import Batch
from outrider.assertions.batch.columns import as_type, common_type
from outrider.assertions.comparison.matching import class_numbers
from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.journal.stored_rows import has_row, read_rows
from outrider.dataops.labels.weak_labels import Correction, corrected, replica_said, weak_records
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.payloads.payloads import Payloads
from outrider.dataops.state.improvement_tables import DatasetRow, DatasetVersion, of_dataset
from outrider.dataops.state.tables import Flag, Record, Review, table_of

from .label_fates import COLLECTED, LabelScope, label_fates, moved_labels
from .quarantine import refused_unlabelled
from .row_files import concat, one_schema, with_inputs
from .versions import Provenance, newest, take

_RECORD = table_of(Record)
_FLAG, _REVIEW = table_of(Flag), table_of(Review)
_ROW, _VERSION = table_of(DatasetRow), table_of(DatasetVersion)

UNOPENED = "its payload cannot be fetched or decoded"
"""Reason in place of the payload's own, which may quote its address or content."""


@dataclass(frozen=True, slots=True)
class Collected:
    batch: Batch | None
    provenance: list[Provenance]
    rejected: dict[str, str]
    removed: Sequence[str] = ()
    """Records of the dataset whose label was withdrawn."""
    corrected: frozenset[str] = frozenset()
    """Records of the dataset that ``batch`` has with another label."""
    labels: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Block and row of each record's label, rejected ones too; a weak label has none."""
    warnings: Sequence[Mapping[str, Any]] = ()
    """Columns that the model is not fed and whose types conflict between blocks."""


@dataclass(frozen=True, slots=True)
class _Place:
    id: str
    seq: int
    row: int
    entity: str | None
    flags: "_Flags"
    source: str
    label: Mapping[str, Any]
    label_id: tuple[int, int] | None = None
    corrections: tuple[Correction, ...] = ()
    version: str | None = None
    """Version whose answer was judged."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class _Flags:
    assertion: str | None = None
    flags: str | None = None
    reviewer: str | None = None
    version: str | None = None


def dataset_of(model: str) -> str:
    return f"{model}-flagged"


def datasets_of(connection: Connection, model: str) -> list[str]:
    query = select(_VERSION.c.dataset).where(_VERSION.c.model == model).distinct()
    return sorted({dataset_of(model), *connection.scalars(query)})


def count_new(connection: Connection, scope: LabelScope) -> int:
    fates = label_fates(scope).subquery()
    return int(connection.scalar(select(func.count()).where(fates.c.fate.in_(COLLECTED))) or 0)


def collect(
    connection: Connection,
    blocks: BlockSource,
    objects: ObjectStore,
    scope: LabelScope,
    *,
    target: str,
    classes: Sequence[int | str] = (),
    inputs: Collection[str] = (),
    held_out_share: float = 0.0,
    weak_confidence: float = 0.0,
    payloads: Payloads | None = None,
) -> Collected:
    """The latest label counts. Relabelled rows come from the dataset, as payloads expire."""
    fresh, known, removed = _places(connection, scope, target)
    if weak_confidence:
        fresh += _weak_places(connection, scope, target, weak_confidence)
    found, rejected = _read(connection, blocks, fresh, target, payloads)
    version = newest(connection, scope.dataset)
    schema = None if version is None else version.schema
    fitting = one_schema(found, schema, "" if version is None else version.id, inputs)
    batches, kept = fitting.batches, fitting.places
    if known:
        batches.append(_stored_rows(connection, objects, scope, known))
        kept += known
    values, bad = _target_values([place.label[target] for place in kept], classes, target)
    rejected |= fitting.rejected | {kept[row].id: reason for row, reason in bad.items()}
    parts = _parts(connection, scope, kept, share=held_out_share)
    good = [row for row, place in enumerate(kept) if row not in bad and not _waits(place, parts[row])]
    labels = {place.id: place.label_id for place in (*fresh, *known) if place.label_id is not None}
    if not good:
        return Collected(None, [], rejected, removed, labels=labels)
    provenance = [_provenance(kept[row], parts[row]) for row in good]
    batch = _labelled(with_inputs(concat(batches), schema), values, kept, target).take(good)
    corrected = frozenset(place.id for place in known)
    return Collected(batch, provenance, rejected, removed, corrected, labels, fitting.warnings)


@dataclass(frozen=True, slots=True)
class LabelledPlace:
    id: str
    seq: int
    row: int
    entity: str | None
    ts_us: int
    label: Any


def read_labelled(
    connection: Connection,
    blocks: BlockSource,
    records: Sequence[LabelledPlace],
    *,
    target: str,
    classes: Sequence[int | str] = (),
    inputs: Collection[str] = (),
    payloads: Payloads | None = None,
) -> Batch | None:
    """Records as a dataset would hold them, by block."""
    places = [
        _Place(record.id, record.seq, record.row, record.entity, _Flags(), "", {target: record.label})
        for record in records
    ]
    found, _ = _read(connection, blocks, places, target, payloads)
    fitting = one_schema(found, None, "", inputs)
    kept = fitting.places
    values, bad = _target_values([place.label[target] for place in kept], classes, target)
    good = [row for row in range(len(kept)) if row not in bad]
    return _labelled(concat(fitting.batches), values, kept, target).take(good) if good else None


def _provenance(place: _Place, part: str) -> Provenance:
    seq, row = place.label_id or (None, None)
    flags, version = place.flags, place.version or place.flags.version
    return Provenance(
        place.id,
        flags.assertion,
        place.source,
        part,
        seq,
        row,
        version,
        flags.flags,
        flags.reviewer,
        place.weight,
    )


def _stored_rows(
    connection: Connection, objects: ObjectStore, scope: LabelScope, places: Sequence[_Place]
) -> Batch:
    """Rows of the newest version in the order of ``places``, their labels null."""
    version = newest(connection, scope.dataset)
    assert version is not None  # its rows are those of the places
    rows = take(connection, objects, version, [place.id for place in places])
    batch = Batch.from_arrow(rows, model=version.model)
    kinds = {f.name: f.type for f in batch.to_arrow().schema if f.name.startswith("label.")}
    return batch.with_columns({name: pa.nulls(batch.rows, kind) for name, kind in kinds.items()})


def _read(
    connection: Connection,
    blocks: BlockSource,
    places: Iterable[_Place],
    target: str,
    payloads: Payloads | None,
) -> tuple[list[tuple[Batch, list[_Place]]], dict[str, str]]:
    found: list[tuple[Batch, list[_Place]]] = []
    rejected: dict[str, str] = {}
    by_seq = attrgetter("seq")
    for seq, of_block in groupby(sorted(places, key=by_seq), by_seq):
        batch, members = _stored(blocks, seq), list(of_block)
        expired = f"its payload (block {seq}) has expired"
        rejected |= {place.id: expired for place in members if not has_row(batch, place.row)}
        members = [place for place in members if place.id not in rejected]
        members, odd = _with_weak_values(connection, batch, members, target)
        batch, members, closed = _opened(batch, members, payloads)
        rejected |= odd | closed
        if members:
            found.append((batch, members))
    return found, rejected


def _stored(blocks: BlockSource, seq: int) -> Batch:
    try:
        return read_rows(blocks.get(seq).payload)
    except KeyError:
        return Batch.from_columns({}, model="", rows=0)


def _waits(place: _Place, part: str) -> bool:
    """A weak label may not judge a candidate, so a held-out row waits for a human."""
    return part == "held_out" and bool(place.corrections)


def _parts(connection: Connection, scope: LabelScope, places: Sequence[_Place], *, share: float) -> list[str]:
    """All rows of an entity are in one part: that of its rows already in the dataset, if any."""
    keys = [place.entity or place.id for place in places]
    asked = select(func.json_each(json.dumps(keys)).table_valued("value").c.value)
    of_entity = _RECORD.c.entity.in_(asked)
    alone = _RECORD.c.entity.is_(None) & _RECORD.c.id.in_(asked)
    known: dict[str, str] = {}
    for key, which in ((_RECORD.c.entity, of_entity), (_RECORD.c.id, alone)):
        rows = connection.execute(
            select(key, _ROW.c.part)
            .join(_ROW, and_(_ROW.c.record_id == _RECORD.c.id, of_dataset(_ROW, scope.dataset)))
            .where(_RECORD.c.model == scope.model, which)
            .distinct()
        )
        for name, part in rows:  # one row that is held out holds its entity out
            known[name] = "held_out" if "held_out" in (part, known.get(name)) else part
    drawn = held_out(keys, share=share, dataset=scope.dataset)
    return [known.get(key, "held_out" if out else "train") for key, out in zip(keys, drawn, strict=True)]


def _opened(
    batch: Batch, members: list[_Place], payloads: Payloads | None
) -> tuple[Batch, list[_Place], dict[str, str]]:
    batch = batch.take([place.row for place in members])
    if payloads is None or not members:
        return batch, members, {}
    opened = payloads.open(batch)
    rejected = {
        members[row].id: f"{reason.partition(':')[0]}: {UNOPENED}" for row, reason in opened.faults.items()
    }
    if rejected:
        members = [members[row] for row in opened.well]
        opened = opened.take(opened.well)
    return opened.batch, members, rejected


def held_out(keys: Iterable[str], *, share: float, dataset: str) -> list[bool]:
    """Salted with the dataset's name. A smaller share is a subset of a larger one."""
    salt = blake2b(dataset.encode(), digest_size=16).digest()
    limit = share * 2.0**64
    return [
        int.from_bytes(blake2b(key.encode(), digest_size=8, salt=salt).digest(), "big") < limit
        for key in keys
    ]


def _weak_places(
    connection: Connection, scope: LabelScope, target: str, min_confidence: float
) -> list[_Place]:
    found = weak_records(
        connection,
        model=scope.model,
        dataset=scope.dataset,
        target=target,
        min_confidence=min_confidence,
        refused=refused_unlabelled(scope.dataset, _RECORD.c.id, rules=scope.rules),
        upto_seq=scope.upto_seq,
    )
    flagged = _flags(connection, scope, [record.id for record in found])
    names = [",".join(sorted({c.assertion for c in record.corrections})) for record in found]
    return [
        _Place(
            r.id,
            r.seq,
            r.row,
            r.entity,
            replace(flagged.get(r.id, _Flags()), assertion=assertions),
            r.source,
            {},
            corrections=r.corrections,
            version=r.version,
            weight=r.weight,
        )
        for r, assertions in zip(found, names, strict=True)
    ]


def _with_weak_values(
    connection: Connection, batch: Batch, members: list[_Place], target: str
) -> tuple[list[_Place], dict[str, str]]:
    """Weak labels become the corrected output."""
    kept: list[_Place] = []
    rejected: dict[str, str] = {}
    name = f"outputs.{target}"
    outputs = batch.to_arrow().column(name) if batch.has(name) else None
    for place in members:
        if not place.corrections:
            kept.append(place)
            continue
        answer = None if outputs is None else outputs[place.row].as_py()
        if answer is None:  # production gave none: the replica's answer was judged
            answer = replica_said(connection, batch.model, place.version, place.seq, place.id, name)
        try:
            kept.append(replace(place, label={target: corrected(answer, place.corrections)}))
        except ValueError as error:
            rejected[place.id] = f"{name}: {error}"
    return kept, rejected


def _places(
    connection: Connection, scope: LabelScope, target: str
) -> tuple[list[_Place], list[_Place], list[str]]:
    """Places of new records, of relabelled rows, and ids of records to remove."""
    fates = label_fates(scope).subquery()
    found = connection.execute(
        select(fates).where(fates.c.fate.in_(COLLECTED)).order_by(fates.c.at_seq, fates.c.at_row)
    ).all()
    flagged = _flags(connection, scope, [row.record_id for row in found])
    places: dict[str, list[_Place]] = {fate: [] for fate in COLLECTED}
    for row in found:
        known = _Flags(row.assertion, row.flags, row.reviewer)
        place = _Place(
            row.record_id,
            row.at_seq,
            row.at_row,
            row.of_entity,
            flagged.get(row.record_id, known),
            row.source,
            row.label,
            (row.seq, row.row),
            version=row.judged_version,
            weight=1.0 if row.weight is None else row.weight,
        )
        if row.fate == "removed" or row.label.get(target) is not None:
            places[row.fate].append(place)
    removed = {place.id for place in places["removed"]} | set(moved_labels(connection, scope))
    return places["new"], places["corrected"], sorted(removed)


def _flags(connection: Connection, scope: LabelScope, records: Sequence[str]) -> dict[str, _Flags]:
    wanted = select(func.json_each(json.dumps(records)).table_valued("value").c.value)
    severity = func.max(_FLAG.c.severity)
    of_flag = _FLAG.c.record_id, _FLAG.c.assertion, _FLAG.c.revision
    query = (
        select(*of_flag, severity, func.max(_FLAG.c.version), func.max(_REVIEW.c.source))
        .outerjoin(_REVIEW, _REVIEW.c.flag_id == _FLAG.c.id)
        .where(_FLAG.c.model == scope.model, _FLAG.c.record_id.in_(wanted))
        .where(_FLAG.c.slot == "champion", _FLAG.c.seq + 0 <= scope.last)
        .group_by(*of_flag)
        .order_by(severity.desc(), _FLAG.c.assertion, _FLAG.c.revision)
    )
    found: dict[str, list[Any]] = defaultdict(list)
    for record, *flag in connection.execute(query):
        found[record].append(flag)
    return {record: _summarize(flags) for record, flags in found.items()}


def _summarize(flags: Sequence[Sequence[Any]]) -> _Flags:
    assertions, _, _, versions, reviewers = zip(*flags, strict=True)
    return _Flags(
        ",".join(sorted(set(assertions))),
        json.dumps([flag[:3] for flag in flags]),
        ",".join(sorted({reviewer for reviewer in reviewers if reviewer})) or None,
        max(filter(None, versions), default=None),
    )


def _target_values(
    values: Sequence[Any], classes: Sequence[int | str], target: str
) -> tuple[list[Any], dict[int, str]]:
    """Reasons are stored and shown, so they never quote a value."""
    if classes:
        numbers = class_numbers(values, classes).tolist()
        there = ", ".join(map(repr, classes[:10])) + (", …" if len(classes) > 10 else "")
        return [classes[number] if number >= 0 else None for number in numbers], {
            row: f"label.{target}: one of {there} expected, got another {_kind(value)}"
            for row, (number, value) in enumerate(zip(numbers, values, strict=True))
            if number < 0
        }
    kind: type = type(next(iter(values), None))
    converted: list[Any] = []
    bad: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            converted.append(_as(kind, value))
        except (TypeError, ValueError):
            converted.append(None)
            bad[row] = f"label.{target}: {kind.__name__} expected, as in other rows, got {_kind(value)}"
    return converted, bad


def _kind(value: Any) -> str:
    return {str: "text", bool: "truth value", int: "number", float: "number", list: "list"}.get(
        type(value), "object"
    )


def in_type_of_classes(value: Any, classes: Sequence[int | str]) -> Any:
    (converted,), bad = _target_values([value], classes, "label")
    if bad:
        raise ValueError(f"{bad[0]}: {value!r}")
    return converted


def _as(kind: type, value: Any) -> Any:
    if kind is list and not isinstance(value, list):
        raise TypeError(value)
    converted = kind(value)
    if isinstance(value, float) and kind is int and converted != value:
        raise ValueError(value)
    return converted


def _labelled(batch: Batch, values: list[Any], places: Sequence[_Place], target: str) -> Batch:
    columns: dict[str, Any] = {f"label.{target}": _in_type_of(batch, f"outputs.{target}", values)}
    others = {name for place in places for name in place.label} - {target}
    for name in sorted(others):
        column = [place.label.get(name) for place in places]
        if len({type(value) for value in column if value is not None}) == 1:
            columns[f"label.{name}"] = column
    return batch.with_columns(columns)


def _in_type_of(batch: Batch, name: str, values: list[Any]) -> Any:
    """An empty list takes its type from the output column."""
    kind = batch.to_arrow().schema.field(name).type if batch.has(name) else pa.null()
    if not any(isinstance(value, list) for value in values):
        return values
    try:
        given = pa.array(values)
    except pa.ArrowException:
        return values
    common = common_type(given.type, kind)
    return given if common is None else as_type(given, common)


def keep(
    batch: Batch, provenance: Sequence[Provenance], rows: Sequence[int]
) -> tuple[Batch, list[Provenance]]:
    return batch.take(np.asarray(rows, dtype=np.intp)), [provenance[row] for row in rows]
