"""The label queue: which flagged records somebody should look at, within a budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sqlalchemy import Connection, exists, func, insert, select

from outrider.assertions.selection import Policy
from outrider.assertions.selection import select as choose

from .tables import Flag, Label, LabelRequest, Record, table_of

Status = Literal["open", "labelled", "all"]
_RECORD = table_of(Record)
_FLAG = table_of(Flag)
_LABEL = table_of(Label)
_REQUEST = table_of(LabelRequest)


@dataclass(frozen=True, slots=True)
class Request:
    """A record to label, and why it was chosen."""

    model: str
    record_id: str
    policy: str
    reason: str
    probability: float
    round: int
    created_us: int
    is_labelled: bool


def request_labels(
    connection: Connection,
    *,
    model: str,
    budget: int,
    policy: Policy,
    seed: int,
    now_us: int,
    since_us: int | None = None,
) -> list[Request]:
    """Choose records to label and queue them, in the caller's write transaction.

    Candidates carry a flag of the champion (for ``random``: any record), have no label, were not asked for
    before, and share their entity with no record that was: near-duplicates teach little. For
    ``uncertainty`` the highest severity stands for the least certain.

    Parameters
    ----------
    since_us
        Only records whose time is not before it.
    """
    records, severities, assertions = _candidates(connection, model, policy, since_us)
    round_number = 1 + int(
        connection.scalar(select(func.max(_REQUEST.c.round)).where(_REQUEST.c.model == model)) or 0
    )
    chosen = choose(
        severities,
        budget=budget,
        policy=policy,
        seed=seed + round_number,
        uncertainty=severities.max(axis=1, initial=0.0),
        groups=np.array([record.entity for record in records], dtype=object),
    )
    requests = [
        Request(
            model,
            records[row].id,
            policy,
            assertions[reason] if reason >= 0 else policy,
            float(probability),
            round_number,
            now_us,
            False,
        )
        for row, reason, probability in zip(chosen.rows, chosen.reason, chosen.probability, strict=True)
    ]
    if requests:
        names = [column.name for column in _REQUEST.columns]
        connection.execute(insert(_REQUEST), [{name: getattr(r, name) for name in names} for r in requests])
    return requests


def list_requests(
    connection: Connection, *, model: str | None = None, status: Status = "all", limit: int = 1000
) -> list[Request]:
    """Requests in order of their making: open ones (without a label), labelled ones, or all."""
    labelled = exists(
        select(1).where(_LABEL.c.model == _REQUEST.c.model, _LABEL.c.record_id == _REQUEST.c.record_id)
    )
    query = select(_REQUEST, labelled.label("is_labelled")).order_by(
        _REQUEST.c.round, _REQUEST.c.created_us, _REQUEST.c.record_id
    )
    if model is not None:
        query = query.where(_REQUEST.c.model == model)
    if status != "all":
        query = query.where(labelled if status == "labelled" else ~labelled)
    rows = connection.execute(query.limit(limit))
    return [Request(**{**row._mapping, "is_labelled": bool(row.is_labelled)}) for row in rows]


def _candidates(
    connection: Connection, model: str, policy: Policy, since_us: int | None
) -> tuple[Sequence[Any], "np.ndarray[Any, np.dtype[np.float64]]", list[str]]:
    """Records (in order of their ids), their severity per assertion, and the assertions' names."""
    mine = _RECORD.c.model == model
    labelled = select(1).where(_LABEL.c.model == model, _LABEL.c.record_id == _RECORD.c.id)
    asked = select(1).where(_REQUEST.c.model == model, _REQUEST.c.record_id == _RECORD.c.id)
    other = _RECORD.alias()
    asked_entities = (
        select(other.c.entity)
        .join(_REQUEST, (_REQUEST.c.model == other.c.model) & (_REQUEST.c.record_id == other.c.id))
        .where(other.c.model == model, other.c.entity.is_not(None))
    )
    query = select(_RECORD.c.id, _RECORD.c.entity).where(
        mine,
        ~exists(labelled),
        ~exists(asked),
        _RECORD.c.entity.is_(None) | _RECORD.c.entity.not_in(asked_entities),
    )
    if policy != "random":
        flagged = select(1).where(
            _FLAG.c.model == model, _FLAG.c.record_id == _RECORD.c.id, _FLAG.c.slot == "champion"
        )
        query = query.where(exists(flagged))
    if since_us is not None:
        query = query.where(_RECORD.c.ts_us >= since_us)
    # In order of their ids: two senders that race each other must not change what a seed selects.
    records = connection.execute(query.order_by(_RECORD.c.id)).all()
    row_of = {record.id: row for row, record in enumerate(records)}
    flags = connection.execute(
        select(_FLAG.c.record_id, _FLAG.c.assertion, func.max(_FLAG.c.severity))
        .where(_FLAG.c.model == model, _FLAG.c.slot == "champion")
        .group_by(_FLAG.c.record_id, _FLAG.c.assertion)
    ).all()
    assertions = sorted({assertion for _, assertion, _ in flags})
    code_of = {name: code for code, name in enumerate(assertions)}
    severities = np.zeros((len(records), len(assertions)))
    for record_id, assertion, severity in flags:
        if record_id in row_of:
            severities[row_of[record_id], code_of[assertion]] = severity
    return records, severities, assertions
