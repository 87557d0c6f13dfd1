"""Withdrawn labels.

A label whose every field is null takes back those before it.
"""

from typing import Any

from sqlalchemy import ColumnElement, String, type_coerce


def decides(labels: Any) -> ColumnElement[bool]:
    """Condition of labels that count: with a value, or withdrawals.

    Of a record's, the latest one stands. A label without the target, of other fields alone, is none.

    Parameters
    ----------
    labels
        Table of labels, or an alias or subquery of it.
    """
    value: ColumnElement[str | None] = labels.c.value
    return value.is_not(None) | (type_coerce(labels.c.label, String) == "{}")
