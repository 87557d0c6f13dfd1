"""Single rows for columns, as tests write them."""

from typing import Any

from outrider.dataops.state.rows import TableColumns


def append(columns: TableColumns, row: tuple[Any, ...]) -> None:
    """Add one row, given in the order of the table."""
    columns.add(1, dict(zip(columns.names, row, strict=True)))
