"""Batches as two frame buffers: the schema's empty batch, and the records.

Schema bytes that were seen before are looked up, which for small blocks costs less than Arrow's stream.
"""

from collections import OrderedDict

import pyarrow as pa

from outrider.assertions import Batch

REMEMBERED = 64
Buffer = bytes | memoryview


class BatchWriter:
    def __init__(self) -> None:
        self._known: list[tuple[pa.Schema, bytes]] = []

    def buffers(self, batch: Batch) -> list[Buffer]:
        table = batch.to_arrow()
        empty = next((e for s, e in self._known if s.equals(table.schema, check_metadata=True)), None)
        if empty is None:
            empty = b"" if _has_dictionaries(table.schema) else batch.slice(0, 0).to_ipc()
            self._known = [(table.schema, empty), *self._known[: REMEMBERED - 1]]
        return [empty, memoryview(table.serialize()) if empty else batch.to_ipc()]


class BatchReader:
    """Makes batches of buffers, without a copy of their records."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Batch] = OrderedDict()

    def batch(self, empty: memoryview, records: memoryview) -> Batch:
        payload = pa.py_buffer(records)
        if not empty:
            return Batch.from_ipc(payload)
        key = bytes(empty)
        like = self._known.get(key)
        if like is None:
            like = self._known[key] = Batch.from_ipc(key)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return Batch(pa.ipc.read_record_batch(payload, like.to_arrow().schema), model=like.model)


def _has_dictionaries(schema: pa.Schema) -> bool:
    """True where a column holds dictionaries, which a stream sends as separate messages."""
    return "dictionary<" in str(schema)
