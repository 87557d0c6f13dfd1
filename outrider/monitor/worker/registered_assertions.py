"""Rows of registered assertions, their suspensions and strikes, as the worker reads and writes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, select

from outrider.dataops.flags.quality import FOREVER_US
from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.state.rows import STRIKE, insert_rows
from outrider.dataops.state.tables import AssertionRow, ModelVersion, Strike, table_of
from outrider.monitor.host.client import Offered

NOT_LOADED = "not_loaded"
"""Reason of strikes of files that gave nothing."""
ASSERTION = (
    "model",
    "name",
    "revision",
    "kind",
    "level",
    "description",
    "owner",
    "active",
    "suspended_until_us",
    "first_seen_us",
    "first_seq",
    "definition",
)


@dataclass(frozen=True, slots=True)
class Suspension:
    """A suspended assertion; ``reason`` is empty where its strikes suspended it."""

    model: str
    assertion: str
    until_us: int
    reason: str


def register_offered(
    connection: Connection, model: str, offered: Sequence[Offered], *, first_seq: int, now_us: int
) -> None:
    """Store the host's manifest: new revisions begin unsuspended, those no longer offered become inactive.

    Parameters
    ----------
    first_seq
        Last journal block that was judged before new revisions came.
    """
    table = table_of(AssertionRow)
    connection.execute(table.update().where(table.c.model == model).values(active=False))
    seen = now_us, first_seq
    rows = [
        (model, o.name, o.revision, o.kind, o.level, o.description, o.owner, True, 0, *seen, o.definition)
        for o in offered
    ]
    insert_rows(connection, AssertionRow, ASSERTION, rows)
    for each in offered:
        connection.execute(
            table.update()
            .where(table.c.model == model, table.c.name == each.name, table.c.revision == each.revision)
            .values(active=True, definition=each.definition)
        )


def note_load_errors(connection: Connection, model: str, errors: Sequence[str], *, now_us: int) -> None:
    """Store errors of files that gave nothing as strikes, each once."""
    table = table_of(Strike)
    query = select(table.c.detail).where(table.c.model == model, table.c.reason == NOT_LOADED)
    known = set(connection.execute(query).scalars())
    rows = [
        (model, Path(error.partition(":")[0]).name, now_us, 0, NOT_LOADED, error, CHAMPION)
        for error in errors
        if error not in known
    ]
    insert_rows(connection, Strike, STRIKE, rows)


def newest_strikes(
    connection: Connection, model: str, *, after_seq: int, limit: int
) -> list[tuple[str, int]]:
    """Assertion and time of the newest strikes at the champion's slot, oldest first."""
    strikes = table_of(Strike)
    recent = connection.execute(
        select(strikes.c.assertion, strikes.c.at_us)
        .where(strikes.c.model == model, strikes.c.slot == CHAMPION, strikes.c.seq > after_seq)
        .order_by(strikes.c.id.desc())
        .limit(limit)
    ).all()
    return [(row.assertion, row.at_us) for row in reversed(recent)]


def suspensions(connection: Connection, model: str | None = None) -> list[Suspension]:
    """Suspensions of active assertions, of all models or one; some may be over."""
    table = table_of(AssertionRow)
    query = select(table.c.model, table.c.name, table.c.suspended_until_us, table.c.suspension).where(
        table.c.active, table.c.suspended_until_us > 0
    )
    if model is not None:
        query = query.where(table.c.model == model)
    return [Suspension(*row) for row in connection.execute(query)]


def shift_suspensions(connection: Connection, model: str, *, by_us: int) -> None:
    """Let suspensions last as long as they would have, by a clock that was set."""
    table = table_of(AssertionRow)
    until = table.c.suspended_until_us
    ends = (table.c.model == model) & (until > 0) & (until < FOREVER_US)
    connection.execute(table.update().where(ends).values(suspended_until_us=until + by_us))


def versions_in_service(connection: Connection) -> Sequence[Row[Any, Any, Any]]:
    """Champion and challengers of every model: ``model``, ``version`` and ``status``."""
    table = table_of(ModelVersion)
    query = select(table.c.model, table.c.version, table.c.status).where(
        table.c.status.in_(("champion", "challenger"))
    )
    return connection.execute(query).all()
