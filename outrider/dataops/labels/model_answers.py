"""Model answers to stored records: uncertainty and embeddings for label selection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from outrider.assertions import Batch
from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.journal.stored_rows import read_stored
from outrider.dataops.ledger.answers import read_answer
from outrider.dataops.state.improvement_tables import ModelVersion
from outrider.dataops.state.tables import table_of

_VERSION = table_of(ModelVersion)
Floats = NDArray[np.float64]


class RecordLocation(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def seq(self) -> int: ...


@dataclass(frozen=True, slots=True)
class AnsweredRecords:
    uncertainty: Floats | None = None
    """1 - ``outputs.margin``, else 1 - ``outputs.score``, else 1 - the largest of ``outputs.probs``;
    records without any count as least sure."""
    probabilities: Floats | None = None
    embeddings: Floats | None = None
    """``outputs.probs`` and ``outputs.embedding``, where all records have them in one shape."""


def read_answers(
    connection: Connection, blocks: BlockSource | None, *, model: str, records: Sequence[RecordLocation]
) -> AnsweredRecords:
    """Answers to records: the champion's, else production's, which needs the journal (``blocks``)."""
    row_of = {record.id: row for row, record in enumerate(records)}
    champion = connection.scalar(
        select(_VERSION.c.version).where(_VERSION.c.model == model, _VERSION.c.status == "champion")
    )
    uncertainty = np.full(len(records), np.nan)
    wide: dict[str, list[NDArray[Any] | None]] = {
        name: [None] * len(records) for name in ("probs", "embedding")
    }
    for seq in sorted({record.seq for record in records}):
        batch = read_answer(connection, model, champion, seq)
        if batch is None and (batch := _block(blocks, seq)) is None:
            continue
        here = [(k, row_of[i]) for k, i in enumerate(batch.column("id").tolist()) if i in row_of]
        if not here:
            continue
        inside, rows = (np.array(part, dtype=np.intp) for part in zip(*here, strict=True))
        names = set(batch.to_arrow().schema.names)
        unsure = _unsure(batch, names)
        if unsure is not None:
            uncertainty[rows] = unsure[inside]
        for name, found in wide.items():
            values = _tensor(batch, names, f"outputs.{name}")
            for k, row in here if values is not None else ():
                found[row] = values[k]  # type: ignore[index]  # not None in this branch
    return AnsweredRecords(_filled(uncertainty), _stacked(wide["probs"]), _stacked(wide["embedding"]))


def _block(blocks: BlockSource | None, seq: int) -> Batch | None:
    try:
        return None if blocks is None else read_stored(blocks.get(seq).payload).batch
    except KeyError:
        return None


def _unsure(batch: Batch, names: set[str]) -> Floats | None:
    ways: dict[str, Callable[[], Any]] = {
        "outputs.margin": lambda: batch.column("outputs.margin"),
        "outputs.score": lambda: batch.column("outputs.score"),
        "outputs.probs": lambda: batch.tensor("outputs.probs").max(axis=1),
    }
    for name, read in ways.items():
        if name in names:
            try:
                return 1.0 - np.asarray(read(), dtype=np.float64)
            except (TypeError, ValueError):
                continue  # a text, or vectors of changing length
    return None


def _tensor(batch: Batch, names: set[str], name: str) -> NDArray[Any] | None:
    if name not in names:
        return None
    try:
        values = np.asarray(batch.tensor(name), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return values if values.ndim == 2 else None


def _filled(uncertainty: Floats) -> Floats | None:
    known = np.isfinite(uncertainty)
    if not known.any():
        return None
    return np.where(known, uncertainty, uncertainty[known].max())


def _stacked(values: Sequence[NDArray[Any] | None]) -> Floats | None:
    """One array where every record has one, in one shape and complete."""
    rows = [value for value in values if value is not None]
    if not rows or len(rows) < len(values) or len({row.shape for row in rows}) > 1:
        return None
    stacked = np.stack(rows)
    return stacked if np.isfinite(stacked).all() else None
