"""Ranges that the champion skipped or owes answers to, judged later.

A range is written with the cursor's move and advanced with the verdicts on its blocks, so each block is
judged once, whatever dies in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from outrider.dataops.state.tables import Backfill, table_of

_BACKFILL = table_of(Backfill)
CHAMPION = "champion"
SLOW, OWED = "slo", "no answer"
"""Reasons: too old for the objective, or not answered by the champion."""
SLOT = "backfill"
"""Slot of the judgement of skipped blocks; its findings are the champion's."""


@dataclass(frozen=True, slots=True)
class SkippedBlocks:
    """Blocks with ``after_seq < seq <= until_seq`` that were skipped."""

    id: int
    model: str
    reason: str
    after_seq: int
    until_seq: int
    records: int
    at_seq: int
    passed: int
    """Last block judged since, and the records up to it that the journal still had."""
    version: str | None
    """Champion that judges it; None before the first, or where production alone has the model."""
    created_us: int
    done_us: int | None
    """Times of the skip and of the last verdict, µs since the epoch."""


def skip(
    connection: Connection, model: str, *, after_seq: int, until_seq: int, records: int, now_us: int,
    version: str | None, reason: str = SLOW, passed: int = 0,
) -> None:  # fmt: skip
    row = {
        "model": model, "slot": CHAMPION, "reason": reason, "after_seq": after_seq, "until_seq": until_seq,
        "records": records, "at_seq": after_seq, "passed": passed, "version": version, "created_us": now_us,
    }  # fmt: skip
    connection.execute(_BACKFILL.insert().values(row))


def extend(connection: Connection, gap: SkippedBlocks, *, until_seq: int, records: int) -> None:
    values = {"until_seq": until_seq, "records": gap.records + records}
    connection.execute(_BACKFILL.update().where(_BACKFILL.c.id == gap.id).values(values))


def advance(
    connection: Connection, gap: SkippedBlocks, *, at_seq: int, passed: int, done_us: int | None = None
) -> None:
    values = {"at_seq": at_seq, "passed": passed, "done_us": done_us}
    connection.execute(_BACKFILL.update().where(_BACKFILL.c.id == gap.id).values(values))


def hand_over(connection: Connection, gap: SkippedBlocks, version: str | None, *, now_us: int) -> None:
    """Let another version judge the rest of a range, no row twice."""
    if gap.at_seq == gap.after_seq:
        connection.execute(_BACKFILL.update().where(_BACKFILL.c.id == gap.id).values(version=version))
        return
    done = {"until_seq": gap.at_seq, "records": gap.passed, "done_us": now_us}
    connection.execute(_BACKFILL.update().where(_BACKFILL.c.id == gap.id).values(done))
    skip(
        connection, gap.model, after_seq=gap.at_seq, until_seq=gap.until_seq,
        records=gap.records - gap.passed, now_us=gap.created_us, version=version, reason=gap.reason,
    )  # fmt: skip


def gaps(connection: Connection, model: str) -> list[SkippedBlocks]:
    query = select(*(column for column in _BACKFILL.c if column.name != "slot")).where(
        _BACKFILL.c.model == model, _BACKFILL.c.slot == CHAMPION
    )
    rows = connection.execute(query.order_by(_BACKFILL.c.after_seq))
    return [SkippedBlocks(**row._mapping) for row in rows]


def open_gaps(connection: Connection) -> list[SkippedBlocks]:
    """Unfinished ranges of all models, which expiry may not overtake."""
    query = select(*(column for column in _BACKFILL.c if column.name != "slot")).where(
        _BACKFILL.c.done_us.is_(None)
    )
    return [
        SkippedBlocks(**row._mapping) for row in connection.execute(query.order_by(_BACKFILL.c.after_seq))
    ]


def end_of_gap(known: Sequence[SkippedBlocks], at: int) -> int | None:
    """Last block of the stretch skipped at cursor ``at``, else None.

    Examples
    --------
    >>> known = [SkippedBlocks(n, "m", "slo", n, n + 2, 9, n, 0, None, 0, None) for n in (3, 5)]
    >>> end_of_gap(known, 3), end_of_gap(known, 2)
    (7, None)
    """
    end = None
    for gap in known:
        if gap.after_seq <= (at if end is None else end) < gap.until_seq:
            end = gap.until_seq
    return end


def before_gap(known: Sequence[SkippedBlocks], at: int, until: int) -> int:
    return min([until, *(gap.after_seq for gap in known if at <= gap.after_seq)])


def restarted(known: Sequence[SkippedBlocks], at: int) -> tuple[int, int]:
    """End and time of the last jump up to ``at``, where windows restarted, or zeros."""
    found = [(gap.until_seq, gap.created_us) for gap in known if gap.until_seq <= at]
    return found[-1] if found else (0, 0)


def stretches(known: Sequence[SkippedBlocks], after: int, until: int) -> Iterator[tuple[int, int]]:
    """Judged stretches between jumps as (after, until)."""
    for gap in known:
        if gap.until_seq <= after or gap.after_seq >= until:
            continue
        if gap.after_seq > after:
            yield after, gap.after_seq
        after = max(after, gap.until_seq)
    if after < until:
        yield after, until
