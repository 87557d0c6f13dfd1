"""The fast path of Arrow takes what the general way takes, and makes the same of it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions.batch import TIME, Batch
from outrider.assertions.batch.columns import tensor_array
from outrider.monitor.intake.block_builder import BLOCK_ROWS
from outrider.monitor.intake.decode import Decoded, Decoder
from outrider.monitor.intake.schema_book import SchemaBook

RECEIVED = 1_700_000_000_000_000


def stream(columns: dict[str, Any], *, model: str = "m") -> bytes:
    table = pa.record_batch(columns)
    table = table.replace_schema_metadata({"outrider.model": model})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def columns(rows: int = 3) -> dict[str, Any]:
    return {
        "id": [f"r{row}" for row in range(rows)],
        "entity": pa.array(["u"] * rows),
        "ts": pa.array([RECEIVED - 5] + [None] * (rows - 1), TIME),
        "weight": [1.5] * rows,
        "inputs.n": pa.array([7] + [None] * (rows - 1), pa.int64()),
        "inputs.x": np.arange(rows) / 2,
        "inputs.s": ["é"] * rows,
        "inputs.t": tensor_array(np.ones((rows, 2), dtype=np.float32)),
        "outputs.b": [True] * rows,
    }


def learned() -> Decoder:
    decoder = Decoder(SchemaBook({"m": {}, "n": {}}))
    assert general(decoder, stream(columns())).accepted == 3
    return decoder


def general(decoder: Decoder, body: bytes) -> Decoded:
    parts, rejected = decoder.read(body, kind="records", form="arrow")
    return decoder.build(parts, rejected, kind="records", received_us=RECEIVED)


def fast(decoder: Decoder, body: bytes) -> Decoded | None:
    parts = decoder.read_known(body, form="arrow", model=None, received_us=RECEIVED)
    return None if parts is None else decoder.build(parts, kind="records", received_us=RECEIVED)


@pytest.mark.parametrize(
    "left_out", [[], ["ts", "weight", "entity"], ["inputs.t", "outputs.b"], ["inputs.x"]]
)
def test_what_is_taken_fast_is_what_the_general_way_makes_of_it(left_out: list[str]) -> None:
    sent = {name: values for name, values in columns().items() if name not in left_out}
    sent["received"] = pa.array([1] * 3, TIME)  # is set by the intake, whoever sends it
    taken = fast(learned(), stream(sent))
    assert taken is not None
    [one], [other] = taken.blocks, general(learned(), stream(sent)).blocks
    assert one.digest == other.digest
    assert one.table.equals(other.table, check_metadata=True)


def test_what_a_batch_writes_is_taken_fast() -> None:
    decoder = learned()
    [block] = general(decoder, stream(columns())).blocks
    taken = fast(decoder, Batch.from_arrow(block.table).to_ipc())
    assert taken is not None
    assert taken.blocks[0].table.equals(block.table)


@pytest.mark.parametrize(
    "change",
    [
        {"inputs.new": [1, 2, 3]},
        {"inputs.n": [1.5, 2.5, 3.5]},
        {"inputs.n": pa.array([1, 2, 3], pa.int32())},
        {"inputs.x": [1.0, float("nan"), 1.0]},
        {"inputs.x": [1.0, float("inf"), 1.0]},
        {"inputs.t": tensor_array(np.full((3, 2), np.inf, dtype=np.float32))},
        {"inputs.t": tensor_array(np.ones((3, 4), dtype=np.float32))},
        {"inputs.s": pa.array(["a", "b", "c"]).dictionary_encode()},
        {"id": ["a", "", "c"]},
        {"id": ["a", None, "c"]},
        {"id": ["a", "b" * 257, "c"]},
        {"entity": [1, 2, 3]},
        {"weight": [1.0, 0.0, 1.0]},
        {"weight": [1.0, None, 1.0]},
        {"weight": [1.0, 1e13, 1.0]},
        {"weight": [1.0, float("nan"), 1.0]},
        {"model": ["m", "m", "m"]},
        {"label.y": [1, 2, 3]},
    ],
)
def test_whatever_takes_a_second_look_goes_the_general_way(change: dict[str, Any]) -> None:
    assert fast(learned(), stream(columns() | change)) is None


def test_unknown_models_and_broken_streams_go_the_general_way() -> None:
    decoder = learned()
    assert fast(decoder, stream(columns(), model="x")) is None
    assert fast(decoder, stream(columns())[:-9]) is None
    assert fast(decoder, stream({"inputs.x": pa.array([], pa.float64())})) is None


def test_large_batches_become_several_blocks() -> None:
    taken = fast(learned(), stream(columns(BLOCK_ROWS + 5)))
    assert taken is not None
    assert [block.rows for block in taken.blocks] == [BLOCK_ROWS, 5]
