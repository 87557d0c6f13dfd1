"""The label queue: which records somebody should look at, within a budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, case, exists, func, insert, select

from outrider.assertions.selection import AUDIT, Policy, SelectionState
from outrider.assertions.selection import select as choose
from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.ledger.counters import read_counts
from outrider.dataops.ledger.records import newest_block
from outrider.dataops.state.improvement_tables import LabelRequest, LabelRound
from outrider.dataops.state.tables import Flag, Record, table_of

from .estimates import requested_errors
from .model_answers import AnsweredRecords, read_answers
from .withdrawn import is_labelled

Status = Literal["open", "labelled", "all"]
AUDIT_SHARE = 0.1
GROUP_S = 600.0
FLAGS = "flags:"
_RECORD, _FLAG = table_of(Record), table_of(Flag)
_REQUEST, _ROUND = (table_of(t) for t in (LabelRequest, LabelRound))


@dataclass(frozen=True, slots=True)
class RequestedLabel:
    """Record to label, with the reason of its choice."""

    model: str
    record_id: str
    policy: str
    reason: str
    probability: float
    round: int
    created_us: int
    position: int
    population: int
    is_audit: bool
    floor: float
    is_labelled: bool


@dataclass(frozen=True, slots=True)
class Choice:
    requests: list[RequestedLabel]
    seen: dict[str, Any]


def choose_labels(
    connection: Connection,
    *,
    model: str,
    budget: int,
    policy: Policy,
    seed: int,
    now_us: int,
    since_us: int | None = None,
    audit_share: float = AUDIT_SHARE,
    group_s: float = GROUP_S,
    blocks: BlockSource | None = None,
) -> Choice:
    """Choose records to label, reading only.

    Candidates have no label and no request; of an entity's records within ``group_s`` a policy takes one
    a round, because near-duplicates teach little. A policy without candidates becomes the audit, which
    draws evenly and with ``audit_share`` 0 ends the round. ``blocks`` (the journal) gives production's
    answers.
    """
    candidates = _candidates(connection, model, since_us)
    severities, assertions = _severities(connection, model, candidates)
    seen = _observe(connection, model, policy, now_us) | {"since_us": since_us}
    answered = AnsweredRecords()
    if policy in ("uncertainty", "badge", "adaptive") and candidates:
        answered = read_answers(connection, blocks, model=model, records=candidates)
    does, note = _able(policy, answered)
    uncertainty = answered.uncertainty
    if uncertainty is None and does == "uncertainty":
        uncertainty = severities.max(axis=1, initial=0.0)
    chosen = choose(
        severities,
        budget=budget,
        policy=does,
        seed=seed,
        state=_state(connection, model, assertions, seen),
        groups=_groups(candidates, group_s),
        uncertainty=uncertainty,
        embeddings=answered.embeddings,
        probabilities=answered.probabilities,
        audit_share=audit_share,
    )
    requests = [
        RequestedLabel(
            model=model,
            record_id=candidates[row].id,
            policy=policy,
            reason="audit" if reason == AUDIT else assertions[reason] if reason >= 0 else note,
            probability=min(float(probability), 1.0),
            round=seen["round"],
            created_us=now_us,
            position=position,
            population=int(population),
            is_audit=bool(reason == AUDIT),
            floor=min(float(floor), 1.0),
            is_labelled=False,
        )
        for position, (row, reason, probability, population, floor) in enumerate(
            zip(chosen.rows, chosen.reason, chosen.probability, chosen.population, chosen.floor, strict=True)
        )
    ]
    return Choice(requests, seen)


def queue_labels(connection: Connection, choice: Choice) -> bool:
    """Write a choice in the caller's transaction; False, and nothing written, where another round came
    meanwhile."""
    model = choice.seen["model"]
    if choice.seen["round"] != 1 + _last_number(connection, model):
        return False
    if choice.requests:
        names = [column.name for column in _REQUEST.columns]
        rows = [{name: getattr(request, name) for name in names} for request in choice.requests]
        connection.execute(insert(_REQUEST), rows)
        connection.execute(insert(_ROUND), [choice.seen])
    return True


def list_requests(
    connection: Connection, *, model: str | None = None, status: Status = "all", limit: int = 1000
) -> list[RequestedLabel]:
    labelled = is_labelled(_REQUEST.c.model, _REQUEST.c.record_id)
    query = select(_REQUEST, labelled.label("is_labelled")).order_by(
        _REQUEST.c.round, _REQUEST.c.created_us, _REQUEST.c.record_id
    )
    if model is not None:
        query = query.where(_REQUEST.c.model == model)
    if status != "all":
        query = query.where(labelled if status == "labelled" else ~labelled)
    rows = connection.execute(query.limit(limit))
    return [RequestedLabel(**{**row._mapping, "is_labelled": bool(row.is_labelled)}) for row in rows]


def count_waiting(connection: Connection) -> dict[str, int]:
    waits = case((is_labelled(_REQUEST.c.model, _REQUEST.c.record_id), 0), else_=1)
    query = select(_REQUEST.c.model, func.sum(waits).label("waiting")).group_by(_REQUEST.c.model)
    return {row.model: row.waiting for row in connection.execute(query)}


def _able(policy: Policy, answered: AnsweredRecords) -> tuple[Policy, str]:
    """Policy that can be followed, and the reason for picks without an assertion."""
    if policy == "badge" and (answered.embeddings is None or answered.probabilities is None):
        missing = "outputs.embedding" if answered.embeddings is None else "outputs.probs"
        if answered.uncertainty is None:
            return "random", f"random: not every record has {missing}"
        return "uncertainty", f"uncertainty: not every record has {missing}"
    if policy == "uncertainty" and answered.uncertainty is None:
        return policy, "severity: no outputs.margin, score or probs"
    return policy, policy


def _candidates(connection: Connection, model: str, since_us: int | None) -> Sequence[Any]:
    asked = select(1).where(_REQUEST.c.model == model, _REQUEST.c.record_id == _RECORD.c.id)
    query = select(_RECORD.c.id, _RECORD.c.entity, _RECORD.c.ts_us, _RECORD.c.seq).where(
        _RECORD.c.model == model, ~is_labelled(model, _RECORD.c.id), ~exists(asked)
    )
    if since_us is not None:
        query = query.where(_RECORD.c.ts_us >= since_us)
    # In order of their ids: two senders that race each other must not change what a seed selects.
    return connection.execute(query.order_by(_RECORD.c.id)).all()


def _groups(candidates: Sequence[Any], group_s: float) -> NDArray[np.object_]:
    """Entity and stretch of event time of every record; None without an entity."""
    groups = np.empty(len(candidates), dtype=object)
    span = max(round(group_s * 1e6), 1)
    groups[:] = [
        None if record.entity is None else (record.entity, record.ts_us // span) for record in candidates
    ]
    return groups


def _severities(
    connection: Connection, model: str, candidates: Sequence[Any]
) -> tuple[NDArray[np.float64], list[str]]:
    """Severity per candidate and assertion, and the assertions' names."""
    row_of = {record.id: row for row, record in enumerate(candidates)}
    flags = connection.execute(
        select(_FLAG.c.record_id, _FLAG.c.assertion, func.max(_FLAG.c.severity))
        .where(_FLAG.c.model == model, _FLAG.c.slot == "champion")
        .group_by(_FLAG.c.record_id, _FLAG.c.assertion)
    ).all()
    assertions = sorted({assertion for _, assertion, _ in flags})
    code_of = {name: code for code, name in enumerate(assertions)}
    severities = np.zeros((len(candidates), len(assertions)))
    for record_id, assertion, severity in flags:
        if record_id in row_of:
            severities[row_of[record_id], code_of[assertion]] = severity
    return severities, assertions


