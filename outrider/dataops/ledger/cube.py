"""Counts by dimensions: one table each, declared by its columns."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Table
from sqlmodel import SQLModel

from outrider.dataops.state.tables import table_of


@dataclass(frozen=True, slots=True)
class Cube:
    """Counts in a table: dimensions are its key, other columns are sums."""

    table: Table

    @classmethod
    def of(cls, model: type[SQLModel]) -> "Cube":
        """Cube of a table's class."""
        return cls(table_of(model))

    @property
    def dimensions(self) -> list[str]:
        """Columns of the key, in order."""
        return [column.name for column in self.table.primary_key]

    @property
    def sums(self) -> list[str]:
        """Columns that add up."""
        return [column.name for column in self.table.c if not column.primary_key]

    def move(
        self, connection: Connection, to: Mapping[str, str], where: str, given: Mapping[str, object]
    ) -> None:
        """Add cells to others under new values of some dimensions.

        Parameters
        ----------
        to
            SQL for the new value of each dimension that changes.
        where
            Condition on the cells that go; none of those that they are added to meets it.
        """
        name = self.table.name
        kept = [one for one in self.dimensions if one not in to]
        columns = ", ".join([*kept, *to, *self.sums])
        values = ", ".join([*kept, *to.values(), *(f"sum({one})" for one in self.sums)])
        added = ", ".join(f"{one} = {one} + excluded.{one}" for one in self.sums)
        connection.exec_driver_sql(
            f"INSERT INTO {name} ({columns}) SELECT {values} FROM {name} WHERE {where} "
            f"GROUP BY {', '.join([*kept, *to.values()])} "
            f"ON CONFLICT ({', '.join(self.dimensions)}) DO UPDATE SET {added}",
            dict(given),
        )
        connection.exec_driver_sql(f"DELETE FROM {name} WHERE {where}", dict(given))
