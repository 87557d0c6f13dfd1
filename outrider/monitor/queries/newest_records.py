"""Newest records with answers, labels, weights and payloads."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from outrider.assertions import Batch
from outrider.assertions.comparison.matching import spelled_like
from outrider.assertions.comparison.typed_text import plain_text, read_typed
from outrider.assertions.flags.quality import LEAST_ASKED, LEAST_ASKED_SHARE
from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.journal.stored_rows import read_rows
from outrider.dataops.labels.estimates import request_weights
from outrider.dataops.labels.withdrawn import decides
from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.tables import Record, table_of

MOST_RECORDS = 20_000
_RECORD = table_of(Record)
_LABEL = table_of(Label)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    id: str
    seq: int
    row: int
    predicted: str | None
    weight: float
    entity: str | None
    ts_us: int


class Words:
    """Spells labels as the equal answers are spelt: metrics compare texts."""

    def __init__(self, answers: Iterable[str | None]) -> None:
        self._distinct: dict[Any, str | None] = {}
        for text in dict.fromkeys(answers):
            if text is not None:
                self._distinct.setdefault(read_typed(text), plain_text(text))

    def of(self, texts: Sequence[str | None]) -> list[str | None]:
        kinds = list(dict.fromkeys(texts))
        spelled = spelled_like([read_typed(text) for text in kinds], list(self._distinct))
        words = {
            text: None if text is None else self._distinct.get(value, plain_text(text))
            for text, value in zip(kinds, spelled, strict=True)
        }
        return [words[text] for text in texts]

    def of_class(self, name: str) -> str:
        if name in self._distinct.values():
            return name
        (found,) = spelled_like([name], list(self._distinct))
        return self._distinct.get(found) or name


@dataclass(frozen=True, slots=True)
class NewestRecords:
    """Newest records, with the labels that count.

    ``predicted`` and ``labels`` have one spelling; ``labelled`` are the places of the records whose
    labels count, ascending, and ``label_weight`` the records of traffic that each stands for; ``asked``
    is true where a policy asked for them, else all count alike.
    """

    rows: Sequence[StoredRecord]
    words: Words
    predicted: Sequence[str | None]
    labels: Sequence[str | None]
    weight: NDArray[np.float64]
    labelled: NDArray[np.intp]
    label_weight: NDArray[np.float64]
    asked: bool

    @property
    def entities(self) -> pa.Array:
        return pa.array([row.entity for row in self.rows], pa.string())

    @property
    def times(self) -> NDArray[np.datetime64]:
        return np.array([row.ts_us for row in self.rows], dtype="datetime64[us]")


def newest_records(connection: Connection, model: str, *, since_us: int | None = None) -> NewestRecords:
    """Newest records of production.

    Labels that a policy asked for are also weighted by their probability; those that came unasked are
    then set aside (:func:`~outrider.assertions.flags.quality.rate_of_labels`).
    """
    rows = _newest(connection, model, since_us)
    words = Words(row.predicted for row in rows)
    stored = _labels(connection, model, rows)
    truth = dict(zip(stored, words.of(list(stored.values())), strict=True))
    labels = [truth.get(row.id) for row in rows]
    weight = np.array([row.weight for row in rows], dtype=np.float64)
    asked = request_weights(connection, model)
    chosen = np.array([asked[row.id].weight if row.id in asked else 0.0 for row in rows], dtype=np.float64)
    counted = np.array([label is not None for label in labels], dtype=np.bool_)
    known = counted & (chosen > 0)
    is_asked = bool(known.sum() >= max(LEAST_ASKED, LEAST_ASKED_SHARE * counted.sum()))
    labelled = np.flatnonzero(known if is_asked else counted)
    label_weight = weight[labelled] * (chosen[labelled] if is_asked else 1.0)
    predicted = words.of([row.predicted for row in rows])
    return NewestRecords(rows, words, predicted, labels, weight, labelled, label_weight, is_asked)


def payloads(blocks: BlockSource, rows: Sequence[StoredRecord]) -> Iterator[tuple[list[int], Batch]]:
    """Blocks that have not expired, each with places of its ``rows``."""
    places: dict[int, list[int]] = {}
    for at, row in enumerate(rows):
        places.setdefault(row.seq, []).append(at)
    for seq, members in places.items():
        try:
            yield members, read_rows(blocks.get(seq).payload)
        except (LookupError, pa.ArrowException):
            continue


def _newest(connection: Connection, model: str, since_us: int | None) -> Sequence[StoredRecord]:
    columns = (_RECORD.c.id, _RECORD.c.seq, _RECORD.c.row, _RECORD.c.predicted, _RECORD.c.weight)
    query = select(*columns, _RECORD.c.entity, _RECORD.c.ts_us).where(_RECORD.c.model == model)
    if since_us is not None:
        query = query.where(_RECORD.c.ts_us >= since_us)
    order = (_RECORD.c.seq.desc(), _RECORD.c.row.desc())
    return [StoredRecord(*row) for row in connection.execute(query.order_by(*order).limit(MOST_RECORDS))]


def _labels(connection: Connection, model: str, rows: Sequence[StoredRecord]) -> dict[str, str | None]:
    if not rows:
        return {}
    oldest = min(row.seq for row in rows)
    query = (
        select(_LABEL.c.record_id, _LABEL.c.value)
        .join(_RECORD, (_RECORD.c.model == _LABEL.c.model) & (_RECORD.c.id == _LABEL.c.record_id))
        .where(_LABEL.c.model == model, _RECORD.c.seq >= oldest, decides(_LABEL))
        .order_by(_LABEL.c.seq, _LABEL.c.row)
    )
    return {row.record_id: row.value for row in connection.execute(query)}
