"""Rows for tables as columns, and their fast insertion.

Tuples are in the order of :func:`outrider.dataops.state.tables.columns_of`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import itemgetter
from types import NoneType
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select
from sqlmodel import SQLModel

from .tables import columns_of, table_of

Row = tuple[Any, ...]
_BLOCK_ROWS = 50


class TableColumns:
    """Rows for one table, one list per column.

    Examples
    --------
    >>> from outrider.dataops.state.tables import Cursor
    >>> cursors = TableColumns(Cursor)
    >>> cursors.add(2, {"model": "m", "slot": ["champion", "2"], "seq": [7, 5]})
    >>> cursors["seq"], list(cursors.where([False, True]).rows())
    ([7, 5], [('m', '2', 5)])
    """

    __slots__ = ("_lists", "_model")

    def __init__(self, model: type[SQLModel]) -> None:
        self._model = model
        self._lists: dict[str, list[Any]] = {name: [] for name in columns_of(model)}

    def __len__(self) -> int:
        return len(self._lists[self.names[0]])

    def __getitem__(self, name: str) -> list[Any]:
        return self._lists[name]

    def __setitem__(self, name: str, values: list[Any]) -> None:
        self._lists[name] = values

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the table, in order."""
        return tuple(self._lists)

    def add(self, rows: int, values: Mapping[str, Any]) -> None:
        """Add rows: for each column a list, or one value for all."""
        for name, column in self._lists.items():
            given = values[name]
            column += given if isinstance(given, list) else [given] * rows

    def extend(self, other: "TableColumns") -> None:
        """Add the rows of another."""
        self.add(len(other), other._lists)

    def where(self, mask: Iterable[bool]) -> "TableColumns":
        """Rows where a mask is true."""
        kept, found = list(mask), TableColumns(self._model)
        found._lists = {name: list(compress(column, kept)) for name, column in self._lists.items()}
        return found

    def select(self, *names: str) -> Iterator[Row]:
        """Values of some columns, row by row."""
        return zip(*(self._lists[name] for name in names), strict=True)

    def rows(self) -> Iterator[Row]:
        """Tuples of all columns."""
        return self.select(*self.names)


def insert_rows(connection: Connection, model: type[SQLModel], rows: Iterable[Row]) -> None:
    """Insert tuples; rows with an existing key stay."""
    _execute(connection, model, list(rows), "ON CONFLICT DO NOTHING")


def replace_rows(connection: Connection, model: type[SQLModel], rows: Iterable[Row]) -> None:
    """Insert tuples, replacing rows whose primary key exists."""
    _upsert(connection, model, rows, lambda name: f'excluded."{name}"')


def add_to_rows(connection: Connection, model: type[SQLModel], rows: Iterable[Row]) -> None:
    """Insert tuples, adding to the numbers of existing rows."""
    table = table_of(model).name
    _upsert(connection, model, rows, lambda name: f'"{table}"."{name}" + excluded."{name}"')


def update_rows(
    connection: Connection, model: type[SQLModel], rows: Iterable[Row], *names: str, where: Sequence[str]
) -> None:
    """Update rows one by one.

    Tuples hold the values of ``names``, then those of the columns ``where`` by which each row is found.
    """
    mark = _mark(connection)
    sets, found = (
        delimiter.join(f"{name} = {mark}" for name in _quoted(columns))
        for delimiter, columns in ((", ", names), (" AND ", where))
    )
    if rows := list(rows):
        connection.exec_driver_sql(f'UPDATE "{table_of(model).name}" SET {sets} WHERE {found}', rows)


def among(column: ColumnElement[Any], values: Iterable[str | int]) -> ColumnElement[bool]:
    """Condition on a column that has one of some values, however many they are."""
    given = func.json_each(json.dumps(list(values))).table_valued("value")
    return column.in_(select(given.c.value))


def _upsert(
    connection: Connection, model: type[SQLModel], rows: Iterable[Row], change: Callable[[str], str]
) -> None:
    key = [column.name for column in table_of(model).primary_key]
    sets = ", ".join(f'"{name}" = {change(name)}' for name in columns_of(model) if name not in key)
    clause = f"ON CONFLICT ({', '.join(_quoted(key))}) DO UPDATE SET {sets}"
    _execute(connection, model, list(rows), clause)


def _execute(connection: Connection, model: type[SQLModel], rows: list[Row], clause: str) -> None:
    """One executemany at the driver: SQLAlchemy's own costs five times as much per row."""
    if not rows:
        return
    columns = columns_of(model)
    marks = ", ".join([_mark(connection)] * len(columns))
    into = f'INSERT INTO "{table_of(model).name}" ({", ".join(_quoted(columns))})'
    if connection.dialect.name == "sqlite" and len(rows) >= _BLOCK_ROWS:
        rows = _insert_blocks(connection, into, rows, clause)
    if rows:
        connection.exec_driver_sql(f"{into} VALUES ({marks}) {clause}", rows)


def _insert_blocks(connection: Connection, into: str, rows: list[Row], clause: str) -> list[Row]:
    """Insert whole blocks of rows, and return those left over.

    Handing values over is most of what a row costs: what all rows share is handed over once for each block.
    """
    own = [place for place, values in enumerate(zip(*rows, strict=True)) if not _is_shared(values)]
    if len(own) < 2:
        return rows
    first = rows[0]
    names = iter(range(1, len(own) + 1))
    chosen = ", ".join(f"column{next(names)}" if place in own else "?" for place in range(len(first)))
    block = ", ".join([f"({', '.join('?' * len(own))})"] * _BLOCK_ROWS)
    shared = [value for place, value in enumerate(first) if place not in own]
    values, end = list(map(itemgetter(*own), rows)), len(rows) - len(rows) % _BLOCK_ROWS
    blocks = [
        (*shared, *chain.from_iterable(values[start : start + _BLOCK_ROWS]))
        for start in range(0, end, _BLOCK_ROWS)
    ]
    connection.exec_driver_sql(f"{into} SELECT {chosen} FROM (VALUES {block}) WHERE true {clause}", blocks)
    return rows[end:]


def _is_shared(values: Sequence[Any]) -> bool:
    """Test for one text, whole number or null in all rows."""
    first = values[0]
    if type(first) not in (str, int, NoneType) or values[-1] != first or values.count(first) < len(values):
        return False
    return type(first) is not int or set(map(type, values)) == {int}  # true equals 1


def _mark(connection: Connection) -> str:
    """Place of a parameter in a statement."""
    return "?" if connection.dialect.paramstyle == "qmark" else "%s"


def _quoted(names: Sequence[str]) -> list[str]:
    return [f'"{name}"' for name in names]
