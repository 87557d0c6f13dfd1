"""Reviews of flags: was the model wrong?."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from sqlalchemy import Connection, select

from outrider.dataops.state.rows import among, replace_rows
from outrider.dataops.state.tables import Flag, Review, table_of
from outrider.errors import NotFound

_FLAG = table_of(Flag)
_REVIEW = table_of(Review)


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """Review; a flag has at most one."""

    flag_id: str
    model: str
    assertion: str
    is_error: bool
    source: str
    note: str
    at_us: int


def give(
    connection: Connection, flag: str, *, is_error: bool, source: str, note: str = "", now_us: int
) -> ReviewRow:
    """Review a flag; a later review replaces an earlier one. NotFound without the flag."""
    found = connection.execute(select(_FLAG.c.model, _FLAG.c.assertion).where(_FLAG.c.id == flag)).first()
    if found is None:
        raise NotFound(f"no flag {flag!r}; `outrider flags --json` shows their ids")
    row = ReviewRow(flag, found.model, found.assertion, is_error, source, note, now_us)
    replace_rows(connection, Review, [astuple(row)])
    return row


def list_reviews(
    connection: Connection, *, model: str | None = None, assertion: str | None = None, limit: int = 100
) -> list[ReviewRow]:
    query = select(_REVIEW).order_by(_REVIEW.c.at_us.desc(), _REVIEW.c.flag_id).limit(limit)
    if model is not None:
        query = query.where(_REVIEW.c.model == model)
    if assertion is not None:
        query = query.where(_REVIEW.c.assertion == assertion)
    return [ReviewRow(**row._mapping) for row in connection.execute(query)]


def reviews_of(connection: Connection, flags: Sequence[str]) -> dict[str, bool]:
    query = select(_REVIEW.c.flag_id, _REVIEW.c.is_error).where(among(_REVIEW.c.flag_id, flags))
    return {row.flag_id: row.is_error for row in connection.execute(query)}
