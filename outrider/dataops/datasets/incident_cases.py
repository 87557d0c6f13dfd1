"""Suite file's test case from an incident's stored, corrected record."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import UNSET
from msgspec.structs import replace
from sqlalchemy import Connection, select

from outrider.assertions import Batch
from outrider.behavioral_tests.examples import Examples
from outrider.behavioral_tests.outcome import Kind
from outrider.behavioral_tests.suite_file import CaseSource, WrittenTest
from outrider.behavioral_tests.suite_file.exporting import written_cases
from outrider.dataops.labels.weak_labels import PREFIX, Correction, corrected, replica_said
from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.tables import AssertionRow, Flag, Record, WeakLabelRow, table_of
from outrider.errors import NotFound, OutriderError, SchemaMismatch

_RECORD = table_of(Record)
_FLAG = table_of(Flag)
_LABEL = table_of(Label)
_WEAK = table_of(WeakLabelRow)
_ASSERTION = table_of(AssertionRow)
CAPABILITY = "incidents"
Mode = Literal["mft", "inv"]
"""``mft``: the record has its right answer; ``inv``: its changed copy gets the expected answer."""


class NoCase(OutriderError):  # noqa: N818 - reads as the state it is
    """Record unusable as a case.

    The message says what to do.
    """


class NoAnswer(NoCase):
    """The record's right answer is unknown."""


@dataclass(frozen=True, slots=True)
class IncidentRecord:
    model: str
    record_id: str
    seq: int
    row: int
    version: str
    flag: str = ""
    assertion: str = ""
    evidence: Mapping[str, Any] | None = None
    definition: Mapping[str, Any] | None = None
    """Kind, capability, tolerance and expectation of the live test that raised the flag."""


@dataclass(frozen=True, slots=True)
class RightAnswer:
    value: Any
    by: str


def find(
    connection: Connection, model: str, *, flag: str | None = None, record_id: str | None = None
) -> IncidentRecord:
    found = None
    if flag is not None:
        found = connection.execute(select(_FLAG).where(_FLAG.c.id == flag, _FLAG.c.model == model)).first()
        if found is None:
            raise NotFound(f"{model} has no flag {flag!r}; `outrider flags --json` shows their ids")
        record_id = found.record_id
    record = connection.execute(
        select(_RECORD).where(_RECORD.c.model == model, _RECORD.c.id == record_id)
    ).first()
    if record is None:
        raise NotFound(f"{model} has no record {record_id!r}")
    if found is None:
        return IncidentRecord(model, record.id, record.seq, record.row, record.version or "")
    return IncidentRecord(
        model,
        record.id,
        record.seq,
        record.row,
        found.version or record.version or "",
        found.id,
        found.assertion,
        _object(found.evidence),
        _definition(connection, model, found.assertion, found.revision),
    )


def right_answer(
    connection: Connection, incident: IncidentRecord, target: str, answer: Any
) -> RightAnswer | None:
    """Latest human label, else the assertions' correction of the champion's ``answer``."""
    labels = connection.execute(
        select(_LABEL.c.label, _LABEL.c.source)
        .where(_LABEL.c.model == incident.model, _LABEL.c.record_id == incident.record_id)
        .order_by(_LABEL.c.seq.desc(), _LABEL.c.row.desc())
    )
    for label, source in labels:
        if not label:  # withdrawn
            break
        if label.get(target) is not None:
            return RightAnswer(label[target], source)
    rows = connection.execute(
        select(_WEAK)
        .where(
            _WEAK.c.model == incident.model,
            _WEAK.c.record_id == incident.record_id,
            _WEAK.c.slot == "champion",
            _WEAK.c.field == f"outputs.{target}",
        )
        .order_by(_WEAK.c.confidence.desc(), _WEAK.c.assertion, _WEAK.c.id)
    ).all()
    found = [Correction(r.assertion, r.kind, r.element, json.loads(r.value), r.confidence) for r in rows]
    if not found:
        return None
    if answer is None:  # production gave none: the replica's answer was judged
        name, version = f"outputs.{target}", rows[0].version
        answer = replica_said(connection, incident.model, version, incident.seq, incident.record_id, name)
    try:
        value = corrected(answer, found)
    except ValueError:
        return None
    return RightAnswer(value, PREFIX + ",".join(sorted({failure.assertion for failure in found})))


