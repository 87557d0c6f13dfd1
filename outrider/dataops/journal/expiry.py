"""Expiry of old payloads that no reader needs.

Kept are flagged records with members and neighbours, records requested for labelling, and rows of datasets;
nothing after a live slot's cursor, checkpoint or open gap is touched.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, Table, select

from outrider.dataops.ledger.answers import answering_versions
from outrider.dataops.ledger.backfill import SLOT, open_gaps
from outrider.dataops.state.improvement_tables import DatasetRow, LabelRequest, ModelVersion
from outrider.dataops.state.rows import among
from outrider.dataops.state.tables import Answer, Cursor, Flag, FlagRecord, Record, WindowCheckpoint, table_of

from .journal import BlockInfo

CHAMPION = "champion"

_RECORD = table_of(Record)
_FLAG = table_of(Flag)
_MEMBER = table_of(FlagRecord)
_REQUEST = table_of(LabelRequest)
_ROW = table_of(DatasetRow)
_ANSWER = table_of(Answer)


@dataclass(frozen=True, slots=True)
class Around:
    """Neighbours to keep on each side, and their largest distance."""

    rows: int = 5
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Stream:
    """Block, row, event time (µs) of records in stream order, shape (n,)."""

    seq: NDArray[np.int64]
    row: NDArray[np.int64]
    ts_us: NDArray[np.int64]


def needed_from(connection: Connection, model: str, *, slots: Collection[str]) -> int:
    """First block that is still needed; 0 if nothing may expire.

    ``slots`` have cursors besides champion and challengers, such as LLM judges; slots of removed challengers
    do not count.
    """
    cursors, checkpoints, versions = table_of(Cursor), table_of(WindowCheckpoint), table_of(ModelVersion)
    answering = versions.c.model == model, versions.c.status.in_(("challenger", "former"))
    query = select(versions.c.version).where(*answering)
    living = {CHAMPION, *slots, *connection.execute(query).scalars()}
    gaps = [gap.at_seq for gap in open_gaps(connection) if gap.model == model]
    if gaps:
        living.add(SLOT)
    positions: dict[str, int] = {}
    for table in (cursors, checkpoints):
        for slot, seq in connection.execute(select(table.c.slot, table.c.seq).where(table.c.model == model)):
            if slot in living:
                positions[slot] = min(seq, positions.get(slot, seq))
    if CHAMPION not in positions:
        return 0
    return min([*positions.values(), *gaps])


def judged_neighbours(connection: Connection, model: str, until: int, around: Around) -> int:
    """Last block up to ``until`` whose followers are all judged."""
    if not around.rows:
        return until
    query = (
        select(_RECORD.c.seq)
        .where(_RECORD.c.model == model, _RECORD.c.seq <= until)
        .order_by(_RECORD.c.seq.desc())
        .offset(around.rows - 1)
        .limit(1)
    )
    return max(0, int(connection.execute(query).scalar() or 0) - 1)


def kept_rows(
    connection: Connection, model: str, blocks: Sequence[BlockInfo], around: Around
) -> dict[int, NDArray[np.intp]]:
    """Ascending rows whose payloads stay, by block; ``blocks`` are consecutive."""
    first, last = blocks[0].seq, blocks[-1].seq
    stream = _stream(connection, model, first, last, around.rows)
    lowest, highest = (int(stream.seq[at]) if len(stream.seq) else 0 for at in (0, -1))
    flagged = _places(
        connection,
        select(_FLAG.c.seq, _FLAG.c.row).where(
            _FLAG.c.model == model, _FLAG.c.seq >= lowest, _FLAG.c.seq <= highest
        ),
    ) | _joined(connection, model, _MEMBER, lowest, highest)
    others = _joined(connection, model, _REQUEST, first, last) | _joined(connection, model, _ROW, first, last)
    keeps = near(stream, marked(stream, flagged), around) | marked(stream, others)
    found: dict[int, NDArray[np.intp]] = {}
    inside = keeps & (stream.seq >= first) & (stream.seq <= last)
    for seq in np.unique(stream.seq[inside]).tolist():
        found[seq] = np.sort(stream.row[inside & (stream.seq == seq)]).astype(np.intp)
    return found


def near(stream: Stream, chosen: NDArray[np.bool_], around: Around) -> NDArray[np.bool_]:
    keeps = chosen.copy()
    for away in range(1, min(around.rows, len(chosen) - 1) + 1):
        close = np.abs(stream.ts_us[away:] - stream.ts_us[:-away]) <= around.seconds * 1e6
        keeps[away:] |= chosen[:-away] & close
        keeps[:-away] |= chosen[away:] & close
    return keeps


def marked(stream: Stream, places: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
    wanted = set(places)
    located = zip(stream.seq.tolist(), stream.row.tolist(), strict=True)
    return np.fromiter((place in wanted for place in located), dtype=np.bool_, count=len(stream.seq))


def forget_answers(connection: Connection, model: str, seqs: Sequence[int]) -> int:
    dropped = 0
    for version in answering_versions(connection, model):
        own = _ANSWER.c.model == model, _ANSWER.c.version == version, among(_ANSWER.c.seq, seqs)
        dropped += connection.execute(_ANSWER.delete().where(*own)).rowcount
    return dropped


def _stream(connection: Connection, model: str, first: int, last: int, margin: int) -> Stream:
    """Records of blocks ``first`` to ``last``, and ``margin`` more on each side."""
    columns = (_RECORD.c.seq, _RECORD.c.row, _RECORD.c.ts_us)
    order = (_RECORD.c.seq, _RECORD.c.row)
    of_model = select(*columns).where(_RECORD.c.model == model)
    before = of_model.where(_RECORD.c.seq < first).order_by(*(key.desc() for key in order)).limit(margin)
    inside = of_model.where(_RECORD.c.seq >= first, _RECORD.c.seq <= last).order_by(*order)
    after = of_model.where(_RECORD.c.seq > last).order_by(*order).limit(margin)
    rows = [
        *reversed(connection.execute(before).all()),
        *connection.execute(inside).all(),
        *connection.execute(after).all(),
    ]
    table = np.array([tuple(row) for row in rows], dtype=np.int64).reshape(-1, 3)
    return Stream(table[:, 0], table[:, 1], table[:, 2])


def _joined(connection: Connection, model: str, table: Table, first: int, last: int) -> set[tuple[int, int]]:
    named = select(table.c.record_id).where(table.c.record_id == _RECORD.c.id)
    if "model" in table.c:
        named = named.where(table.c.model == model)
    query = select(_RECORD.c.seq, _RECORD.c.row).where(
        _RECORD.c.model == model, _RECORD.c.seq >= first, _RECORD.c.seq <= last, named.exists()
    )
    return _places(connection, query)


def _places(connection: Connection, query: Select[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(row.seq, row.row) for row in connection.execute(query)}
