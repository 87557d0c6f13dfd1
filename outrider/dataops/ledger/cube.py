"""Counts by dimensions: one table each, and one way to change and read.

A cube's dimensions are the key of its table, and its sums are the other columns.
"""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, Table, func, select

from outrider.dataops.state.series_tables import GroupCount, LossCount, MeasureCount, OutcomeCount, ScoreCount
from outrider.dataops.state.tables import FlagCount, RecordCount, VersionCount, table_of

from .backfill import CHAMPION
from .minutes import DAY_US, HOUR_US, KEPT_US, MINUTE_US, thin_minutes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)
FINE_US, COARSE_US = (3 * HOUR_US, 14 * DAY_US), (14 * DAY_US, 90 * DAY_US)
"""Ages up to which cells are of a minute, and of an hour; older ones are of a day."""


@dataclass(frozen=True, slots=True)
class Cube:
    """Counts of one table."""

    table: Table
    ages_us: tuple[int, int] | None = None
    """None for cells without a minute, or of the last hour alone."""
    aging: str = ""
    """Condition on cells that are put together as they age."""

    @property
    def dimensions(self) -> list[str]:
        """Columns of the key, in order."""
        return [column.name for column in self.table.primary_key]

    @property
    def sums(self) -> list[str]:
        """Columns that add up."""
        return [column.name for column in self.table.c if not column.primary_key]

    def resolution_us(self, *, since_us: int, now_us: int) -> int:
        """Width of the coarsest cells from a time on."""
        if self.ages_us is None:
            return MINUTE_US
        of_minutes, of_hours = self.ages_us
        if since_us < _start(now_us - of_hours, DAY_US):
            return DAY_US
        return HOUR_US if since_us < _start(now_us - of_minutes, HOUR_US) else MINUTE_US

    # ---- reading ---------------------------------------------------------------------------------------

    def query(
        self,
        model: str,
        *by: str | ColumnElement[Any],
        sums: Sequence[str] = (),
        since_us: int | None = None,
        until_us: int | None = None,
        of: Mapping[str, Any] | None = None,
    ) -> Select[*tuple[Any, ...]]:
        """Sums of a model's cells, by dimensions.

        Parameters
        ----------
        since_us, until_us
            First minute, and the one behind the last.
        of
            Values of dimensions: one, several, or None for all.
        """
        cells = self.table.c
        where = [cells.model == model]
        where += [] if since_us is None else [cells.minute_us >= since_us]
        where += [] if until_us is None else [cells.minute_us < until_us]
        for name, value in (of or {}).items():
            if value is not None:
                where.append(cells[name].in_(value) if isinstance(value, tuple) else cells[name] == value)
        keys = [cells[one] if isinstance(one, str) else one for one in by]
        columns = [func.sum(cells[name]).label(name) for name in sums]
        return select(*keys, *columns).where(*where).group_by(*keys)

    def step(self, width_us: int, since_us: int = 0) -> ColumnElement[int]:
        """Number of a cell's step of time, as ``step``."""
        found: ColumnElement[int] = ((self.table.c.minute_us - since_us) // width_us).label("step")
        return found

    def first(self, connection: Connection, model: str, *, since_us: int = 0) -> int | None:
        """First minute of a model's cells from a time on, or None."""
        minute = self.table.c.minute_us
        found: int | None = connection.scalar(
            select(func.min(minute)).where(self.table.c.model == model, minute >= since_us)
        )
        return found

    def last(self, connection: Connection, model: str, *, until_us: int | None = None) -> int | None:
        """Last minute of a model's cells up to a time, or None."""
        minute = self.table.c.minute_us
        own = [self.table.c.model == model, *([] if until_us is None else [minute <= until_us])]
        found: int | None = connection.scalar(select(func.max(minute)).where(*own))
        return found

    # ---- changing --------------------------------------------------------------------------------------

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

    def drop_empty(self, connection: Connection, model: str, minutes: Iterable[int]) -> None:
        """Drop cells of minutes whose records were all taken off."""
        connection.exec_driver_sql(
            f"DELETE FROM {self.table.name} WHERE model = ? AND records = 0"
            " AND minute_us IN (SELECT value FROM json_each(?))",
            (model, json.dumps(sorted(set(minutes)))),
        )

    def join(self, connection: Connection, model: str, width_us: int, until_us: int) -> None:
        """Put cells before a time together by the hour or day."""
        where = f"model = :model AND minute_us < :until AND minute_us % {width_us} != 0"
        where += f" AND {self.aging}" if self.aging else ""
        start = {"minute_us": f"minute_us - minute_us % {width_us}"}
        self.move(connection, start, where, {"model": model, "until": until_us})


RECORDS = Cube(table_of(RecordCount), COARSE_US)
FLAGS = Cube(table_of(FlagCount), COARSE_US, "kept = flags")
"""Minutes of a storm stay: an absent flag says nothing in them."""
MEASURES = Cube(table_of(MeasureCount), FINE_US)
OUTCOMES = Cube(table_of(OutcomeCount), FINE_US)
GROUPS = Cube(table_of(GroupCount), FINE_US)
SCORES = Cube(table_of(ScoreCount), FINE_US)
LOSSES = Cube(table_of(LossCount))
STATED = Cube(table_of(VersionCount))
LABELLED = (OUTCOMES, MEASURES, GROUPS, SCORES)
"""Changed by labels."""
AGING = (*LABELLED, RECORDS, FLAGS)


def roll_up(connection: Connection, model: str, *, before_us: int, now_us: int) -> None:
    """Put old minutes together by the hour, old hours by the day.

    Parameters
    ----------
    before_us
        When it was last done: where no hour, or no day, has begun since, there is nothing to do.
    """
    if before_us // HOUR_US == now_us // HOUR_US:
        return
    is_new_day = before_us // DAY_US != now_us // DAY_US
    for cube in AGING:
        of_minutes, of_hours = cube.ages_us or FINE_US
        if is_new_day or cube in LABELLED:
            cube.join(connection, model, HOUR_US, _start(now_us - of_minutes, HOUR_US))
        if is_new_day:
            cube.join(connection, model, DAY_US, _start(now_us - of_hours, DAY_US))
            gone = f"DELETE FROM {cube.table.name} WHERE model = ? AND minute_us < ?"
            connection.exec_driver_sql(gone, (model, now_us - KEPT_US))
    if is_new_day:
        thin_minutes(connection, model, before_us=_start(now_us - COARSE_US[0], DAY_US))


def distinct(keys: Iterable[Key]) -> tuple[list[Key], Integers]:
    """Distinct keys in order, and the place of each key among these."""
    found: dict[Key, int] = {}
    places = [found.setdefault(key, len(found)) for key in keys]
    return list(found), np.array(places, dtype=np.int64)


def summed(
    dimensions: Sequence[Integers], terms: Sequence[Floats]
) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Cells of records by numbers, with the sums of terms.

    Examples
    --------
    >>> numbers = [np.array([0, 2, 0]), np.array([-1, 0, -1])]
    >>> list(summed(numbers, [np.array([1.0, 1.0, 0.5])]))
    [((0, -1), (1.5,)), ((2, 0), (1.0,))]
    """
    if not len(dimensions[0]):
        return
    least = [one.min() for one in dimensions]
    shape = [int(one.max() - low) + 1 for one, low in zip(dimensions, least, strict=True)]
    codes = np.ravel_multi_index([one - low for one, low in zip(dimensions, least, strict=True)], shape)
    cells, at = np.unique(codes, return_inverse=True)
    numbers = (one + low for one, low in zip(np.unravel_index(cells, shape), least, strict=True))
    sums = (np.bincount(at, weights=one) for one in terms)
    yield from zip(
        zip(*(one.tolist() for one in numbers), strict=True),
        zip(*(one.tolist() for one in sums), strict=True),
        strict=True,
    )


def flags_of(assertion: str | None, **of: str | None) -> dict[str, str | None]:
    """Values of dimensions of the champion's flags, for :meth:`Cube.query`."""
    return {"slot": CHAMPION, "assertion": assertion, **of}


def _start(us: int, width_us: int) -> int:
    return us // width_us * width_us
