"""Flags and records for pages and API, bounded SQL reads."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Engine, Select, and_, exists, select, tuple_
from sqlalchemy.engine import Connection, Row

from outrider.assertions.comparison.typed_text import is_wrong, plain_text
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.erasure.hashes import is_erased
from outrider.dataops.flags.reviews import reviews_of
from outrider.dataops.journal.row_expiry import expired_ids
from outrider.dataops.ledger import answers as stored
from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.champions import champion_borders, version_at
from outrider.dataops.ledger.targets import declared_number
from outrider.dataops.state.improvement_tables import DatasetRow, Label, LabelRequest, ModelVersion
from outrider.dataops.state.tables import AssertionRow, Counter, Flag, LiveAnswer, Record, Review, table_of

SCAN_ROWS = 50_000
"""Flags looked at for one page, at most, when a filter has no index."""

flag = table_of(Flag)
record = table_of(Record)
label = table_of(Label)
request = table_of(LabelRequest)
version = table_of(ModelVersion)
counter = table_of(Counter)
live_answer = table_of(LiveAnswer)
assertion = table_of(AssertionRow)
dataset_row = table_of(DatasetRow)
review = table_of(Review)
_ORIGIN = Provenance.__slots__


@dataclass(frozen=True, slots=True)
class LabelView:
    """Label of a record, with its source."""

    value: str | None
    source: str
    label: dict[str, Any]
    ts_us: int
    received_us: int


@dataclass(frozen=True, slots=True)
class FlagView:
    """Flag with facts of its record."""

    id: str
    model: str
    record_id: str
    assertion: str
    revision: str
    slot: str
    version: str | None
    severity: float
    level: str
    evidence: dict[str, Any]
    seq: int
    row: int
    ts_us: int
    entity: str | None
    slice: str | None
    predicted: str | None
    label: str | None
    """Latest label as text, None when there is none."""
    label_source: str | None
    by_replica: bool | None
    """Whether the replica's answer was judged, for want of production's; None where that is not known."""
    review: bool | None
    """Whether the model was wrong, as a person said about this flag; None without a review."""
    model_is_wrong: bool | None
    """Prediction and label differ; None when one is missing, or is a number to be near to."""


@dataclass(frozen=True, slots=True)
class FlagPage:
    """Page of flags, newest first."""

    flags: tuple[FlagView, ...]
    after: str | None
    """Cursor of the next page, None on the last."""
    exhausted: bool
    """False when the search stopped at ``SCAN_ROWS`` before the page was full."""


@dataclass(frozen=True, slots=True)
class DatasetStay:
    """Versions of a dataset that have a record, with one label."""

    dataset: str
    number: int
    """First version."""
    removed: int | None
    """First version without it, or with another label."""
    origin: Provenance


@dataclass(frozen=True, slots=True)
class RecordView:
    """Record with its location, flags, labels and tests."""

    model: str
    id: str
    seq: int
    row: int
    ts_us: int
    version: str | None
    entity: str | None
    slice: str | None
    predicted: str | None
    model_is_wrong: bool | None
    """As of a flag, by the latest label."""
    weight: float
    by_replica: bool | None
    """As in :class:`FlagView`."""
    flags: tuple[FlagView, ...]
    labels: tuple[LabelView, ...]
    """Latest first; the latest counts."""
    live_answers: tuple[tuple[str, str, str], ...]
    """(test, version, status)."""
    datasets: tuple[DatasetStay, ...]
    requested_for: str | None
    """Why it was put up for labelling, None when it was not."""


def list_models(engine: Engine, configured: tuple[str, ...]) -> list[str]:
    with engine.connect() as connection:
        known = connection.scalars(select(version.c.model).distinct()).all()
    return [*configured, *sorted(set(known) - set(configured))]


def list_choices(engine: Engine, model: str) -> tuple[list[str], list[str]]:
    """Names of the model's active assertions, and its slots, champion first."""
    with engine.connect() as connection:
        names = connection.scalars(
            select(assertion.c.name).where(assertion.c.model == model, assertion.c.active).distinct()
        ).all()
        slots = connection.scalars(
            select(counter.c.slot).where(counter.c.model == model, counter.c.name == "records")
        ).all()
    return sorted(names), list(dict.fromkeys(["champion", *slots]))


def list_descriptions(engine: Engine, model: str) -> dict[str, str]:
    with engine.connect() as connection:
        found = connection.execute(
            select(assertion.c.name, assertion.c.description).where(
                assertion.c.model == model, assertion.c.active
            )
        ).all()
    return {row.name: row.description for row in found}


