"""Records and flags over time, from the exact counts per minute."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Select, func, literal, select

from outrider.assertions.statistics.performance import QUANTILE, UNKNOWN, Estimated
from outrider.assertions.statistics.wilson import wilson_limits
from outrider.dataops.ledger.cube import FLAGS, MEASURES, RECORDS, Cube, flags_of
from outrider.dataops.ledger.minutes import DAY_US
from outrider.dataops.state.tables import AssertionRow, table_of

from .figures import SeriesKey, SeriesRow, counted
from .span import SeriesSpan

CHAMPION = "champion"
MOST_SLICES = 12
"""Slices that have series of their own at once; others are asked for by name."""
_FLAG, _ASSERTION = FLAGS.table, table_of(AssertionRow)
VersionSlice = tuple[str, str | None]
"""Version, and slice or None for all."""
Steps = dict[int, int]
"""Number by step."""
Counted = Literal["records", "entities"]


@dataclass(frozen=True, slots=True)
class SeriesCut:
    """Model and the cut of its counts."""

    model: str
    version: str | None = None
    """Series of this judged version alone."""
    slice: str | None = None
    """Records of this slice alone; ``""`` are those without one."""
    by_slice: bool = False
    name: str | None = None
    """Assertion, live test or challenger."""
    slices: tuple[str, ...] | None = None
    """Slices that have series of their own; None for all."""

    @property
    def is_by_slice(self) -> bool:
        """True where each slice has a series of its own."""
        return self.by_slice and self.slice is None

    def query(
        self,
        cube: Cube,
        span: SeriesSpan,
        *by: str | ColumnElement[Any],
        sums: Sequence[str] = (),
        of: Mapping[str, Any] | None = None,
    ) -> Select[*tuple[Any, ...]]:
        """Sums of a cube's cells in a range."""
        part = self.slices if self.is_by_slice else self.slice
        cut = {"version": self.version, "slice": part, **(of or {})}
        since_us, until_us = span.since_us, span.until_us
        return cube.query(self.model, *by, sums=sums, since_us=since_us, until_us=until_us, of=cut)

    def steps(
        self,
        cube: Cube,
        span: SeriesSpan,
        *by: str,
        sums: Sequence[str],
        of: Mapping[str, Any] | None = None,
    ) -> Select[*tuple[Any, ...]]:
        """Sums of a cube's cells by version, part and step."""
        part = self.part(cube.table).label("part")
        return self.query(cube, span, "version", part, step_of(cube.table, span), *by, sums=sums, of=of)

    def part(self, table: Any) -> Any:
        """Column of the slice, null where all are put together."""
        if self.slice is not None:
            return literal(self.slice)
        return table.c.slice if self.by_slice else literal(None)


