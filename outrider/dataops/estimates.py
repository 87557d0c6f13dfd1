"""Accuracy and precision over the traffic, from the labels that requests bought."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, select

from outrider.assertions.estimation import Estimate, estimate_share, selection_weights
from outrider.assertions.matching import is_numeric, matches
from outrider.assertions.typed_text import read_typed

from .quality import NUMERIC_TARGET
from .tables import Flag, Label, LabelRequest, Record, table_of

_RECORD = table_of(Record)
_FLAG = table_of(Flag)
_LABEL = table_of(Label)
_REQUEST = table_of(LabelRequest)


@dataclass(frozen=True, slots=True)
class Weight:
    """What one request stands for; see :func:`~outrider.assertions.estimation.selection_weights`."""

    weight: float
    is_audit: bool


@dataclass(frozen=True, slots=True)
class Estimates:
    """Over all records that requests chose from.

    Attributes
    ----------
    accuracy
        Of what production answered.
    precision
        Per assertion: how often the model was wrong where it fired.
    note
        Why there are labels and no estimate; empty otherwise.
    """

    accuracy: Estimate
    precision: Mapping[str, Estimate]
    note: str = ""


def request_weights(connection: Connection, model: str) -> dict[str, Weight]:
    """Weight of every request whose population was noted, by record, round by round."""
    query = (
        select(
            _REQUEST.c.record_id,
            _REQUEST.c.round,
            _REQUEST.c.probability,
            _REQUEST.c.population,
            _REQUEST.c.is_audit,
        )
        .where(_REQUEST.c.model == model, _REQUEST.c.population > 0)
        .order_by(_REQUEST.c.round, _REQUEST.c.position)
    )
    rounds: dict[int, list[tuple[str, float, int, bool]]] = {}
    for record_id, number, probability, population, is_audit in connection.execute(query).all():
        rounds.setdefault(number, []).append((record_id, probability, population, is_audit))
    found: dict[str, Weight] = {}
    for picks in rounds.values():
        weights = selection_weights([pick[1] for pick in picks], [pick[2] for pick in picks])
        for (record_id, _, _, is_audit), weight in zip(picks, weights.tolist(), strict=True):
            found[record_id] = Weight(weight, bool(is_audit))
    return found


def read_estimates(connection: Connection, model: str) -> Estimates:
    """Estimate from the labelled requests; labels that came unasked are no sample of anything and left out.

    Requests that got no label count as missing by chance.
    """
    weight_of = request_weights(connection, model)
    query = (
        select(_LABEL.c.record_id, _LABEL.c.value, _RECORD.c.predicted)
        .join(_RECORD, (_RECORD.c.model == _LABEL.c.model) & (_RECORD.c.id == _LABEL.c.record_id))
        .join(_REQUEST, (_REQUEST.c.model == _LABEL.c.model) & (_REQUEST.c.record_id == _LABEL.c.record_id))
        .where(_LABEL.c.model == model, _LABEL.c.value.is_not(None), _RECORD.c.predicted.is_not(None))
        .order_by(_LABEL.c.seq, _LABEL.c.row)
    )
    rows = connection.execute(query).all()
    answers = [read_typed(row.predicted) for row in rows]
    note = NUMERIC_TARGET if is_numeric(answers) else ""
    right = matches(answers, [read_typed(row.value) for row in rows]).tolist()
    # The latest label counts.
    wrong = {row.record_id: not hit for row, hit in zip(rows, right, strict=True)} if not note else {}
    records = [record for record in wrong if record in weight_of]
    errors = np.array([wrong[record] for record in records], dtype=np.bool_)
    weights = np.array([weight_of[record].weight for record in records])
    audit = np.array([weight_of[record].is_audit for record in records], dtype=np.bool_)
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
            audit=audit,
        )
        for assertion, members in sorted(fired.items())
    }
    return Estimates(estimate_share(~errors, weights, audit=audit), precision, note)
