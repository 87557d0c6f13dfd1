"""Minutes of receipt of blocks."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
KEPT_US = 730 * DAY_US
"""Counts go after two years."""


def minute_of(us: int) -> int:
    """Start of the minute, as ``flag_count.minute_us``."""
    return us - us % MINUTE_US


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


def thin_minutes(connection: Connection, model: str, *, before_us: int) -> None:
    """Keep the first block of each hour before a time."""
    thin = (
        "DELETE FROM minute_block WHERE model = ? AND minute_us < ? AND seq NOT IN"
        f" (SELECT min(seq) FROM minute_block WHERE model = ? GROUP BY minute_us / {HOUR_US})"
    )
    connection.exec_driver_sql(thin, (model, before_us, model))