def step_of(table: Any, span: SeriesSpan) -> Any:
    """Number of a minute's step."""
    return ((table.c.minute_us - span.since_us) // span.step_us).label("step")


def first_minute(connection: Connection, model: str) -> int | None:
    """Minute of a model's first counted records; None without any."""
    return RECORDS.first(connection, model)


def last_minute(connection: Connection, model: str, *, now_us: int) -> int | None:
    """Minute of a model's newest counted records, or None.

    Later ones are of a clock that was set back since.
    """
    return RECORDS.last(connection, model, until_us=now_us)


def with_largest_slices(connection: Connection, wanted: SeriesCut, span: SeriesSpan) -> tuple[SeriesCut, int]:
    """The cut with its largest slices, and the number left out.

    By the records of the newest day of the range.
    """
    if not wanted.is_by_slice:
        return wanted, 0
    cells = RECORDS.table.c
    newest = connection.scalar(wanted.query(RECORDS, span).with_only_columns(func.max(cells.minute_us)))
    query = (
        wanted.query(RECORDS, span, "slice")
        .where(cells.minute_us >= (newest or 0) - DAY_US)
        .order_by(func.sum(cells.records).desc(), cells.slice)
    )
    slices = connection.scalars(query).all()
    return replace(wanted, slices=tuple(slices[:MOST_SLICES])), max(0, len(slices) - MOST_SLICES)


def record_steps(
    connection: Connection, wanted: SeriesCut, span: SeriesSpan, *, counted: Counted = "records"
) -> dict[VersionSlice, Steps]:
    """Records, or entities, of the champion's slot by version, slice and step."""
    counts = _by_minute(RECORDS, wanted, span, sums=(counted,)).subquery()
    keys = counts.c.version, wanted.part(counts).label("part"), step_of(counts, span)
    return _by_part(connection, select(*keys, func.sum(counts.c[counted])).group_by(*keys))


def record_series(connection: Connection, wanted: SeriesCut, span: SeriesSpan) -> list[SeriesRow]:
    """Records over time, one series per judged version."""
    return [
        SeriesRow(
            SeriesKey("records", "count", "records", "", version, part),
            [counted(steps.get(at, 0)) for at in range(span.steps)],
            counted(sum(steps.values())),
        )
        for (version, part), steps in sorted(record_steps(connection, wanted, span).items(), key=_order)
    ]


def flag_series(connection: Connection, wanted: SeriesCut, span: SeriesSpan) -> list[SeriesRow]:
    """Share of flagged records over time, per assertion and judged version.

    Of challengers too: of the records that their slots judged.
    """
    names = _assertions(connection, wanted)
    if not names:
        return []
    of = {"slot": tuple(_slots(connection, wanted.model)), "assertion": tuple(names)}
    counts = _by_minute(FLAGS, wanted, span, "slot", "assertion", sums=("flags",), of=of).subquery()
    is_champion, part = (counts.c.slot == CHAMPION).label("is_champion"), wanted.part(counts).label("part")
    keys = counts.c.assertion, is_champion, counts.c.version, part, step_of(counts, span)
    query = select(*keys, func.sum(counts.c.flags).label("n")).group_by(*keys)
    flags: dict[tuple[str, bool, VersionSlice], Steps] = {}
    for row in connection.execute(query):
        own = row.assertion, bool(row.is_champion), (row.version, row.part)
        flags.setdefault(own, {})[row.step] = int(row.n)
    beside = wanted.steps(MEASURES, span, sums=("records",), of={"measure": "judged"})
    judged = {True: record_steps(connection, wanted, span), False: _by_part(connection, beside)}
    return [
        _share_series(name, of, flags.get((name, is_own, of), {}), records, span, is_own)
        for name in names
        for is_own, by_part in judged.items()
        for of, records in sorted(by_part.items(), key=_order)
        if is_own or (name, is_own, of) in flags
    ]


def flagged_series(connection: Connection, wanted: SeriesCut, span: SeriesSpan) -> list[SeriesRow]:
    """Share of entities that one assertion flags.

    Each counts once a minute, as in alarms.

    Parameters
    ----------
    wanted
        With the assertion's name.
    """
    own = flags_of(wanted.name or "")
    flagged = _by_part(connection, wanted.steps(FLAGS, span, sums=("entities",), of=own))
    seen = record_steps(connection, wanted, span, counted="entities")
    found = []
    for of, steps in sorted(seen.items(), key=_order):
        # One seen first by another version is no entity of this one, but may be flagged as its own.
        hits = {at: min(count, steps.get(at, 0)) for at, count in flagged.get(of, {}).items()}
        key = SeriesKey("flagged", "share", "of entities", wanted.name or "", *of)
        points = [share(hits.get(at, 0), steps.get(at, 0)) for at in range(span.steps)]
        found.append(SeriesRow(key, points, share(sum(hits.values()), sum(steps.values()))))
    return found


def share(hits: int, trials: int) -> Estimated:
    """Share with Wilson's interval; above 1 where events give more flags."""
    if trials <= 0:
        return UNKNOWN
    low, high = wilson_limits(min(hits / trials, 1.0), float(trials), QUANTILE)
    return Estimated(hits / trials, low, max(high, hits / trials), trials, float(trials))


def _share_series(
    name: str,
    of: VersionSlice,
    flags: Mapping[int, int],
    records: Mapping[int, int],
    span: SeriesSpan,
    is_own: bool,
) -> SeriesRow:
    measure = "flags" if is_own else "challenger_flags"
    points = [share(flags.get(at, 0), records.get(at, 0)) for at in range(span.steps)]
    whole = share(sum(flags.values()), sum(records.values()))
    return SeriesRow(SeriesKey(measure, "share", "flags per record", name, *of), points, whole)


def _by_minute(
    cube: Cube,
    wanted: SeriesCut,
    span: SeriesSpan,
    *before: str,
    sums: Sequence[str],
    of: Mapping[str, Any] | None = None,
) -> Select[*tuple[Any, ...]]:
    """Counts by minute in the order of a table's key: summed as they are read, without a sort.

    Parameters
    ----------
    before
        Columns of the key between model and minute.
    """
    by = *before, "minute_us", "version", *(["slice"] if wanted.is_by_slice else [])
    return wanted.query(cube, span, *by, sums=sums, of=of)


def _by_part(connection: Connection, query: Select[*tuple[Any, ...]]) -> dict[VersionSlice, Steps]:
    found: dict[VersionSlice, Steps] = {}
    for version, part, step, count in connection.execute(query):
        found.setdefault((version, part), {})[step] = int(count)
    return found


def _assertions(connection: Connection, wanted: SeriesCut) -> list[str]:
    """Assertions that judge now, or the one that is asked for; live tests have rates of their own."""
    own = [_ASSERTION.c.model == wanted.model, _ASSERTION.c.kind == "assertion"]
    own.append(_ASSERTION.c.active if wanted.name is None else _ASSERTION.c.name == wanted.name)
    return sorted(connection.scalars(select(_ASSERTION.c.name).where(*own).distinct()))


def _slots(connection: Connection, model: str) -> Collection[str]:
    """Slots with flags, found without reading the counts."""
    found: list[str] = []
    after = ""
    while True:
        query = select(func.min(_FLAG.c.slot)).where(_FLAG.c.model == model, _FLAG.c.slot > after)
        slot = connection.scalar(query)
        if slot is None:
            return found
        found.append(slot)
        after = slot


def _order(item: tuple[VersionSlice, Any]) -> tuple[str, str]:
    (version, part), _ = item
    return version, part or ""
