"""Stored answers of model versions, one Arrow batch for each journal block."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from outrider.assertions import Batch
from outrider.assertions.comparison.typed_text import read_typed, typed_texts
from outrider.dataops.state.tables import Answer, table_of

_ANSWER = table_of(Answer)


def read_answer(connection: Connection, model: str, version: str | None, seq: int) -> Batch | None:
    """Outputs of a version's replica for block ``seq``'s record, if any.

    Without a version, of the one that was champion then: that of records of which production said nothing.
    """
    payload = connection.scalar(
        select(_ANSWER.c.payload).where(
            _ANSWER.c.model == model, _ANSWER.c.version == version, _ANSWER.c.seq == seq
        )
    )
    return None if payload is None else Batch.from_ipc(payload)


def read_values(connection: Connection, model: str, version: str, seq: int, target: str) -> Mapping[str, Any]:
    """Answers of a version's replica to block ``seq``, by record."""
    answer = read_answer(connection, model, version, seq)
    return {} if answer is None else _values(answer, target)


def read_values_of(
    connection: Connection, model: str, versions: Sequence[str], seqs: Sequence[int], target: str
) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Answers of replicas to some blocks, by version, block and record."""
    query = select(_ANSWER.c.version, _ANSWER.c.seq, _ANSWER.c.payload).where(
        _ANSWER.c.model == model, _ANSWER.c.version.in_(versions), _ANSWER.c.seq.in_(seqs)
    )
    rows = connection.execute(query)  # one payload in memory at a time
    return {(row.version, row.seq): _values(Batch.from_ipc(row.payload), target) for row in rows}


def _values(answer: Batch, target: str) -> dict[str, Any]:
    name = f"outputs.{target}"
    predicted = typed_texts(answer.arrow(name)) if answer.has(name) else [None] * answer.rows
    return dict(zip(answer.keys.tolist(), map(read_typed, predicted), strict=True))


def read_answers(
    connection: Connection, model: str, versions: Sequence[str], *, first: int, last: int
) -> dict[tuple[str, int], bytes]:
    """Arrow IPC of answers to blocks ``first`` to ``last``, by version, block."""
    query = (
        select(_ANSWER.c.version, _ANSWER.c.seq, _ANSWER.c.payload)
        .where(
            _ANSWER.c.model == model,
            _ANSWER.c.version.in_(versions),
            _ANSWER.c.seq >= first,
            _ANSWER.c.seq <= last,
        )
        .order_by(_ANSWER.c.version, _ANSWER.c.seq)
    )
    return {(row.version, row.seq): row.payload for row in connection.execute(query)}


def read_family(
    connection: Connection, model: str, prefix: str, *, first: int, last: int
) -> list[tuple[str, bytes]]:
    """Answers of versions named from ``prefix``, in order of blocks."""
    query = (
        select(_ANSWER.c.version, _ANSWER.c.payload)
        .where(
            _ANSWER.c.model == model,
            _ANSWER.c.version.startswith(prefix, autoescape=True),
            _ANSWER.c.seq >= first,
            _ANSWER.c.seq <= last,
        )
        .order_by(_ANSWER.c.seq)
    )
    return [(row.version, row.payload) for row in connection.execute(query)]


def answered_blocks(
    connection: Connection, model: str, version: str, *, after: int, until: int, limit: int | None = None
) -> list[int]:
    """Blocks behind ``after`` up to ``until`` that a version answered, ascending."""
    query = (
        select(_ANSWER.c.seq)
        .where(
            _ANSWER.c.model == model,
            _ANSWER.c.version == version,
            _ANSWER.c.seq > after,
            _ANSWER.c.seq <= until,
        )
        .order_by(_ANSWER.c.seq)
        .limit(limit)
    )
    return list(connection.scalars(query))


def first_answered(connection: Connection, model: str, version: str) -> int | None:
    """First block that a version answered; None before that."""
    seq: int | None = connection.scalar(
        select(func.min(_ANSWER.c.seq)).where(_ANSWER.c.model == model, _ANSWER.c.version == version)
    )
    return seq


def answering_versions(connection: Connection, model: str) -> list[str]:
    """Versions with answers, each found by one step in the key."""
    found: list[str] = []
    while True:
        query = select(_ANSWER.c.version).where(_ANSWER.c.model == model)
        if found:
            query = query.where(_ANSWER.c.version > found[-1])
        version = connection.execute(query.order_by(_ANSWER.c.version).limit(1)).scalar()
        if version is None:
            return found
        found.append(version)
