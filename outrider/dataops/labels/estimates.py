"""Accuracy and precision over the traffic, from the labels that requests bought."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, func, select

from outrider.assertions.comparison.matching import matches
from outrider.assertions.comparison.typed_text import read_typed
from outrider.assertions.flags.quality import Asked
from outrider.assertions.statistics.estimation import (
    Estimate,
    certain_picks,
    estimate_share,
    selection_weights,
)
from outrider.dataops.ledger.targets import is_number
from outrider.dataops.state.improvement_tables import Label, LabelRequest, LabelRound
from outrider.dataops.state.tables import Flag, Record, table_of

from .withdrawn import decides

NUMERIC_TARGET = "the target is a number, which is near or far from its label, not right or wrong"
"""Reason for a missing accuracy, and for precision from reviews alone."""

_RECORD, _FLAG = table_of(Record), table_of(Flag)
_LABEL, _REQUEST, _ROUND = (table_of(t) for t in (Label, LabelRequest, LabelRound))


@dataclass(frozen=True, slots=True)
class Estimates:
    accuracy: Estimate
    precision: Mapping[str, Estimate]
    note: str = ""


def request_weights(connection: Connection, model: str) -> dict[str, Asked]:
    """Weights by record of all requests, as one sample: by a record's chances in all rounds in which
    it was a candidate."""
    query = (
        select(
            _REQUEST.c.record_id,
            _REQUEST.c.round,
            _REQUEST.c.probability,
            _REQUEST.c.population,
            _REQUEST.c.floor,
            _RECORD.c.seq,
            _RECORD.c.ts_us,
        )
        .outerjoin(_RECORD, (_RECORD.c.model == _REQUEST.c.model) & (_RECORD.c.id == _REQUEST.c.record_id))
        .where(_REQUEST.c.model == model)
        .order_by(_REQUEST.c.round, _REQUEST.c.position)
    )
    picks = connection.execute(query).all()
    if not picks:
        return {}
    numbers, rounds = np.unique([pick.round for pick in picks], return_inverse=True)
    probability = np.array([pick.probability for pick in picks])
    population = np.array([pick.population for pick in picks], dtype=np.float64)
    seen = {
        row.round: row
        for row in connection.execute(
            select(_ROUND.c.round, _ROUND.c.upto_seq, _ROUND.c.since_us).where(_ROUND.c.model == model)
        )
    }
    open_to = np.ones((len(picks), len(numbers)), dtype=np.bool_)
    seq = np.array([-1 if pick.seq is None else pick.seq for pick in picks])
    ts_us = np.array([np.iinfo(np.int64).max if pick.ts_us is None else pick.ts_us for pick in picks])
    for at, number in enumerate(numbers.tolist()):
        if (row := seen.get(number)) is not None:
            open_to[:, at] = (seq <= row.upto_seq) & (row.since_us is None or ts_us >= row.since_us)
    weights = selection_weights(
        probability,
        population,
        floor=np.array([pick.floor for pick in picks]),
        rounds=rounds,
        open_to=open_to,
    )
    certain = certain_picks(probability, population)
    return {
        pick.record_id: Asked(weight, is_certain)
        for pick, weight, is_certain in zip(picks, weights.tolist(), certain.tolist(), strict=True)
    }


def evenly_drawn(connection: Connection, model: str) -> dict[str, bool]:
    """True for requests drawn evenly from all records.

    Fillers of a round without policy picks count too; others were drawn from what the policy left.
    """
    query = select(
        _REQUEST.c.record_id,
        _REQUEST.c.round,
        _REQUEST.c.is_audit,
        _REQUEST.c.floor,
        _REQUEST.c.probability,
        _REQUEST.c.population,
    ).where(_REQUEST.c.model == model)
    picks = connection.execute(query).all()
    is_even = [abs(pick.probability * pick.population - 1.0) < 1e-9 for pick in picks]
    preferred = {pick.round for pick, even in zip(picks, is_even, strict=True) if not even}
    return {
        pick.record_id: pick.round not in preferred or bool(pick.is_audit and pick.floor < 1.0)
        for pick in picks
    }


def newest_labels(
    connection: Connection, model: str, *, after: int, until: int, limit: int
) -> dict[int, dict[str, str]]:
    """Newest labels by block and record, after ``after`` up to ``until``; reads the newest ``limit``."""
    query = (
        select(_LABEL.c.record_id, _LABEL.c.value, _RECORD.c.seq)
        .join(_RECORD, (_RECORD.c.model == _LABEL.c.model) & (_RECORD.c.id == _LABEL.c.record_id))
        .where(
            _LABEL.c.model == model,
            decides(_LABEL),
            _RECORD.c.seq > after,
            _RECORD.c.seq <= until,
        )
        .order_by(_LABEL.c.seq.desc(), _LABEL.c.row.desc())
        .limit(limit)
    )
    found: dict[int, dict[str, str | None]] = {}
    for row in connection.execute(query):
        found.setdefault(row.seq, {}).setdefault(row.record_id, row.value)
    return {
        seq: {record: value for record, value in labels.items() if value is not None}
        for seq, labels in found.items()
    }


def newest_label(connection: Connection, model: str, *, after: int) -> int:
    query = select(func.max(_LABEL.c.seq)).where(_LABEL.c.model == model, _LABEL.c.seq > after)
    return int(connection.scalar(query) or 0)


def count_labels(connection: Connection, model: str, *, after: int) -> tuple[int, int]:
    mine = _LABEL.c.model == model, _LABEL.c.seq > after, _LABEL.c.value.is_not(None)
    query = select(func.count(_LABEL.c.record_id.distinct()), func.max(_LABEL.c.seq)).where(*mine)
    count, newest = connection.execute(query).one()
    return int(count), int(after if newest is None else newest)


def requested_errors(connection: Connection, model: str) -> dict[tuple[int, str], bool] | None:
    """Errors of production on labelled requests by round and record; None where the target is a number."""
    query = (
        select(_REQUEST.c.round, _REQUEST.c.record_id, _RECORD.c.predicted, _LABEL.c.value)
        .join(_RECORD, (_RECORD.c.model == _REQUEST.c.model) & (_RECORD.c.id == _REQUEST.c.record_id))
        .join(_LABEL, (_LABEL.c.model == _REQUEST.c.model) & (_LABEL.c.record_id == _REQUEST.c.record_id))
        .where(_REQUEST.c.model == model, decides(_LABEL), _RECORD.c.predicted.is_not(None))
        .order_by(_LABEL.c.seq, _LABEL.c.row)
    )
    latest = {(row.round, row.record_id): row for row in connection.execute(query)}
    rows = [row for row in latest.values() if row.value is not None]
    answers = [read_typed(row.predicted) for row in rows]
    if is_number(connection, model, answers):
        return None
    right = matches(answers, [read_typed(row.value) for row in rows]).tolist()
    return {(row.round, row.record_id): not hit for row, hit in zip(rows, right, strict=True)}


def read_estimates(connection: Connection, model: str) -> Estimates:
    """Estimate from requested labels alone, because others are no sample; unlabelled requests count as
    missing by chance."""
    weight_of, errors_by_round = request_weights(connection, model), requested_errors(connection, model)
    note = NUMERIC_TARGET if errors_by_round is None else ""
    wrong = {record: is_wrong for (_, record), is_wrong in (errors_by_round or {}).items()}
    records = [record for record in wrong if record in weight_of]
    errors = np.array([wrong[record] for record in records], dtype=np.bool_)
    weights = np.array([weight_of[record].weight for record in records])
    certain = np.array([weight_of[record].is_certain for record in records], dtype=np.bool_)
    asked = select(_REQUEST.c.record_id).where(_REQUEST.c.model == model)
    flags = select(_FLAG.c.assertion, _FLAG.c.record_id).where(
        _FLAG.c.model == model, _FLAG.c.slot == "champion", _FLAG.c.record_id.in_(asked)
    )
    fired: dict[str, set[str]] = {}
    for assertion, record in connection.execute(flags).all():
        fired.setdefault(assertion, set()).add(record)
    precision = {
        assertion: estimate_share(
            errors,
            weights,
            within=np.array([record in members for record in records], dtype=np.bool_),
            certain=certain,
        )
        for assertion, members in sorted(fired.items())
    }
    return Estimates(estimate_share(~errors, weights, certain=certain), precision, note)
