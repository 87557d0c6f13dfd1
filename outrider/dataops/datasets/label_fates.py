"""Fate of each label of a model in its dataset."""

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Select, and_, case, exists, func, or_, select, tuple_

from outrider.dataops.labels.weak_labels import PREFIX
from outrider.dataops.labels.withdrawn import decides
from outrider.dataops.state.improvement_tables import (
    DatasetRow,
    DatasetVersion,
    Label,
    LabelRequest,
    of_dataset,
)
from outrider.dataops.state.tables import Flag, Record, table_of

from .quarantine import refused

Rows = Literal["flagged", "labelled"]
"""``flagged``: labelled records that were flagged or requested; ``labelled``: all labelled records."""
COLLECTED = ("new", "corrected", "removed")

_RECORD, _FLAG = table_of(Record), table_of(Flag)
_LABEL, _REQUEST = table_of(Label), table_of(LabelRequest)
_VERSION = table_of(DatasetVersion)


@dataclass(frozen=True, slots=True)
class LabelScope:
    model: str
    dataset: str
    rows: Rows = "flagged"
    upto_seq: int | None = None
    """Last journal block of labels and flags; None for all."""
    rules: str = ""
    """Digest of the rules for rows: refusals under other rules do not count."""

    @property
    def last(self) -> int:
        return 2**62 if self.upto_seq is None else self.upto_seq


def label_fates(scope: LabelScope) -> Select[Any]:
    """Labels with ``fate``, place of the record, and origin of its row."""
    label, later, held = _LABEL, _LABEL.alias("later"), _LABEL.alias("held")
    row, newer = table_of(DatasetRow), table_of(DatasetRow).alias("newer")
    present = row.c.removed.is_(None) & row.c.record_id.is_not(None)
    is_newest = ~exists(
        select(1).where(
            newer.c.record_id == row.c.record_id,
            of_dataset(newer, scope.dataset),
            newer.c.number > row.c.number,
        )
    )
    superseded = exists(
        select(1).where(
            later.c.model == scope.model,
            later.c.record_id == label.c.record_id,
            later.c.seq <= scope.last,
            tuple_(later.c.seq, later.c.row) > tuple_(label.c.seq, label.c.row),
            decides(later),
        )
    )
    of_row = tuple_(row.c.label_seq, row.c.label_row)
    made_us = (
        select(_VERSION.c.created_us)
        .where(_VERSION.c.dataset == row.c.dataset, _VERSION.c.number == row.c.number)
        .scalar_subquery()
    )
    holds = case(
        (held.c.seq.is_(None) & _human(row.c.label_source), label.c.received_us <= made_us),
        (held.c.seq.is_(None), False),
        # A label of an entity may have gone over to a later record.
        (held.c.record_id != row.c.record_id, False),
        else_=or_(of_row >= tuple_(label.c.seq, label.c.row), held.c.value == label.c.value),
    )
    fate = case(
        (_RECORD.c.id.is_(None), "no_record"),
        (~decides(label), "no_value"),
        (superseded, "superseded"),
        (label.c.value.is_(None) & present & ~func.coalesce(holds, False), "removed"),
        (label.c.value.is_(None), "withdrawn"),
        (row.c.record_id.is_not(None) & holds, "earlier_version"),
        (refused(scope.dataset, label, rules=scope.rules), "quarantined"),
        (present, "corrected"),
        *([(~_flagged(scope), "not_flagged")] if scope.rows == "flagged" else []),
        else_="new",
    )
    joined = (
        label.outerjoin(_RECORD, and_(_RECORD.c.model == scope.model, _RECORD.c.id == label.c.record_id))
        .outerjoin(row, and_(row.c.record_id == label.c.record_id, of_dataset(row, scope.dataset), is_newest))
        .outerjoin(held, and_(held.c.seq == row.c.label_seq, held.c.row == row.c.label_row))
    )
    place = _RECORD.c.seq.label("at_seq"), _RECORD.c.row.label("at_row"), _RECORD.c.entity.label("of_entity")
    judged = _RECORD.c.version.label("judged_version"), _RECORD.c.weight
    return (
        select(label, *place, *judged, row.c.assertion, row.c.flags, row.c.reviewer, fate.label("fate"))
        .select_from(joined)
        .where(label.c.model == scope.model, label.c.seq <= scope.last)
    )


def moved_labels(connection: Connection, scope: LabelScope) -> list[str]:
    """Records of the dataset whose only label moved to a later record."""
    named = select(1).where(_LABEL.c.model == scope.model, _LABEL.c.entity.is_not(None)).limit(1)
    if connection.execute(named).first() is None:
        return []
    row, other = table_of(DatasetRow), _LABEL.alias("other")
    left = exists(
        select(1).where(
            other.c.model == scope.model,
            other.c.record_id == row.c.record_id,
            other.c.seq <= scope.last,
            decides(other),
        )
    )
    query = (
        select(row.c.record_id)
        .join(_LABEL, and_(_LABEL.c.seq == row.c.label_seq, _LABEL.c.row == row.c.label_row))
        .where(row.c.dataset == scope.dataset, row.c.removed.is_(None))
        .where(_LABEL.c.record_id != row.c.record_id, ~left)
    )
    return list(connection.scalars(query))


def _flagged(scope: LabelScope) -> Any:
    def known(table: Any, *more: Any) -> Any:
        return exists(select(1).where(table.c.record_id == _LABEL.c.record_id, *more))

    by_then = _FLAG.c.seq + 0 <= scope.last  # a sum: SQLite would read all flags by their block
    return or_(
        known(_FLAG, _FLAG.c.model == scope.model, _FLAG.c.slot == "champion", by_then),
        known(_REQUEST, _REQUEST.c.model == scope.model),
    )


def _human(source: Any) -> Any:
    return func.coalesce(source, "").not_like(f"{PREFIX}%")
