"""Stored flags of one slot, and a replay's additions."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.commit import FlagRows
from outrider.dataops.state.rows import insert_rows
from outrider.dataops.state.tables import Flag, FlagRecord, WeakLabelRow, table_of

from .registered_assertions import OfferedRevision, add_revisions

_FLAG = table_of(Flag)


@dataclass(frozen=True, slots=True)
class StoredFlag:
    record_id: str
    version: str | None
    seq: int


def stored_flags(
    connection: Connection,
    model: str,
    assertion: str,
    revision: str,
    *,
    slot: str,
    after: int,
    until: int,
    since_us: int,
) -> list[StoredFlag]:
    query = select(_FLAG.c.record_id, _FLAG.c.version, _FLAG.c.seq).where(
        _FLAG.c.model == model,
        _FLAG.c.assertion == assertion,
        _FLAG.c.revision == revision,
        _FLAG.c.slot == slot,
        _FLAG.c.seq > after,
        _FLAG.c.seq <= until,
        _FLAG.c.ts_us >= since_us,
    )
    return [StoredFlag(*row) for row in connection.execute(query)]


def flagged_records(connection: Connection, model: str, *, first: int, last: int) -> set[str]:
    query = select(_FLAG.c.record_id).where(
        _FLAG.c.model == model, _FLAG.c.slot == CHAMPION, _FLAG.c.seq >= first, _FLAG.c.seq <= last
    )
    return set(connection.scalars(query))


def add_replayed(
    connection: Connection,
    model: str,
    offered: Sequence[OfferedRevision],
    found: FlagRows,
    *,
    now_us: int,
) -> int:
    """Store a replay's flags next to other revisions'; unknown revisions become inactive assertions.

    Returns the number of new flags.
    """
    before = _count(connection, model)
    add_revisions(connection, model, offered, is_active=False, now_us=now_us)
    insert_rows(connection, Flag, found.flags.rows())
    kept = set(found.flags["id"])
    for table, columns in ((FlagRecord, found.members), (WeakLabelRow, found.weak_labels)):
        insert_rows(connection, table, columns.where(flag in kept for flag in columns["flag_id"]).rows())
    return _count(connection, model) - before


def _count(connection: Connection, model: str) -> int:
    return int(connection.scalar(select(func.count()).where(_FLAG.c.model == model)) or 0)
