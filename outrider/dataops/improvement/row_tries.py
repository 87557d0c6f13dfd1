"""Verdicts of the gate that each held-out row has decided.

A row that has decided before lets less error be spent on it: what was promoted and refused tells of it, and
who tries often enough finds a candidate that it likes. Tries belong to a row's inputs, whatever dataset or
version holds it, under a keyed hash.
"""

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa
from sqlalchemy import Connection, func, select

from outrider.dataops.datasets.digests import row_digests
from outrider.dataops.state.folder_secret import keyed_hash, secret_beside
from outrider.dataops.state.improvement_tables import RowTries
from outrider.dataops.state.rows import add_to_rows
from outrider.dataops.state.tables import table_of

_TRIES = table_of(RowTries)
_STEP = 10_000


def row_keys(connection: Connection, rows: pa.Table) -> list[str]:
    """Keyed hash of each row's inputs, in hex, each once."""
    secret = secret_beside(connection)
    inputs = [name for name in rows.column_names if name.startswith("inputs.")]
    return list(dict.fromkeys(keyed_hash(secret, digest).hex() for digest in row_digests(rows, inputs)))


def most_tries(connection: Connection, model: str, keys: Sequence[str]) -> int:
    """Most verdicts on a model that any of the rows has decided."""
    most = 0
    for some in _steps(keys):
        named = select(func.json_each(json.dumps(some)).table_valued("value").c.value)
        query = select(func.max(_TRIES.c.tries)).where(_TRIES.c.model == model, _TRIES.c.row.in_(named))
        most = max(most, connection.scalar(query) or 0)
    return most


def count_try(connection: Connection, model: str, keys: Sequence[str]) -> None:
    """Count a verdict for each row, in the caller's write transaction."""
    add_to_rows(connection, RowTries, ((model, key, 1) for key in keys))


def _steps(keys: Sequence[str]) -> Iterable[list[str]]:
    return (list(keys[start : start + _STEP]) for start in range(0, len(keys), _STEP))
