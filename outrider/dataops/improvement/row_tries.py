"""Verdicts of the gate that each held-out row has decided.

Each verdict tells something of the row, so less error may be spent on it again. Tries belong to a row's
inputs under a keyed hash, whatever dataset holds it.
"""

import json
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from outrider.assertions.batch.columns import is_tensor
from outrider.dataops.datasets.digests import row_digests
from outrider.dataops.state.folder_secret import keyed_hash, secret_beside
from outrider.dataops.state.improvement_tables import RowTries
from outrider.dataops.state.rows import add_to_rows
from outrider.dataops.state.tables import table_of

from .gate import error_of

_TRIES = table_of(RowTries)
_STEP = 10_000


def row_keys(connection: Connection, rows: pa.Table, inputs: Sequence[str] = ()) -> list[str]:
    """Keyed hash of each row's inputs, in hex.

    ``inputs`` are those fed to the model, where known: neither a further column nor another width of
    numbers makes a row a fresh one.
    """
    secret = secret_beside(connection)
    there = [name for name in rows.column_names if name.startswith("inputs.")]
    fed = [name for name in there if name in inputs] or there
    coarse = pa.table({name: _coarse(rows.column(name)) for name in fed}) if fed else rows
    return [keyed_hash(secret, digest).hex() for digest in row_digests(coarse, fed)]


def _coarse(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if is_tensor(column.type):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    kind, types = column.type, pa.types
    if types.is_floating(kind):
        return column.cast(pa.float32())
    if types.is_list(kind) and types.is_floating(kind.value_type):
        return column.cast(pa.list_(pa.float32()))
    if types.is_fixed_size_list(kind) and types.is_floating(kind.value_type):
        return column.cast(pa.list_(pa.float32(), kind.list_size))
    return column


def tries_of(connection: Connection, model: str, keys: Sequence[str]) -> NDArray[np.int64]:
    found: dict[str, int] = {}
    for start in range(0, len(keys), _STEP):
        some = json.dumps(keys[start : start + _STEP])
        named = select(func.json_each(some).table_valued("value").c.value)
        query = select(_TRIES.c.row, _TRIES.c.tries).where(_TRIES.c.model == model, _TRIES.c.row.in_(named))
        found |= {str(row.row): int(row.tries) for row in connection.execute(query)}
    return np.array([found.get(key, 0) for key in keys], dtype=np.int64)


def rows_to_judge_by(tries: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Rows that make the narrowest bounds, by their tries alone.

    Fresh rows alone may tell more than many that few errors are left for. Only counts choose, never answers.

    Examples
    --------
    >>> rows_to_judge_by(np.array([0] * 90 + [40] * 10)).sum(), rows_to_judge_by(np.array([0, 3, 3, 3])).sum()
    (np.int64(90), np.int64(4))
    """
    from scipy.special import ndtri

    def width(most: int) -> float:
        return -float(ndtri(error_of(most + 1))) / math.sqrt((tries <= most).sum())

    best = min(np.unique(tries).tolist(), key=width, default=0)
    return np.asarray(tries <= best)


def count_try(connection: Connection, model: str, keys: Sequence[str]) -> None:
    """Count a verdict for each row, in the order of the table: for a million rows that halves the time
    other writers wait."""
    add_to_rows(connection, RowTries, ((model, key, 1) for key in sorted(set(keys))))
