"""Minutes of receipt: of blocks, and of counts as these age."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
KEPT_US = 730 * DAY_US
"""Counts go after two years."""


def minute_of(us: int) -> int:
    """Start of the minute, as ``flag_count.minute_us``."""
    return us - us % MINUTE_US


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages up to which counts stand by the minute and the hour.

    Older ones stand by the day.
    """

    table: str
    minutes_us: int
    hours_us: int
    key: str
    numbers: str
    where: str = ""
    """Rows that are never put together."""

    def resolution_us(self, *, since_us: int, now_us: int) -> int:
        """Width of the coarsest counts from a time on."""
        if since_us < _day(now_us - self.hours_us):
            return DAY_US
        return HOUR_US if since_us < _cut(now_us, self.minutes_us) else MINUTE_US


_SHARED = "model, version, slice"
RECORDS = Ages("record_count", 14 * DAY_US, 90 * DAY_US, _SHARED, "records, entities")
FLAGS = Ages(
    "flag_count", 14 * DAY_US, 90 * DAY_US, f"{_SHARED}, slot, assertion, revision", "flags, kept, entities",
    "kept = flags",
)  # fmt: skip
"""Minutes of a storm stay: an absent flag says nothing in them."""
MEASURES = Ages(
    "measure_count", 3 * HOUR_US, 14 * DAY_US, f"{_SHARED}, measure, bucket",
    "records, weight, squares, total",
)  # fmt: skip
OUTCOMES = Ages(
    "outcome_count", 3 * HOUR_US, 14 * DAY_US, f"{_SHARED}, predicted, label, hit, bucket",
    "records, weight, squares, confidence, brier",
)  # fmt: skip
GROUPS = Ages(
    "group_count", 3 * HOUR_US, 14 * DAY_US,
    "model, attribute, version, part, is_labelled, predicted, label, hit",
    "records, entities, weight, squares",
)  # fmt: skip
SCORES = Ages(
    "score_count", 3 * HOUR_US, 14 * DAY_US, f"{_SHARED}, of_class, place, bucket, is_label",
    "records, weight, squares",
)  # fmt: skip
FINE, COARSE = (MEASURES, OUTCOMES, GROUPS, SCORES), (RECORDS, FLAGS)


def note_minutes(connection: Connection, model: str, received: Mapping[int, int]) -> None:
    """Note the first block of each minute, as blocks are judged.

    Parameters
    ----------
    received
        Receive time of each block.
    """
    first: dict[int, int] = {}
    for seq in sorted(received):
        first.setdefault(minute_of(received[seq]), seq)
    before = "SELECT minute_us FROM minute_block WHERE model = ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
    for minute, seq in first.items():
        if connection.exec_driver_sql(before, (model, seq)).scalar() != minute:
            insert = "INSERT OR REPLACE INTO minute_block VALUES (?, ?, ?)"
            connection.exec_driver_sql(insert, (model, seq, minute))


def minutes_of(connection: Connection, model: str, blocks: Iterable[int]) -> dict[int, int]:
    """Minute of receipt of blocks, where noted."""
    wanted = sorted(set(blocks))
    if not wanted:
        return {}
    query = (
        "SELECT seq, minute_us FROM minute_block WHERE model = ? AND seq <= ? AND seq >= coalesce("
        "(SELECT max(seq) FROM minute_block WHERE model = ? AND seq <= ?), 0) ORDER BY seq"
    )
    rows = connection.exec_driver_sql(query, (model, wanted[-1], model, wanted[0])).all()
    starts = [row.seq for row in rows]
    places = {seq: bisect_right(starts, seq) - 1 for seq in wanted}
    return {seq: rows[at].minute_us for seq, at in places.items() if at >= 0}


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
    for ages in (*FINE, *COARSE) if is_new_day else FINE:
        _merge(connection, ages, model, HOUR_US, _cut(now_us, ages.minutes_us))
        if is_new_day:
            _merge(connection, ages, model, DAY_US, _day(now_us - ages.hours_us))
            gone = f"DELETE FROM {ages.table} WHERE model = ? AND minute_us < ?"
            connection.exec_driver_sql(gone, (model, now_us - KEPT_US))
    if is_new_day:
        thin = (
            "DELETE FROM minute_block WHERE model = ? AND minute_us < ? AND seq NOT IN"
            f" (SELECT min(seq) FROM minute_block WHERE model = ? GROUP BY minute_us / {HOUR_US})"
        )
        connection.exec_driver_sql(thin, (model, _day(now_us - RECORDS.minutes_us), model))


def _merge(connection: Connection, ages: Ages, model: str, width_us: int, until_us: int) -> None:
    """Add rows of a table before a time to those at the start of their hour or day."""
    where = f"model = ? AND minute_us < ? AND minute_us % {width_us} != 0"
    where += f" AND {ages.where}" if ages.where else ""
    numbers = ages.numbers.split(", ")
    sums = ", ".join(f"sum({one})" for one in numbers)
    added = ", ".join(f"{one} = {one} + excluded.{one}" for one in numbers)
    start = f"minute_us - minute_us % {width_us}"
    connection.exec_driver_sql(
        f"INSERT INTO {ages.table} ({ages.key}, minute_us, {ages.numbers}) "
        f"SELECT {ages.key}, {start}, {sums} FROM {ages.table} WHERE {where} "
        f"GROUP BY {ages.key}, {start} ON CONFLICT ({ages.key}, minute_us) DO UPDATE SET {added}",
        (model, until_us),
    )
    connection.exec_driver_sql(f"DELETE FROM {ages.table} WHERE {where}", (model, until_us))


def _cut(now_us: int, kept_us: int) -> int:
    return (now_us - kept_us) // HOUR_US * HOUR_US


def _day(us: int) -> int:
    return us // DAY_US * DAY_US
