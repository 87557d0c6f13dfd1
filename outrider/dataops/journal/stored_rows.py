"""Blocks with some records expired, row numbers kept.

On disk such a block holds the kept rows alone; read back it is as long as it was, with nulls in every column
of the rows that have gone, so that a place (block, row) means the same for ever.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch

_ROWS = b"outrider.kept_rows"
_LENGTH = b"outrider.rows"


def pack_rows(payload: bytes, rows: NDArray[np.intp]) -> bytes:
    """Payload of a block that keeps these rows only, shape (kept,), ascending.

    A block that was packed before may be packed again: rows are numbers in the block as it came.
    """
    batch = read_rows(payload)
    table = batch.to_arrow()
    marks = {_ROWS: rows.astype("<i4").tobytes(), _LENGTH: str(batch.rows).encode()}
    kept = table.take(pa.array(rows)).replace_schema_metadata((table.schema.metadata or {}) | marks)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kept.schema) as writer:
        writer.write_batch(kept)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def read_rows(payload: bytes) -> Batch:
    """Records of a block by row; expired ones null, ``id`` too."""
    batch = Batch.from_ipc(payload)
    table = batch.to_arrow()
    metadata = table.schema.metadata or {}
    if _ROWS not in metadata:
        return batch
    rows = np.frombuffer(metadata[_ROWS], dtype="<i4")
    places = np.zeros(int(metadata[_LENGTH]), dtype=np.int64)
    gone = np.ones(len(places), dtype=np.bool_)
    places[rows], gone[rows] = np.arange(len(rows)), False
    plain = {name: value for name, value in metadata.items() if name not in (_ROWS, _LENGTH)}
    return Batch(table.take(pa.array(places, mask=gone)).replace_schema_metadata(plain), model=batch.model)


def has_row(batch: Batch, row: int) -> bool:
    """Test for a payload of that row in a block."""
    return row < batch.rows and not bool(batch.is_null("id")[row])
