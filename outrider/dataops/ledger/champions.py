"""Champion change points: behind which journal block which version became champion."""

from collections.abc import Sequence

from sqlalchemy import Connection, Engine, select

from outrider.dataops.state.tables import ChampionBorder, table_of

_BORDER = table_of(ChampionBorder)


def champion_borders(engine: Engine, model: str) -> list[tuple[int, str]]:
    """Version that became champion after each block, in order."""
    with engine.connect() as connection:
        return read_borders(connection, model)


def read_borders(connection: Connection, model: str) -> list[tuple[int, str]]:
    query = select(_BORDER.c.seq, _BORDER.c.version).where(_BORDER.c.model == model).order_by(_BORDER.c.seq)
    return [(row.seq, row.version) for row in connection.execute(query)]


def version_at(borders: Sequence[tuple[int, str]], seq: int) -> str | None:
    """Champion's version for block ``seq``; the first for earlier blocks."""
    earlier = [version for border, version in borders if border < seq]
    return earlier[-1] if earlier else next((version for _, version in borders), None)
