"""Registered records and stored answers of a unit."""

from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.assertions.batch.columns import as_type, wider_type
from outrider.dataops.judges import PREFIX
from outrider.dataops.ledger.answers import answered_blocks, read_answers, read_family
from outrider.dataops.ledger.records import registered_blocks, registered_weights

from .units import Unit


def registered(engine: Engine, unit: Unit) -> tuple[Batch, NDArray[np.intp]]:
    assert unit.batch is not None
    with engine.connect() as connection:
        weight_at = registered_weights(connection, unit.model, first=unit.first_seq, last=unit.last_seq)
    located = zip(unit.seq.tolist(), unit.row.tolist(), strict=True)
    found = [weight_at.get(place) for place in located]
    kept = np.flatnonzero([weight is not None for weight in found]).astype(np.intp)
    given = unit.batch.column("weight")
    weight = given.copy()
    weight[kept] = [found[row] for row in kept.tolist()]
    if np.array_equal(weight, given):
        return unit.batch, kept
    return unit.batch.with_columns({"weight": weight}), kept


def stored(engine: Engine, version: str | None, unit: Unit, batch: Batch) -> Batch | None:
    if version is None:
        return None
    with engine.connect() as connection:
        found = read_answers(connection, unit.model, [version], first=unit.first_seq, last=unit.last_seq)
    parts = _alike([Batch.from_ipc(payload) for payload in found.values()])
    if not parts or len({part.schema_digest for part in parts}) > 1:
        return None
    answer = Batch.concat(parts)
    if np.array_equal(answer.keys, batch.keys):
        return answer
    # Some records may be left out: those whose payloads are gone.
    row_of = {key: row for row, key in enumerate(answer.keys.tolist())}
    rows = np.array([row_of.get(key, -1) for key in batch.keys.tolist()], dtype=np.intp)
    return None if (rows < 0).any() else answer.take(rows)


def _alike(parts: list[Batch]) -> list[Batch]:
    """Answers with one type for each output, which a block of nulls or empty lists leaves open."""
    if len({part.schema_digest for part in parts}) <= 1 or len({tuple(part.names) for part in parts}) > 1:
        return parts
    changed: list[dict[str, pa.Array]] = [{} for _ in parts]
    for name in parts[0].names:
        columns = [part.arrow(name) for part in parts]
        kinds = list(dict.fromkeys(column.type for column in columns))
        kind = reduce(_common, kinds) if len(kinds) > 1 else None
        if kind is not None:
            for change, column in zip(changed, columns, strict=True):
                change[name] = as_type(column, kind)
    return [
        part.with_columns(change) if change else part for part, change in zip(parts, changed, strict=True)
    ]


def _common(one: pa.DataType | None, other: pa.DataType) -> pa.DataType | None:
    if one is None or pa.types.is_null(other):
        return one
    return wider_type(one, other)


def judge_answers(engine: Engine, unit: Unit, batch: Batch) -> dict[str, Batch]:
    """Judges' answers to a unit's records, by slot, null if outstanding."""
    with engine.connect() as connection:
        answers = read_family(connection, unit.model, PREFIX, first=unit.first_seq, last=unit.last_seq)
    parts: dict[str, list[Batch]] = {}
    for version, payload in answers:
        parts.setdefault(version.partition("@")[0], []).append(Batch.from_ipc(payload))
    return {
        slot: _aligned(Batch.concat(found), batch)
        for slot, found in parts.items()
        if len({part.schema_digest for part in found}) == 1
    }


def _aligned(answer: Batch, batch: Batch) -> Batch:
    row_of = {key: row for row, key in enumerate(answer.keys.tolist())}
    rows = pa.array([row_of.get(key) for key in batch.keys.tolist()], pa.int64())
    table = answer.to_arrow()
    names = [name for name in answer.names if name.startswith("outputs.")]
    return batch.with_outputs(
        {name.removeprefix("outputs."): table.column(name).take(rows) for name in names}
    )


def outputs_of(answer: Batch) -> dict[str, NDArray[Any]]:
    names = [name for name in answer.names if name.startswith("outputs.")]
    return {name.removeprefix("outputs."): answer.column(name) for name in names}


def answer_cuts(engine: Engine, model: str, version: str, after: int, until: int) -> list[int]:
    """Blocks at starts or ends of answers, which no unit may span."""
    with engine.connect() as connection:
        answered = set(answered_blocks(connection, model, version, after=after, until=until))
        blocks = registered_blocks(connection, model, after=after, until=until)
    every = [(seq, seq in answered) for seq in blocks]
    return [seq for (seq, one), (_, other) in pairwise(every) if one != other]
