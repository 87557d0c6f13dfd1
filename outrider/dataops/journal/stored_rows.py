"""Blocks with some rows expired or erased.

Read back such a block has its full length, with nulls in removed rows, so that (block, row) stays valid.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.schema import MODEL_KEY

_ROWS = b"outrider.kept_rows"
_LENGTH = b"outrider.rows"


def pack_rows(payload: bytes, rows: NDArray[np.intp]) -> bytes:
    """Keep ascending ``rows``, numbered as in the original block."""
    stored = read_stored(payload)
    at = np.searchsorted(stored.rows, rows)
    return _packed(stored, at, rows)


def without_rows(payload: bytes, rows: NDArray[np.intp]) -> bytes:
    """Payload of a block, of records or labels, without these rows."""
    stored = read_stored(payload)
    at = np.flatnonzero(~np.isin(stored.rows, rows))
    return _packed(stored, at, stored.rows[at])


@dataclass(frozen=True, slots=True)
class StoredRows:
    table: pa.RecordBatch
    rows: NDArray[np.intp]
    """Numbers in the original block, ascending, shape (left,)."""
    length: int
    """Rows of the original block."""

    @property
    def batch(self) -> Batch:
        return Batch(self.table, model=self.table.schema.metadata[MODEL_KEY].decode())


def read_stored(payload: bytes) -> StoredRows:
    with pa.ipc.open_stream(payload) as reader:
        parts = list(reader)
    if not parts:
        raise pa.ArrowInvalid("a block with no batch in it")
    table = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    metadata = table.schema.metadata or {}
    if _ROWS not in metadata:
        return StoredRows(table, np.arange(table.num_rows), table.num_rows)
    plain = {name: value for name, value in metadata.items() if name not in (_ROWS, _LENGTH)}
    rows = np.frombuffer(metadata[_ROWS], dtype="<i4").astype(np.intp)
    return StoredRows(table.replace_schema_metadata(plain), rows, int(metadata[_LENGTH]))


def read_rows(payload: bytes) -> Batch:
    """Records by row; removed ones are null, ``id`` too."""
    stored = read_stored(payload)
    if len(stored.rows) == stored.length:
        return stored.batch
    places = np.zeros(stored.length, dtype=np.int64)
    gone = np.ones(stored.length, dtype=np.bool_)
    places[stored.rows], gone[stored.rows] = np.arange(len(stored.rows)), False
    return Batch(stored.table.take(pa.array(places, mask=gone)), model=stored.batch.model)


def _packed(stored: StoredRows, at: NDArray[np.intp], rows: NDArray[np.intp]) -> bytes:
    marks = {_ROWS: rows.astype("<i4").tobytes(), _LENGTH: str(stored.length).encode()}
    table = stored.table
    kept = table.take(pa.array(at)).replace_schema_metadata((table.schema.metadata or {}) | marks)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kept.schema) as writer:
        writer.write_batch(kept)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def has_row(batch: Batch, row: int) -> bool:
    """False if the row's payload has expired."""
    return row < batch.rows and not bool(batch.is_null("id")[row])
