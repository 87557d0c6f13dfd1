"""Pauses of shadow models and live tests; capture goes on.

A pause is a row that the worker follows, so it outlives restarts and nobody has to hold a connection open.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from sqlalchemy import Connection, select

from outrider.errors import NotFound

from .rows import insert_rows
from .tables import Pause, table_of

What = Literal["shadow", "live-tests"]
WHAT: tuple[What, ...] = get_args(What)
EVERY_MODEL = ""

_PAUSE = table_of(Pause)


@dataclass(frozen=True, slots=True)
class PauseRow:
    """Pause; ``model`` is ``""`` for every model."""

    model: str
    what: str
    who: str
    since_us: int


@dataclass(frozen=True, slots=True)
class Paused:
    """Pauses in force now.

    Examples
    --------
    >>> now = Paused.of([PauseRow("", "live-tests", "ann", 0), PauseRow("churn", "shadow", "ann", 0)])
    >>> now.holds("churn", "shadow"), now.holds("fraud", "shadow"), now.holds("fraud", "live-tests")
    (True, False, True)
    """

    rows: frozenset[tuple[str, str]] = field(default_factory=frozenset)

    @classmethod
    def of(cls, rows: Iterable[PauseRow]) -> "Paused":
        """From the rows of the table."""
        return cls(frozenset((row.model, row.what) for row in rows))

    def holds(self, model: str, what: What) -> bool:
        """Test for a pause of a model, or of every model."""
        return (model, what) in self.rows or (EVERY_MODEL, what) in self.rows


def list_pauses(connection: Connection) -> list[PauseRow]:
    """Every pause, oldest first."""
    query = select(_PAUSE).order_by(_PAUSE.c.since_us, _PAUSE.c.model, _PAUSE.c.what)
    return [PauseRow(**row._mapping) for row in connection.execute(query)]


def pause(connection: Connection, what: What, *, model: str, who: str, now_us: int) -> PauseRow:
    """Pause; an earlier pause stands.

    Parameters
    ----------
    model
        ``""`` for every model.
    """
    insert_rows(connection, Pause, [(model, what, who, now_us)])
    return next(row for row in list_pauses(connection) if (row.model, row.what) == (model, what))


def resume(connection: Connection, what: What, *, model: str) -> list[PauseRow]:
    """End and return pauses of a kind, without a model all.

    Raises
    ------
    NotFound
        If it is not paused, or paused for every model and not for this one alone.
    """
    rows = [row for row in list_pauses(connection) if row.what == what]
    ended = [row for row in rows if model in (EVERY_MODEL, row.model)]
    if not ended:
        if rows and any(row.model == EVERY_MODEL for row in rows):
            raise NotFound(f"{what} is paused for every model, not for {model} alone: resume it for all")
        where = f" of {model}" if model else ""
        raise NotFound(f"{what}{where} is not paused; GET /v1/pauses lists what is")
    keys = {row.model for row in ended}
    connection.execute(_PAUSE.delete().where(_PAUSE.c.what == what, _PAUSE.c.model.in_(keys)))
    return ended
