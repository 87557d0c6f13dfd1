"""Strikes of assertions: failures to give verdicts."""

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, func, select

from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.commit import suspend
from outrider.dataops.state.rows import insert_rows
from outrider.dataops.state.tables import Strike, table_of

NOT_LOADED = "not_loaded"
DIED = "died"
_STRIKE = table_of(Strike)


def note_load_errors(connection: Connection, model: str, errors: Sequence[str], *, now_us: int) -> None:
    """Store load errors (``file: reason``) as strikes, each once."""
    query = select(_STRIKE.c.detail).where(_STRIKE.c.model == model, _STRIKE.c.reason == NOT_LOADED)
    known = set(connection.execute(query).scalars())
    rows = [
        (model, Path(error.partition(":")[0]).name, now_us, 0, NOT_LOADED, error, CHAMPION)
        for error in errors
        if error not in known
    ]
    insert_rows(connection, Strike, rows)


def strike_for_death(
    connection: Connection,
    model: str,
    assertion: str,
    *,
    seq: int,
    now_us: int,
    since_us: int,
    until_us: int,
    most: int,
) -> bool:
    """Blame an assertion for the worker's end after block ``seq``; True where ``most`` strikes since
    ``since_us`` suspend it until ``until_us``."""
    detail = "the worker process ended while it ran, or while its result was read"
    insert_rows(connection, Strike, [(model, assertion, now_us, seq, DIED, detail, CHAMPION)])
    own = (_STRIKE.c.model == model, _STRIKE.c.assertion == assertion, _STRIKE.c.slot == CHAMPION)
    strikes = connection.scalar(select(func.count()).where(*own, _STRIKE.c.at_us >= since_us))
    if (strikes or 0) < most:
        return False
    suspend(connection, model, assertion, until_us)
    return True


def newest_strikes(
    connection: Connection, model: str, *, after_seq: int, limit: int
) -> list[tuple[str, int]]:
    """Newest strikes of the champion's slot as (assertion, time), oldest first."""
    query = (
        select(_STRIKE.c.assertion, _STRIKE.c.at_us)
        .where(_STRIKE.c.model == model, _STRIKE.c.slot == CHAMPION, _STRIKE.c.seq > after_seq)
        .order_by(_STRIKE.c.id.desc())
        .limit(limit)
    )
    return [(row.assertion, row.at_us) for row in connection.execute(query).all()[::-1]]