def list_flags(
    engine: Engine,
    model: str,
    *,
    assertion: str | None = None,
    slot: str | None = None,
    level: str | None = None,
    reviewed: bool | None = None,
    limit: int = 30,
    after: str | None = None,
) -> FlagPage:
    """Flags of a model, newest first; ``after`` is that of the page before, else a ValueError."""
    order = (flag.c.seq.desc(), flag.c.row.desc(), flag.c.id.desc())
    scan: Select[Any] = select(flag).where(flag.c.model == model)
    if assertion:
        scan = scan.where(flag.c.assertion == assertion)
    if reviewed is not None:
        has_review = exists().where(review.c.flag_id == flag.c.id)
        scan = scan.where(has_review if reviewed else ~has_review)
    if after:
        seq, row, identity = _parse_cursor(after)
        key = tuple_(flag.c.seq, flag.c.row, flag.c.id)
        scan = scan.where(flag.c.seq <= seq, key < tuple_(seq, row, identity))
    found = scan.order_by(*order).limit(limit + 1)
    if slot or level:  # no index leads there: look at the newest, and at few columns of them
        narrow = scan.with_only_columns(flag.c.id, flag.c.seq, flag.c.row, flag.c.slot, flag.c.level)
        inner = narrow.order_by(*order).limit(SCAN_ROWS).subquery()
        hits = select(inner.c.id).order_by(inner.c.seq.desc(), inner.c.row.desc(), inner.c.id.desc())
        hits = hits.where(inner.c.slot == slot) if slot else hits
        hits = hits.where(inner.c.level == level) if level else hits
        found = select(flag).where(flag.c.id.in_(hits.limit(limit + 1))).order_by(*order)
    with engine.connect() as connection:
        rows = connection.execute(found).all()
        if len(rows) > limit:
            rows, more = rows[:limit], True
        else:
            more = False
        last = rows[-1] if more else None
        exhausted = True
        if not more and (slot or level):  # a full scan that found too little goes on where it stopped
            last = connection.execute(scan.order_by(*order).offset(SCAN_ROWS - 1).limit(1)).first()
            exhausted = last is None
        flags = _with_records(connection, model, rows)
    return FlagPage(flags, _cursor(last) if last is not None else None, exhausted)


def read_flag(engine: Engine, model: str, flag_id: str) -> FlagView | None:
    with engine.connect() as connection:
        rows = connection.execute(select(flag).where(flag.c.id == flag_id, flag.c.model == model)).all()
        found = _with_records(connection, model, rows)
    return found[0] if found else None


def read_record(engine: Engine, model: str, record_id: str) -> RecordView | None:
    where = and_(record.c.model == model, record.c.id == record_id)
    with engine.connect() as connection:
        found = connection.execute(select(record).where(where)).first()
        if found is None:
            return None
        flags = connection.execute(
            select(flag)
            .where(flag.c.model == model, flag.c.record_id == record_id)
            .order_by(flag.c.slot, flag.c.assertion)
            .limit(200)
        ).all()
        labels = connection.execute(
            select(label)
            .where(label.c.model == model, label.c.record_id == record_id)
            .order_by(label.c.seq.desc(), label.c.row.desc())
            .limit(50)
        ).all()
        datasets = connection.execute(
            select(*dataset_row.c["dataset", "number", "removed"], *dataset_row.c[_ORIGIN])
            .where(dataset_row.c.record_id == record_id)
            .order_by(dataset_row.c.dataset, dataset_row.c.number)
            .limit(50)
        ).all()
        wanted = connection.scalar(
            select(request.c.reason).where(request.c.model == model, request.c.record_id == record_id)
        )
        tests = connection.execute(
            select(live_answer.c.test, live_answer.c.version, live_answer.c.status).where(
                live_answer.c.model == model,
                live_answer.c.record_id == record_id,
                live_answer.c.test.in_(_live_tests(connection, model)),
            )
        ).all()
        return RecordView(
            model=model,
            id=record_id,
            seq=found.seq,
            row=found.row,
            ts_us=found.ts_us,
            version=found.version,
            entity=found.entity,
            slice=found.slice,
            predicted=plain_text(found.predicted),
            model_is_wrong=_is_wrong(found, labels[0], declared_number(connection, model))
            if labels
            else None,
            weight=found.weight,
            by_replica=found.by_replica,
            flags=_with_records(connection, model, flags),
            labels=tuple(_label(row) for row in labels),
            live_answers=tuple((row.test, row.version, row.status) for row in tests),
            datasets=tuple(DatasetStay(row[0], row[1], row[2], Provenance(*row[3:])) for row in datasets),
            requested_for=wanted,
        )


