"""Quarantine: records that a dataset refused, why, and the ways out.

A refusal holds for its label and rules; a later label or other rules let the next commit try again. ``retry``
does so at once, ``drop`` is final.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, and_, exists, func, insert, or_, select, update

from outrider.dataops.state.improvement_tables import DatasetVersion, Quarantine
from outrider.dataops.state.rows import among
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound

from .versions import Provenance

State = Literal["held", "retried", "taken", "dropped"]
Action = Literal["retry", "drop"]
_BECOMES: Mapping[Action, State] = {"retry": "retried", "drop": "dropped"}
_QUARANTINE, _VERSION = table_of(Quarantine), table_of(DatasetVersion)


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A record that a dataset refused."""

    id: int
    dataset: str
    record_id: str
    reasons: str
    state: str
    at_us: int


def refused(dataset: str, label: Any, *, rules: str) -> ColumnElement[bool]:
    """Records that were dropped, or refused with this label and these rules."""
    of_label = and_(
        _QUARANTINE.c.label_seq.is_not_distinct_from(label.c.seq),
        _QUARANTINE.c.label_row.is_not_distinct_from(label.c.row),
    )
    return _out(dataset, label.c.record_id, rules, of_label)


def refused_unlabelled(dataset: str, record_id: Any, *, rules: str) -> ColumnElement[bool]:
    return _out(dataset, record_id, rules, _QUARANTINE.c.label_seq.is_(None))


def _out(dataset: str, record_id: Any, rules: str, same: ColumnElement[bool]) -> ColumnElement[bool]:
    held = and_(_QUARANTINE.c.state == "held", _QUARANTINE.c.rules == rules, same)
    return exists(
        select(1).where(
            _QUARANTINE.c.dataset == dataset,
            _QUARANTINE.c.record_id == record_id,
            or_(_QUARANTINE.c.state == "dropped", held),
        )
    )


def hold(
    connection: Connection,
    dataset: str,
    reasons: Mapping[str, str],
    *,
    rules: str,
    labels: Mapping[str, tuple[int, int]],
    now_us: int,
) -> None:
    """Replaces earlier refusals; reasons name field and rule, never a value."""
    _leave(connection, dataset, reasons, "retried")
    nothing = (None, None)
    rows = [
        {"dataset": dataset, "record_id": record, "reasons": reason, "at_us": now_us, "rules": rules}
        | dict(zip(("label_seq", "label_row"), labels.get(record, nothing), strict=True))
        for record, reason in reasons.items()
    ]
    if rows:
        connection.execute(insert(_QUARANTINE), rows)


def take(connection: Connection, dataset: str, rows: Iterable[Provenance]) -> None:
    """Release records that a version has now."""
    _leave(connection, dataset, [row.record_id for row in rows], "taken")


def _leave(connection: Connection, dataset: str, records: Iterable[str], state: State) -> None:
    query = select(_QUARANTINE.c.record_id).where(
        _QUARANTINE.c.dataset == dataset, _QUARANTINE.c.state.in_(("held", "retried"))
    )
    if inside := set(connection.scalars(query)) & set(records):
        own = _QUARANTINE.c.dataset == dataset, among(_QUARANTINE.c.record_id, inside)
        is_open = _QUARANTINE.c.state.in_(("held", "retried"))
        connection.execute(update(_QUARANTINE).where(*own, is_open).values(state=state))


def list_quarantine(
    connection: Connection,
    *,
    datasets: Sequence[str] | None = None,
    state: State | None = "held",
    limit: int = 1000,
) -> list[QuarantinedRow]:
    query = select(*(_QUARANTINE.c[name] for name in QuarantinedRow.__slots__))
    if datasets is not None:
        query = query.where(_QUARANTINE.c.dataset.in_(datasets))
    if state is not None:
        query = query.where(_QUARANTINE.c.state == state)
    rows = connection.execute(query.order_by(_QUARANTINE.c.id.desc()).limit(limit))
    return [QuarantinedRow(**row._mapping) for row in rows]


def settle(
    connection: Connection, action: Action, *, dataset: str | None, records: Sequence[str]
) -> list[QuarantinedRow]:
    """Empty ``records`` are all held ones; dropped ones must be named."""
    states = ("held", "dropped") if action == "retry" and records else ("held",)
    where: list[ColumnElement[bool]] = [_QUARANTINE.c.state.in_(states)]
    if dataset is not None:
        where.append(_QUARANTINE.c.dataset == dataset)
    if records:
        where.append(_QUARANTINE.c.record_id.in_(records))
    query = select(*(_QUARANTINE.c[name] for name in QuarantinedRow.__slots__)).where(*where)
    found = [QuarantinedRow(**row._mapping) for row in connection.execute(query.order_by(_QUARANTINE.c.id))]
    if missing := sorted(set(records) - {row.record_id for row in found}):
        there = "" if dataset is None else f" of dataset {dataset!r}"
        raise NotFound(
            f"record {missing[0]!r} is not in quarantine{there}; `outrider dataset quarantine list` shows "
            "which are"
        )
    connection.execute(update(_QUARANTINE).where(*where).values(state=_BECOMES[action]))
    return [
        QuarantinedRow(row.id, row.dataset, row.record_id, row.reasons, _BECOMES[action], row.at_us)
        for row in found
    ]


def count_quarantined(connection: Connection) -> list[tuple[str | None, int]]:
    """By model; None for datasets without a version."""
    owner = (
        select(_VERSION.c.model).where(_VERSION.c.dataset == _QUARANTINE.c.dataset).limit(1).scalar_subquery()
    )
    query = select(owner.label("model"), func.count()).group_by("model")
    return [(model, count) for model, count in connection.execute(query)]