def _last_number(connection: Connection, model: str) -> int:
    query = select(func.max(_REQUEST.c.round)).where(_REQUEST.c.model == model)
    return int(connection.scalar(query) or 0)


def _observe(connection: Connection, model: str, policy: str, now_us: int) -> dict[str, Any]:
    """Records and fires per assertion of the champion's slot, from counters: storms thin flags, not
    counts."""
    counts = read_counts(connection, model, "champion")
    upto_seq = newest_block(connection, model)
    return {
        "model": model,
        "round": 1 + _last_number(connection, model),
        "policy": policy,
        "upto_seq": int(upto_seq or 0),
        "records": counts.get("records", 0),
        "fires": {
            name.removeprefix(FLAGS): value for name, value in counts.items() if name.startswith(FLAGS)
        },
        "created_us": now_us,
    }


def _state(
    connection: Connection, model: str, assertions: Sequence[str], seen: dict[str, Any]
) -> SelectionState:
    rounds = connection.execute(select(_ROUND).where(_ROUND.c.model == model).order_by(_ROUND.c.round)).all()
    verdicts: dict[int, list[tuple[str, bool]]] = {}
    for (number, record_id), wrong in (requested_errors(connection, model) or {}).items():
        verdicts.setdefault(number, []).append((record_id, wrong))
    flagged: dict[str, list[int]] = {}
    code_of = {name: code for code, name in enumerate(assertions)}
    flags = select(_FLAG.c.record_id, _FLAG.c.assertion).where(
        _FLAG.c.model == model,
        _FLAG.c.slot == "champion",
        _FLAG.c.record_id.in_(select(_REQUEST.c.record_id).where(_REQUEST.c.model == model)),
    )
    for record_id, assertion in connection.execute(flags).all():
        flagged.setdefault(record_id, []).append(code_of[assertion])
    state, before = SelectionState(), _Totals(0, {})
    for past in rounds:
        state, before = _counted(state, before, _Totals(past.records, past.fires), assertions)
        bought = verdicts.get(past.round, [])
        fired = np.zeros((len(bought), len(assertions)))
        for row, (record_id, _) in enumerate(bought):
            fired[row, flagged.get(record_id, [])] = 1.0
        state = state.bought(fired, [wrong for _, wrong in bought])
    state, _ = _counted(state, before, _Totals(seen["records"], seen["fires"]), assertions)
    return state


@dataclass(frozen=True, slots=True)
class _Totals:
    records: int
    fires: Mapping[str, int]


def _counted(
    state: SelectionState, before: _Totals, now: _Totals, assertions: Sequence[str]
) -> tuple[SelectionState, _Totals]:
    """State with what came between two totals; without new records the round before decides."""
    if now.records <= before.records and state.rounds:
        return state.count(state.rounds[-1].records, state.rounds[-1].fires), before
    fires = [now.fires.get(name, 0) - before.fires.get(name, 0) for name in assertions]
    return state.count(now.records - before.records, fires), now
