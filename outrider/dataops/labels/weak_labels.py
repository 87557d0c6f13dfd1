"""Weak labels for unlabelled training records: corrections that assertions propose.

Kang et al., "Model Assertions for Monitoring and Improving ML Models", MLSys 2020, §4.2.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, exists, select

from outrider.dataops.ledger.answers import read_answer
from outrider.dataops.state.improvement_tables import DatasetRow, Label, of_dataset
from outrider.dataops.state.tables import Record, WeakLabelRow, table_of

from .withdrawn import decides

_WEAK = table_of(WeakLabelRow)
_RECORD = table_of(Record)
_LABEL = table_of(Label)
_ROW = table_of(DatasetRow)
PREFIX = "weak:"
"""Begin of a weak label's source; the assertions' names follow."""


@dataclass(frozen=True, slots=True)
class Correction:
    assertion: str
    kind: str
    element: int
    value: Any
    confidence: float


@dataclass(frozen=True, slots=True)
class WeakRecord:
    id: str
    seq: int
    row: int
    entity: str | None
    corrections: tuple[Correction, ...]
    version: str | None = None
    weight: float = 1.0

    @property
    def source(self) -> str:
        return PREFIX + ",".join(sorted({correction.assertion for correction in self.corrections}))


def weak_records(
    connection: Connection,
    *,
    model: str,
    dataset: str,
    target: str,
    min_confidence: float,
    refused: ColumnElement[bool],
    upto_seq: int | None = None,
) -> list[WeakRecord]:
    """Records whose champion's ``outputs.<target>`` an assertion corrects, in order of the journal;
    without labelled, withdrawn, ``refused`` and already contained ones."""

    def known(table: Any, *more: Any) -> Any:
        return exists(select(1).where(table.c.record_id == _RECORD.c.id, *more))

    query = (
        select(
            _RECORD.c.id,
            _RECORD.c.seq,
            _RECORD.c.row,
            _RECORD.c.entity,
            _RECORD.c.weight,
            _WEAK.c.assertion,
            _WEAK.c.kind,
            _WEAK.c.element,
            _WEAK.c.value,
            _WEAK.c.confidence,
            _WEAK.c.version,
        )
        .join(_RECORD, (_RECORD.c.model == _WEAK.c.model) & (_RECORD.c.id == _WEAK.c.record_id))
        .where(
            _WEAK.c.model == model,
            _WEAK.c.slot == "champion",
            _WEAK.c.field == f"outputs.{target}",
            _WEAK.c.confidence >= min_confidence,
            ~known(_LABEL, _LABEL.c.model == model, decides(_LABEL)),
            ~known(_ROW, of_dataset(_ROW, dataset)),
            ~refused,
        )
        .order_by(_RECORD.c.seq, _RECORD.c.row, _WEAK.c.confidence.desc(), _WEAK.c.assertion, _WEAK.c.id)
    )
    if upto_seq is not None:
        query = query.where(_WEAK.c.seq <= upto_seq)
    found: dict[str, tuple[Any, list[Correction]]] = {}
    for row in connection.execute(query):
        correction = Correction(row.assertion, row.kind, row.element, json.loads(row.value), row.confidence)
        found.setdefault(row.id, (row, []))[1].append(correction)
    return [
        WeakRecord(row.id, row.seq, row.row, row.entity, tuple(corrections), row.version, row.weight)
        for row, corrections in found.values()
    ]


def replica_said(
    connection: Connection, model: str, version: str | None, seq: int, record: str, name: str
) -> Any:
    """Stored output of a version, corrected where production gave none; else None."""
    answer = read_answer(connection, model, version, seq)
    if answer is None or not answer.has(name):
        return None
    rows = np.flatnonzero(answer.keys == record)
    return answer.arrow(name)[int(rows[0])].as_py() if len(rows) else None


def corrected(value: Any, corrections: Sequence[Correction]) -> Any:
    """Model's output with the assertions' corrections.

    The surest replacement of the whole value stands; else elements of a list are replaced and removed by
    their position in it, and new ones stand behind.

    Raises
    ------
    ValueError
        If elements are corrected and the output is no list, or has no such element.

    Examples
    --------
    >>> cut = Correction("blip", "remove", 0, None, 1.0)
    >>> corrected([{"x": 1}, {"x": 5}], [cut, Correction("gap", "add", -1, {"x": 6}, 0.9)])
    [{'x': 5}, {'x': 6}]
    """
    for correction in corrections:
        if correction.kind == "replace" and correction.element < 0:
            return correction.value
    if not isinstance(value, list):
        raise ValueError(f"a list expected, whose elements are corrected, got {type(value).__name__}")
    elements = dict(enumerate(value))
    added: list[Any] = []
    touched: set[int] = set()
    for correction in corrections:
        if correction.kind == "add":
            if correction.value not in added:
                added.append(correction.value)
            continue
        if correction.element not in range(len(value)):
            raise ValueError(f"element {correction.element} is corrected, but there are {len(value)}")
        if correction.element in touched:
            continue
        touched.add(correction.element)
        if correction.kind == "remove":
            del elements[correction.element]
        else:
            elements[correction.element] = correction.value
    return [*elements.values(), *added]


@dataclass(frozen=True, slots=True)
class WeakLabelView:
    """A stored correction with its provenance."""

    id: str
    model: str
    record_id: str
    flag_id: str
    assertion: str
    revision: str
    slot: str
    version: str | None
    kind: str
    field: str
    element: int
    value: Any
    confidence: float
    ts_us: int


def list_weak_labels(
    connection: Connection,
    *,
    model: str,
    assertion: str | None = None,
    record_id: str | None = None,
    min_confidence: float = 0.0,
    limit: int = 1000,
    after: str | None = None,
) -> list[WeakLabelView]:
    columns = [_WEAK.c[name] for name in WeakLabelView.__slots__]
    query = select(*columns).where(_WEAK.c.model == model, _WEAK.c.confidence >= min_confidence)
    if assertion is not None:
        query = query.where(_WEAK.c.assertion == assertion)
    if record_id is not None:
        query = query.where(_WEAK.c.record_id == record_id)
    if after is not None:
        query = query.where(_WEAK.c.id > after)
    rows = connection.execute(query.order_by(_WEAK.c.id).limit(limit))
    return [WeakLabelView(**{**row._mapping, "value": json.loads(row.value)}) for row in rows]
