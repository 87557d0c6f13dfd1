"""Withdrawn labels: a label whose every field is null takes back those before it."""

from typing import Any

from sqlalchemy import ColumnElement, String, exists, select, tuple_, type_coerce

from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.tables import table_of


def decides(labels: Any) -> ColumnElement[bool]:
    """Condition of labels that count, with a value or withdrawing; of a record's labels the latest."""
    value: ColumnElement[str | None] = labels.c.value
    return value.is_not(None) | (type_coerce(labels.c.label, String) == "{}")


def is_labelled(model: Any, record_id: Any) -> ColumnElement[bool]:
    label, later = table_of(Label).alias("given"), table_of(Label).alias("withdrawn")
    is_after = tuple_(later.c.seq, later.c.row) > tuple_(label.c.seq, label.c.row)
    same = later.c.model == label.c.model, later.c.record_id == label.c.record_id
    withdrawn = select(1).where(*same, is_after, later.c.value.is_(None), decides(later))
    own = label.c.model == model, label.c.record_id == record_id
    return exists(select(1).where(*own, label.c.value.is_not(None), ~exists(withdrawn)))
