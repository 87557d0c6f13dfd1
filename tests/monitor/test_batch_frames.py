"""Batches as buffers of a frame."""

import pyarrow as pa

from outrider.assertions import Batch
from outrider.monitor.process.batch_frames import REMEMBERED, BatchReader, BatchWriter


def back(batch: Batch, write: BatchWriter, read: BatchReader) -> Batch:
    schema, records = (memoryview(bytes(buffer)) for buffer in write.buffers(batch))
    return read.batch(schema, records)


def test_batches_come_back_whatever_schema_was_sent_before() -> None:
    write, read = BatchWriter(), BatchReader()
    numbers = [Batch.from_columns({f"inputs.x{n}": [1.0, None]}, model="m") for n in range(REMEMBERED + 5)]
    other_model = Batch.from_columns({"inputs.x0": [1.0, None]}, model="other")
    nested = Batch.from_records([{"outputs": {"boxes": [{"x": 1.0, "label": "car"}]}}], model="m")
    for batch in [*numbers, other_model, nested, numbers[0], numbers[0].slice(1, 1), numbers[0].slice(0, 0)]:
        came = back(batch, write, read)
        assert came == batch
        assert came.model == batch.model


def test_a_host_that_starts_again_needs_nothing_of_what_the_one_before_read() -> None:
    write = BatchWriter()
    batch = Batch.from_columns({"inputs.x": [1.0]}, model="m")
    assert back(batch, write, BatchReader()) == back(batch, write, BatchReader()) == batch


def test_dictionaries_travel_as_streams() -> None:
    coded = pa.array(["a", "b", "a"]).dictionary_encode()
    table = pa.RecordBatch.from_arrays(
        [coded], schema=pa.schema([("inputs.kind", coded.type)], metadata={"outrider.model": "m"})
    )
    write, read = BatchWriter(), BatchReader()
    for _ in range(2):
        assert back(Batch(table, model="m"), write, read).column("inputs.kind").tolist() == ["a", "b", "a"]
