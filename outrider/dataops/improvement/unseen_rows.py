"""Labelled live rows, and rows that a version has learned from."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from outrider.assertions.comparison.typed_text import read_typed
from outrider.dataops.datasets.collect import LabelledPlace
from outrider.dataops.datasets.digests import row_digests
from outrider.dataops.labels.estimates import evenly_drawn, newest_labels
from outrider.dataops.models import registry as models
from outrider.dataops.models.lineage import learned_from
from outrider.dataops.state.tables import Record, table_of
from outrider.errors import Erased, NotFound

MOST_LABELS = 50_000
_RECORD = table_of(Record)
Learned = tuple[frozenset[str], frozenset[bytes]]
"""Ids of rows, and digests of their inputs."""


@dataclass(frozen=True, slots=True)
class SeenRows:
    records: frozenset[str] = frozenset()
    inputs: frozenset[bytes] = frozenset()
    """Digests, as of :func:`input_digests`."""
    until_us: int = 0
    """Event time up to which it is unknown what the version has learned from."""

    def knows(self, records: Sequence[LabelledPlace]) -> NDArray[np.bool_]:
        known = [one.id in self.records or one.ts_us <= self.until_us for one in records]
        return np.array(known, dtype=np.bool_)

    def knows_inputs(self, digests: Sequence[bytes]) -> NDArray[np.bool_]:
        return np.array([digest in self.inputs for digest in digests], dtype=np.bool_)


def seen_rows(
    connection: Connection, model: str, versions: Sequence[str], read: Callable[[str, str | None], Learned]
) -> dict[str, SeenRows]:
    """Rows that versions have learned from, by their lineage.

    Held-out rows of a dataset are none of them; where a dataset is gone, everything before the version
    may be.
    """
    found = {}
    for version, learned in learned_from(connection, model, versions).items():
        records, inputs, until_us = set[str](), set[bytes](), learned.untold_us
        for name, part in learned.datasets:
            try:
                ids, digests = read(name, part)
            except (Erased, NotFound):
                until_us = max(until_us, models.get(connection, model, version).created_us)
                continue
            records |= ids
            inputs |= digests
        found[version] = SeenRows(frozenset(records), frozenset(inputs), until_us)
    return found


def reader_of(table: Callable[[str, str | None], pa.Table]) -> Callable[[str, str | None], Learned]:
    known: dict[tuple[str, str | None], Learned] = {}

    def read(name: str, part: str | None) -> Learned:
        if (name, part) not in known:
            rows = table(name, part)
            ids = frozenset(map(str, rows.column("id").to_pylist()))
            known[name, part] = ids, frozenset(input_digests(rows))
        return known[name, part]

    return read


def input_digests(rows: pa.Table) -> list[bytes]:
    return row_digests(rows, [name for name in rows.column_names if name.startswith("inputs.")])


def labelled_records(connection: Connection, model: str) -> tuple[list[LabelledPlace], int]:
    """Labelled records by block and row, and the number left out: of labels that were bought, only
    those drawn evenly count."""
    drawn = evenly_drawn(connection, model)
    truth = newest_labels(connection, model, after=-1, until=2**62, limit=MOST_LABELS)
    asked = select(func.json_each(json.dumps(sorted(truth))).table_valued("value").c.value)
    columns = _RECORD.c.id, _RECORD.c.seq, _RECORD.c.row, _RECORD.c.entity, _RECORD.c.ts_us
    query = select(*columns).where(_RECORD.c.model == model, _RECORD.c.seq.in_(asked))
    found, left_out = [], 0
    for row in connection.execute(query.order_by(_RECORD.c.seq, _RECORD.c.row)):
        if row.id not in truth[row.seq]:
            continue
        if not drawn.get(row.id, True):
            left_out += 1
            continue
        found.append(LabelledPlace(*row, read_typed(truth[row.seq][row.id])))
    return found, left_out
