"""Flags of champion and challenger on their common blocks, without live tests, which ask the champion
alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, and_, func, or_, select

from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.flag_marks import FLAGGED, JUDGED, Marks
from outrider.dataops.state.clock import HOUR_US
from outrider.dataops.state.tables import Answer, AssertionRow, Flag, JudgedBlock, Record, table_of

_ANSWER, _ASSERTION, _FLAG, _RECORD = (table_of(t) for t in (Answer, AssertionRow, Flag, Record))
_JUDGED_BLOCK = table_of(JudgedBlock)
_BLOCKS = 500


@dataclass(frozen=True, slots=True)
class ShadowStretch:
    model: str
    champion: str
    challenger: str
    after: int
    until: int


@dataclass(frozen=True, slots=True)
class CommonRecords:
    entity: NDArray[np.int64]
    """Numbers of entities; 0 where a record names none."""
    hour: NDArray[np.int64]
    champion: Marks
    challenger: Marks
    others: int = 0
    """Records of the challenger judged beside another version's answers."""
    place: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))


def common_records(
    connection: Connection,
    model: str,
    champion: str,
    challenger: str,
    *,
    after: int = 0,
    until: int | None = None,
) -> CommonRecords:
    """Records judged of both after block ``after`` up to ``until``, with marks counted before
    thinning; without erased records."""
    parts = [_no_records()]
    entities: dict[str | None, int] = {None: 0}
    others = 0
    own, other = _JUDGED_BLOCK.alias("own"), _JUDGED_BLOCK.alias("other")
    query = select(own.c.seq, own.c.version, own.c.marks, other.c.marks).where(
        own.c.model == model,
        own.c.slot == CHAMPION,
        other.c.model == model,
        other.c.seq == own.c.seq,
        other.c.slot == challenger,
        other.c.version == challenger,
        own.c.seq > after,
        *([] if until is None else [own.c.seq <= until]),
    )
    for blocks in connection.execute(query.order_by(own.c.seq)).partitions(_BLOCKS):
        known: dict[int, tuple[Marks, Marks]] = {}
        for seq, version, one, two in blocks:
            marks, theirs = _aligned(one, two)
            if version == champion:
                known[seq] = marks, theirs
            else:
                others += int(np.count_nonzero(marks & theirs & JUDGED))
        parts += _located(connection, model, known, entities)
    entity, hour, one, two, place = (np.concatenate(column) for column in zip(*parts, strict=True))
    return CommonRecords(entity, hour, one, two, others, place)


def flagged_of_one(
    connection: Connection, model: str, challenger: str, seqs: Sequence[int]
) -> set[tuple[int, int]]:
    """Records, by block and row, flagged in one slot alone; of the champion's slot whatever version
    production states."""
    query = select(_JUDGED_BLOCK.c.seq, _JUDGED_BLOCK.c.slot, _JUDGED_BLOCK.c.marks).where(
        _JUDGED_BLOCK.c.model == model,
        _JUDGED_BLOCK.c.seq.in_(seqs),
        or_(
            _JUDGED_BLOCK.c.slot == CHAMPION,
            and_(_JUDGED_BLOCK.c.slot == challenger, _JUDGED_BLOCK.c.version == challenger),
        ),
    )
    found = connection.execute(query).all()
    other = {row.seq: row.marks for row in found if row.slot != CHAMPION}
    apart: set[tuple[int, int]] = set()
    for seq, _, own in (row for row in found if row.slot == CHAMPION and row.seq in other):
        marks, theirs = _aligned(own, other[seq])
        is_apart = (marks & theirs & JUDGED > 0) & ((marks & FLAGGED > 0) != (theirs & FLAGGED > 0))
        apart.update((seq, row) for row in np.flatnonzero(is_apart).tolist())
    return apart


_Part: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], Marks, Marks, NDArray[np.int64]]


def _no_records() -> _Part:
    nothing, marks = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    return nothing, nothing, marks, marks, np.zeros((0, 2), dtype=np.int64)


def _aligned(one: bytes, two: bytes) -> tuple[Marks, Marks]:
    rows = min(len(one), len(two))
    return np.frombuffer(one, dtype=np.uint8, count=rows), np.frombuffer(two, dtype=np.uint8, count=rows)


def _located(
    connection: Connection,
    model: str,
    marks: Mapping[int, tuple[Marks, Marks]],
    entities: dict[str | None, int],
) -> Iterator[_Part]:
    if not marks:
        return
    query = (
        select(_RECORD.c.seq, _RECORD.c.row, _RECORD.c.entity, _RECORD.c.ts_us)
        .where(_RECORD.c.model == model, _RECORD.c.seq.in_(list(marks)))
        .order_by(_RECORD.c.seq)
    )
    for seq, rows in groupby(connection.execute(query), key=itemgetter(0)):
        one, two = marks[seq]
        found = [(row, entities.setdefault(entity, len(entities)), ts_us) for _, row, entity, ts_us in rows]
        row, entity, ts_us = np.array(found, dtype=np.int64).T
        is_common = row < len(one)
        is_common[is_common] = (one & two & JUDGED)[row[is_common]] > 0
        at = row[is_common]
        place = np.stack([np.full(len(at), seq, dtype=np.int64), at], axis=1)
        yield entity[is_common], ts_us[is_common] // HOUR_US, one[at], two[at], place


def flagged_by(
    connection: Connection, model: str, slot: str, assertion: str, common: CommonRecords
) -> NDArray[np.bool_]:
    query = select(_FLAG.c.seq, _FLAG.c.row).where(
        _FLAG.c.model == model, _FLAG.c.slot == slot, _FLAG.c.assertion == assertion
    )
    flagged = {(seq, row) for seq, row in connection.execute(query)}
    return np.array([(seq, row) in flagged for seq, row in common.place.tolist()], dtype=np.bool_)


def flagged_by_slot(connection: Connection, stretch: ShadowStretch, *, limit: int) -> dict[str, set[str]]:
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
    """Flags of blocks that both have answered: under load challengers are not asked."""
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
