"""Reasons for differences between versions, from labels, flags and columns."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from outrider.dataops.labels.withdrawn import decides
from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.tables import table_of

from .versions import Provenance, RowChange, Version

_LABEL = table_of(Label)


def reasons(connection: Connection, newer: Version, rows: Sequence[RowChange]) -> list[str]:
    gone = [row.id for row in rows if row.change == "removed"]
    labels = _latest_labels(connection, newer, gone) if gone else {}
    return [_reason(row, labels.get(row.id)) for row in rows]


def _reason(row: RowChange, label: Any) -> str:
    if row.change == "added":
        assert row.after is not None
        flags = f"flagged by {row.after.assertion.replace(',', ', ')}; " if row.after.assertion else ""
        return f"{flags}{_given(row.after)}"
    if row.change == "removed":
        assert row.before is not None
        if label is not None and label.value is None:
            return f"label withdrawn by {label.source}"
        if label is None and row.before.label_seq is not None:
            return "its label went over to another record"
        return "not in the rows that replaced those before"
    assert row.after is not None
    labels = [name.removeprefix("label.") for name in row.columns if name.startswith("label.")]
    if len(labels) == len(row.columns):
        source = row.after.label_source
        return f"{', '.join(labels)} corrected{f', from {source}' if source else ''}"
    return f"other content: {', '.join(row.columns)}"


def _given(origin: Provenance) -> str:
    return f"label from {origin.label_source}" if origin.label_source else "imported"


def _latest_labels(connection: Connection, newer: Version, records: Iterable[str]) -> dict[str, Any]:
    """Deciding label of each record when ``newer`` was committed; a withdrawal counts."""
    wanted = select(func.json_each(json.dumps(list(records))).table_valued("value").c.value)
    known = select(_LABEL.c.record_id, _LABEL.c.value, _LABEL.c.source).where(
        _LABEL.c.model == newer.model,
        _LABEL.c.record_id.in_(wanted),
        _LABEL.c.received_us <= newer.created_us,
        decides(_LABEL),
    )
    query = known.order_by(_LABEL.c.seq, _LABEL.c.row)
    return {label.record_id: label for label in connection.execute(query)}