def as_mft(
    incident: IncidentRecord, batch: Batch, answer: RightAnswer | None, *, target: str, at: str
) -> WrittenTest:
    if answer is None:
        raise NoAnswer(
            f"{incident.record_id}: its right answer is unknown: no label was sent and no assertion "
            "proposes one; send one (`outrider label`, POST /v1/labels), or give it (--label)"
        )
    try:
        labelled = _inputs_of(batch).with_columns({f"label.{target}": [answer.value]})
    except (SchemaMismatch, OverflowError) as error:
        raise NoCase(f"{incident.record_id}: no right answer that a column can hold: {error}") from error
    name = (
        f"answers_where_{incident.assertion}_fired" if incident.assertion else "answers_to_reported_records"
    )
    return _test(
        incident,
        labelled,
        name,
        "MFT",
        {"expect": "equal", "field": target},
        _source(incident, answer.by, at),
    )


def as_inv(
    incident: IncidentRecord,
    batch: Batch,
    variants: Sequence[Mapping[str, Any]] | None,
    *,
    target: str,
    name: str | None,
    by: str,
    at: str,
) -> WrittenTest:
    """A live test keeps its kind and expectation."""
    kind: Kind = "INV"
    expect: Mapping[str, Any] = {"expect": "same", "fields": [target]}
    capability = CAPABILITY
    if variants is None:
        variants = [_changed_copy(incident)]
        definition = incident.definition or {}
        if definition.get("expect") is None:
            raise NoCase(
                f"{incident.assertion} expects the result of a function, which a file cannot hold: "
                "add the record as mft, or with a perturbation"
            )
        kind, expect, capability = definition["kind"], definition["expect"], definition["capability"]
        name = f"{incident.assertion}_on_incidents"
    fields = {name.removeprefix("inputs.") for name in batch.names if name.startswith("inputs.")}
    for variant in variants:
        if odd := sorted(set(variant) - fields):
            raise NoCase(f"{incident.record_id}: a changed copy has an input {odd[0]!r}, the record has none")
    test = _test(
        incident,
        _inputs_of(batch),
        name or "same_answer_to_changed_records",
        kind,
        expect,
        _source(incident, by, at),
        capability=capability,
    )
    (case,) = test.cases
    original = case.inputs[0]
    changed: list[str | dict[str, Any]] = [
        variant["text"] if isinstance(original, str) and variant.get("text") is not None else dict(variant)
        for variant in variants
    ]
    return replace(test, cases=[replace(case, inputs=[original, *changed])])


def _changed_copy(incident: IncidentRecord) -> Mapping[str, Any]:
    evidence = incident.evidence or {}
    inputs = evidence.get("inputs")
    if incident.definition is None:
        raise NoCase(
            f"{incident.assertion or incident.record_id} is no live test, so there is no changed copy: name "
            "a perturbation (`outrider test add --perturb text.typos`), or add the record as mft"
        )
    if not isinstance(inputs, Mapping):
        raise NoCase(f"{incident.record_id}: its changed copy was not kept with the flag: add it as mft")
    return inputs


def _test(
    incident: IncidentRecord,
    batch: Batch,
    name: str,
    kind: Kind,
    expect: Mapping[str, Any],
    source: CaseSource,
    *,
    capability: str = CAPABILITY,
) -> WrittenTest:
    (case,), types = written_cases(Examples.alone(batch), f"record {incident.record_id!r}")
    return WrittenTest(
        name=name,
        kind=kind,
        capability=capability,
        description="Records of production that became cases.",
        expect=dict(expect),
        types=types,
        cases=[replace(case, source=source, label=case.label if kind == "MFT" else UNSET)],
    )


def _inputs_of(batch: Batch) -> Batch:
    table = batch.to_arrow()
    kept = [name for name in table.schema.names if not name.startswith(("outputs.", "label."))]
    nothing = {name for name in kept if "." in name and batch.is_null(name).all()}
    return Batch.from_arrow(table.select([name for name in kept if name not in nothing]), model=batch.model)


def _source(incident: IncidentRecord, by: str, at: str) -> CaseSource:
    return CaseSource(
        model=incident.model,
        record_id=incident.record_id,
        flag=incident.flag,
        version=incident.version,
        by=by,
        at=at,
    )


def _definition(connection: Connection, model: str, name: str, revision: str) -> Mapping[str, Any] | None:
    text = connection.scalar(
        select(_ASSERTION.c.definition).where(
            _ASSERTION.c.model == model,
            _ASSERTION.c.name == name,
            _ASSERTION.c.revision == revision,
            _ASSERTION.c.kind == "live_test",
        )
    )
    return None if text is None else _object(text)


def _object(text: str | None) -> Mapping[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
