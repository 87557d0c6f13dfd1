"""Flags of champion and challenger on their common blocks.

Live tests ask the champion alone: their flags are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select

from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.cursors import judged_by_both
from outrider.dataops.state.tables import Answer, AssertionRow, Flag, Record, table_of

_ANSWER, _ASSERTION, _FLAG, _RECORD = (table_of(t) for t in (Answer, AssertionRow, Flag, Record))


@dataclass(frozen=True, slots=True)
class ShadowStretch:
    """Common blocks of two versions, behind ``after`` up to ``until``."""

    model: str
    champion: str
    challenger: str
    after: int
    until: int


def count_shadow_flags(connection: Connection, model: str, challenger: str) -> tuple[int, dict[str, int]]:
    """Records and flags by slot, on blocks that the challenger answered."""
    until = judged_by_both(connection, model, challenger)
    if not until:
        return 0, {}
    blocks = (
        select(_ANSWER.c.seq)
        .where(_ANSWER.c.model == model, _ANSWER.c.version == challenger, _ANSWER.c.seq <= until)
        .scalar_subquery()
    )
    rows = connection.scalar(select(func.count()).where(_RECORD.c.model == model, _RECORD.c.seq.in_(blocks)))
    counts = connection.execute(
        select(_FLAG.c.slot, func.count())
        .where(_FLAG.c.model == model, _FLAG.c.seq.in_(blocks), _FLAG.c.assertion.not_in(_live_tests(model)))
        .group_by(_FLAG.c.slot)
    )
    return int(rows or 0), {row[0]: int(row[1]) for row in counts}


def flagged_by_slot(connection: Connection, stretch: ShadowStretch, *, limit: int) -> dict[str, set[str]]:
    """Records of the newest ``limit`` flags of champion's and challenger's slot."""
    query = (
        select(_FLAG.c.slot, _FLAG.c.record_id)
        .where(*_judged_flags(stretch))
        .order_by(_FLAG.c.seq.desc())
        .limit(limit)
    )
    found: dict[str, set[str]] = {CHAMPION: set(), stretch.challenger: set()}
    for row in connection.execute(query):
        found[row.slot].add(row.record_id)
    return found


def count_by_assertion(connection: Connection, stretch: ShadowStretch) -> dict[str, dict[str, int]]:
    """Flags by assertion, for ``champion`` and ``challenger``."""
    query = (
        select(_FLAG.c.assertion, _FLAG.c.slot, func.count().label("flags"))
        .where(*_judged_flags(stretch))
        .group_by(_FLAG.c.assertion, _FLAG.c.slot)
        .order_by(_FLAG.c.assertion)
    )
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(query):
        side = CHAMPION if row.slot == CHAMPION else "challenger"
        found.setdefault(row.assertion, {CHAMPION: 0, "challenger": 0})[side] = row.flags
    return found


def _judged_flags(stretch: ShadowStretch) -> Sequence[Any]:
    """Flags of blocks that both have answered: under load challengers are not asked, champions are."""
    answered = [
        _FLAG.c.seq.in_(
            select(_ANSWER.c.seq).where(
                _ANSWER.c.model == stretch.model,
                _ANSWER.c.version == version,
                _ANSWER.c.seq > stretch.after,
                _ANSWER.c.seq <= stretch.until,
            )
        )
        for version in (stretch.champion, stretch.challenger)
    ]
    return (
        *answered,
        _FLAG.c.model == stretch.model,
        _FLAG.c.slot.in_((CHAMPION, stretch.challenger)),
        _FLAG.c.seq > stretch.after,
        _FLAG.c.seq <= stretch.until,
        _FLAG.c.assertion.not_in(_live_tests(stretch.model)),
    )


def _live_tests(model: str) -> Select[tuple[str]]:
    return select(_ASSERTION.c.name).where(_ASSERTION.c.model == model, _ASSERTION.c.kind == "live_test")
