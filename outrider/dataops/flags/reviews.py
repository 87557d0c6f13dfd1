"""Reviews of flags: was the model wrong?."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from outrider.dataops.state.rows import among, replace_rows
from outrider.dataops.state.tables import Flag, Review, ReviewRow, row_of, table_of
from outrider.errors import NotFound

_FLAG = table_of(Flag)
_REVIEW = table_of(Review)


def give(
    connection: Connection, flag: str, *, is_error: bool, source: str, note: str = "", now_us: int
) -> ReviewRow:
    """Review a flag; a later review replaces an earlier one. NotFound without the flag."""
    found = connection.execute(select(_FLAG.c.model, _FLAG.c.assertion).where(_FLAG.c.id == flag)).first()
    if found is None:
        raise NotFound(f"no flag {flag!r}; `outrider flags --json` shows their ids")
    row = ReviewRow(
        flag_id=flag, model=found.model, assertion=found.assertion, is_error=is_error, source=source,
        note=note, at_us=now_us,
    )  # fmt: skip
    replace_rows(connection, Review, [tuple(row.model_dump().values())])
    return row


def list_reviews(
    connection: Connection, *, model: str | None = None, assertion: str | None = None, limit: int = 100
) -> list[ReviewRow]:
    query = select(_REVIEW).order_by(_REVIEW.c.at_us.desc(), _REVIEW.c.flag_id).limit(limit)
    if model is not None:
        query = query.where(_REVIEW.c.model == model)
    if assertion is not None:
        query = query.where(_REVIEW.c.assertion == assertion)
    return [row_of(ReviewRow, row) for row in connection.execute(query)]


def reviews_of(connection: Connection, flags: Sequence[str]) -> dict[str, bool]:
    query = select(_REVIEW.c.flag_id, _REVIEW.c.is_error).where(among(_REVIEW.c.flag_id, flags))
    return {row.flag_id: row.is_error for row in connection.execute(query)}
