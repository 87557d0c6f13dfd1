"""Batches as two frame buffers: the schema's empty batch, the records.

An Arrow stream says the schema again with every batch, and both ends spend more on that than on a block of 64
records. Here its bytes travel too, but who sends or reads the same ones again remembers what they stand for.
"""

from collections import OrderedDict

import pyarrow as pa

from outrider.assertions import Batch

REMEMBERED = 64
Buffer = bytes | memoryview


class BatchWriter:
    """Writer of the two buffers of a batch. An empty batch of its schema as Arrow stream, and its records."""

    def __init__(self) -> None:
        self._known: list[tuple[pa.Schema, bytes]] = []

    def buffers(self, batch: Batch) -> list[Buffer]:
        """Buffers of a batch for :meth:`BatchReader.batch`."""
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
        """Batch from the buffers of :meth:`BatchWriter.buffers`."""
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
    """True where a column holds dictionaries, which a stream sends as messages of their own."""
    return "dictionary<" in str(schema)
