"""Single rows for columns, as tests write them."""

from typing import Any

from outrider.dataops.state.rows import TableColumns


def append(columns: TableColumns, row: tuple[Any, ...]) -> None:
    """Add one row, given in the order of the table; the last columns may be left out."""
    row += (None,) * (len(columns.names) - len(row))
    columns.add(1, dict(zip(columns.names, row, strict=True)))
