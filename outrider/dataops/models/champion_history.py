"""Append-only history of champions, with actors and reasons."""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, insert, select

from outrider.dataops.state.improvement_tables import ChampionChange
from outrider.dataops.state.tables import table_of

Action = Literal["registered", "promoted", "overridden", "rolled_back"]
"""How a version became champion; ``overridden`` is a promotion past the gate."""
_CHANGE = table_of(ChampionChange)


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Change of a model's champion."""

    seq: int
    model: str
    version: str
    replaced: str | None
    action: str
    by: str
    """Name of the requesting key, or ``gate``, ``watch``, ``configuration``."""
    reason: str
    verdict: str | None
    """Newest verdict of the gate on the version at that time."""
    at_us: int
    until_us: int | None = None
    """Time of the next change; None for the champion."""


def note_change(
    connection: Connection,
    *,
    model: str,
    version: str,
    replaced: str | None,
    action: Action,
    by: str,
    reason: str,
    verdict: str | None,
    now_us: int,
) -> None:
    connection.execute(
        insert(_CHANGE).values(
            model=model,
            version=version,
            replaced=replaced,
            action=action,
            by=by,
            reason=reason,
            verdict=verdict,
            at_us=now_us,
        )
    )


def list_changes(
    connection: Connection, model: str, *, limit: int = 100, before: int | None = None
) -> list[ChangeRow]:
    """Newest first, before the change with ``seq`` ``before``."""
    query = select(_CHANGE).where(_CHANGE.c.model == model).order_by(_CHANGE.c.seq.desc()).limit(limit)
    until = None
    if before is not None:
        query = query.where(_CHANGE.c.seq < before)
        later = select(_CHANGE.c.at_us).where(_CHANGE.c.model == model, _CHANGE.c.seq >= before)
        until = connection.scalar(later.order_by(_CHANGE.c.seq).limit(1))
    found = []
    for row in connection.execute(query):
        found.append(ChangeRow(**row._mapping, until_us=until))
        until = row.at_us
    return found


def was_champion(connection: Connection, model: str, version: str) -> bool:
    query = select(_CHANGE.c.seq).where(_CHANGE.c.model == model, _CHANGE.c.version == version)
    return connection.execute(query.limit(1)).first() is not None


def former_champions(connection: Connection, model: str) -> list[str]:
    query = select(_CHANGE.c.version).where(_CHANGE.c.model == model).order_by(_CHANGE.c.seq.desc())
    return list(dict.fromkeys(connection.scalars(query)))
