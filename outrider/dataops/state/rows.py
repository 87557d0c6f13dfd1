"""Insertion of tuples into a table, faster than through the ORM."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlmodel import SQLModel

from .tables import table_of

Row = Sequence[Any]
STRIKE = ("model", "assertion", "at_us", "seq", "reason", "detail", "slot")


def insert_rows(
    connection: Connection, model: type[SQLModel], columns: Sequence[str], rows: Iterable[Row]
) -> None:
    """Insert tuples; rows with an existing key stay."""
    _execute(connection, model, columns, list(rows), "ON CONFLICT DO NOTHING")


def upsert_rows(
    connection: Connection,
    model: type[SQLModel],
    columns: Sequence[str],
    rows: Iterable[Row],
    *,
    key: int,
    change: Callable[[str], str],
) -> None:
    """Insert tuples, or change existing rows.

    Where the key (the first ``key`` columns) exists, set the rest to ``change(column)``.
    """
    sets = ", ".join(f'"{name}" = {change(name)}' for name in columns[key:])
    clause = f"ON CONFLICT ({', '.join(_quoted(columns[:key]))}) DO UPDATE SET {sets}"
    _execute(connection, model, columns, list(rows), clause)


def _execute(
    connection: Connection, model: type[SQLModel], columns: Sequence[str], rows: list[Row], clause: str
) -> None:
    """One executemany at the driver: SQLAlchemy's own costs five times as much per row."""
    if not rows:
        return
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    marks = ", ".join([mark] * len(columns))
    names = ", ".join(_quoted(columns))
    sql = f'INSERT INTO "{table_of(model).name}" ({names}) VALUES ({marks}) {clause}'
    connection.exec_driver_sql(sql, [tuple(row) for row in rows])


def _quoted(names: Sequence[str]) -> list[str]:
    return [f'"{name}"' for name in names]