def why_gone(engine: Engine, model: str, record_id: str) -> str:
    """Reason why a known record is gone; empty for any other."""
    with engine.connect() as connection:
        if is_erased(connection, model, record_id):
            return "was erased; nothing more is stored of it"
        is_expired = bool(expired_ids(connection, model, [record_id]))
    return "has expired: storage.keep_rows_days have passed" if is_expired else ""


def read_answer(
    engine: Engine, model: str, version: str | None, *, seq: int, record_id: str
) -> dict[str, Any]:
    """Answer of a version's replica to a record; without a version, of the champion of that time, as
    for records without production's answer."""
    if version is None:
        version = version_at(champion_borders(engine, model), seq)
    with engine.connect() as connection:
        batch = stored.read_answer(connection, model, version, seq)
    if batch is None:
        return {}
    rows = np.flatnonzero(batch.keys == record_id)
    return dict(batch.take(rows[:1]).to_records()[0]["outputs"]) if len(rows) else {}


def read_labels(connection: Connection, model: str, ids: Sequence[str]) -> dict[str, Row[Any]]:
    rows = connection.execute(
        select(label)
        .where(label.c.model == model, label.c.record_id.in_(ids))
        .order_by(label.c.seq, label.c.row)
    )
    return {row.record_id: row for row in rows}


def _with_records(connection: Connection, model: str, rows: Iterable[Row[Any]]) -> tuple[FlagView, ...]:
    rows = list(rows)
    ids = sorted({row.record_id for row in rows})
    known = {
        row.id: row
        for row in connection.execute(select(record).where(record.c.model == model, record.c.id.in_(ids)))
    }
    labels = read_labels(connection, model, ids)
    reviews = reviews_of(connection, [row.id for row in rows])
    is_number = declared_number(connection, model)
    return tuple(
        _flag(row, known.get(row.record_id), labels.get(row.record_id), reviews.get(row.id), is_number)
        for row in rows
    )


def _is_wrong(of: Row[Any], label: Row[Any], is_number: bool | None) -> bool | None:
    return is_wrong(of.predicted, label.value, is_number=is_number)


def _flag(
    row: Row[Any],
    of: Row[Any] | None,
    label: Row[Any] | None,
    reviewed: bool | None,
    is_number: bool | None,
) -> FlagView:
    return FlagView(
        id=row.id,
        model=row.model,
        record_id=row.record_id,
        assertion=row.assertion,
        revision=row.revision,
        slot=row.slot,
        version=row.version,
        severity=row.severity,
        level=row.level,
        evidence=_evidence(row.evidence),
        seq=row.seq,
        row=row.row,
        ts_us=row.ts_us,
        entity=None if of is None else of.entity,
        slice=None if of is None else of.slice,
        predicted=None if of is None else plain_text(of.predicted),
        label=None if label is None else plain_text(label.value),
        label_source=None if label is None else label.source,
        by_replica=of.by_replica if of is not None and row.slot == CHAMPION else None,
        review=reviewed,
        model_is_wrong=None if of is None or label is None else _is_wrong(of, label, is_number),
    )


def _evidence(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {"evidence": text}
    return value if isinstance(value, dict) else {"evidence": value}


def _label(row: Row[Any]) -> LabelView:
    return LabelView(plain_text(row.value), row.source, dict(row.label), row.ts_us, row.received_us)


def _live_tests(connection: Connection, model: str) -> list[str]:
    return list(
        connection.scalars(
            select(assertion.c.name).where(assertion.c.model == model, assertion.c.kind == "live_test")
        )
    )


def _cursor(row: Row[Any]) -> str:
    return f"{row.seq}.{row.row}.{row.id}"


def _is_number(text: str) -> bool:
    """True for numbers that the database can hold."""
    return text.isdecimal() and len(text) < 19


def _parse_cursor(text: str) -> tuple[int, int, str]:
    seq, _, rest = text.partition(".")
    row, _, identity = rest.partition(".")
    if not (_is_number(seq) and _is_number(row) and identity):
        raise ValueError(f"after: a cursor as in 'after' of the page before expected, got {text!r}")
    return int(seq), int(row), identity
