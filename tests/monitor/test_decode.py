"""Decoding: good records are kept whole, bad ones named with field, expectation and value."""

import contextlib
import json
import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions.batch import Batch
from outrider.dataops.journal.journal import SchemaSeen
from outrider.errors import ConfigError
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.intake.block_builder import BLOCK_ROWS
from outrider.monitor.intake.decode import Decoded, Decoder
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.intake.uuid7 import uuid7s
from tests.soak import examples

from .decoding import decode_body

RECEIVED = 1_700_000_000_000_000


def decoder(**declared: str) -> Decoder:
    return Decoder(
        SchemaBook({"churn": {name.replace("__", "."): type_ for name, type_ in declared.items()}})
    )


def decode(decoder: Decoder, body: Any, **options: Any) -> Decoded:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    arguments: dict[str, Any] = {"kind": "records", "form": "json", "received_us": RECEIVED} | options
    return decode_body(decoder, raw, **arguments)


def record(**inputs: Any) -> dict[str, Any]:
    return {"model": "churn", "inputs": inputs}


def only(decoded: Decoded) -> list[dict[str, Any]]:
    [block] = decoded.blocks
    rows: list[dict[str, Any]] = Batch.from_arrow(block.table).to_records()
    return rows


def ipc(table: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(table)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def test_the_record_of_the_documentation_becomes_a_batch() -> None:
    sent = {
        "model": "churn", "version": "3", "id": "a1", "ts": "2026-01-05T10:00:00Z", "entity": "u7",
        "inputs": {"age": 41}, "outputs": {"label": 1, "score": 0.91}, "attrs": {"device": "web"},
    }  # fmt: skip
    decoded = decode(decoder(), sent)
    [block] = decoded.blocks
    batch = Batch.from_arrow(block.table)
    assert batch.to_arrow().equals(block.table)  # already in the column order of a Batch
    assert block.digest == batch.schema_digest
    [row] = batch.to_records()
    assert row.pop("received") == "2023-11-14T22:13:20Z"
    assert row == sent | {"weight": 1.0, "partial": False}


def test_missing_id_and_time_are_filled_in() -> None:
    rows = only(decode(decoder(), [record(a=1), record(a=2)]))
    assert len({row["id"] for row in rows}) == 2
    assert rows[0]["ts"] == rows[0]["received"]


def test_uuid7s_sort_by_time_and_carry_version_and_variant() -> None:
    ids = uuid7s(50, now_ms=1) + uuid7s(50, now_ms=2)
    assert len(set(ids)) == 100
    assert max(ids[:50]) < min(ids[50:])
    assert all(u[14] == "7" and u[19] in "89ab" and len(u) == 36 for u in ids)


@pytest.mark.parametrize(
    ("bad", "field", "reason"),
    [
        ({"model": "churm", "inputs": {"a": 1}}, "model", "did you mean 'churn'"),
        ({"inputs": {"a": 1}}, "model", "name it in every record"),
        ({"model": "churn", "input": {"a": 1}}, "input", "did you mean 'inputs'"),
        ({"model": "churn", "inputs": {"a": 1}, "label": {"y": 1}}, "label", "POST /v1/labels"),
        (record(a="x"), "inputs.a", "expected int, got text 'x'"),
        (record(a=True), "inputs.a", "expected int, got boolean True"),
        (record(a=[1]), "inputs.a", "expected int, got list of 1"),
        (record(a=2**80), "inputs.a", "expected int of 64 bits"),
        (record(a=float("nan")), "inputs.a", "nan is not a finite number"),
        (record(a=float("-inf")), "inputs.a", "-inf is not a finite number"),
        (record(a=1) | {"ts": "yesterday"}, "ts", "got 'yesterday'"),
        (record(a=1) | {"ts": "2026-01-05T10:00:00"}, "ts", "got '2026"),
        (record(a=1) | {"id": "x" * 257}, "id", "256"),
        (record(a=1) | {"id": ""}, "id", "length >= 1"),
        (record(a=1) | {"weight": 0}, "weight", "> 0"),
        (record(a=1) | {"weight": float("inf")}, "weight", "inf"),
        ({"model": "churn"}, "inputs", "needs inputs, outputs, or both"),
        (record(a=1, **{"": 1}), "inputs.", "needs a name"),
        (record(a=1, b={"c": object}), "", "")
        if False
        else (record(a=1, t="\ud800"), "inputs.t", "surrogate"),
        (7, "", "expected a JSON object, got int"),
    ],
)
def test_a_bad_record_is_rejected_alone_with_field_and_reason(bad: Any, field: str, reason: str) -> None:
    decoded = decode(decoder(), [record(a=1), bad, record(a=3)])
    assert [row["inputs"]["a"] for row in only(decoded)] == [1, 3]
    [rejection] = decoded.rejected.listed
    assert (rejection.index, rejection.field) == (1, field)
    assert reason in rejection.reason


def test_a_rejection_names_the_id() -> None:
    [rejection] = decode(decoder(inputs__a="int"), [record(a="x") | {"id": "b2"}]).rejected.listed
    assert rejection.id == "b2"


def test_a_refused_record_teaches_nothing() -> None:
    d = decoder(inputs__a="int")
    decode(d, [record(a="x", b=1)])
    assert only(decode(d, [record(a=1, b="text")]))[0]["inputs"] == {"a": 1, "b": "text"}


def test_integers_widen_to_float_and_that_opens_a_new_schema() -> None:
    d = decoder()
    first = decode(d, record(a=1)).blocks[0]
    second = decode(d, record(a=1.5)).blocks[0]
    third = decode(d, record(a=2)).blocks[0]
    assert first.digest != second.digest == third.digest
    assert third.table.column("inputs.a").to_pylist() == [2.0]


def test_a_declared_int_takes_whole_floats_and_refuses_others() -> None:
    decoded = decode(decoder(inputs__a="int"), [record(a=2.0), record(a=2.5)])
    assert only(decoded)[0]["inputs"] == {"a": 2}
    assert "expected int, got float 2.5" in decoded.rejected.listed[0].reason


def test_new_columns_are_nullable_and_missing_ones_are_null() -> None:
    d = decoder()
    first = decode(d, record(a=1)).blocks[0]
    second = decode(d, record(b="x")).blocks[0]
    assert first.digest != second.digest
    assert second.table.column("inputs.a").to_pylist() == [None]
    assert decode(d, record(a=None, b="y")).blocks[0].digest == second.digest


def test_schemas_are_recalled_from_the_journal() -> None:
    d = decoder()
    block = decode(d, record(a=1.5, image=[[1, 2], [3, 4]])).blocks[0]
    payload = block.table.schema.serialize().to_pybytes()
    again = Decoder(SchemaBook({"churn": {}}, [SchemaSeen("churn", block.digest, payload, 1)]))
    decoded = decode(again, [record(a=2), record(a="x")])
    assert decoded.blocks[0].digest == block.digest
    assert decoded.rejected.listed[0].reason == "expected float, got text 'x'"


def test_nested_objects_become_dotted_columns() -> None:
    [row] = only(decode(decoder(), record(user={"age": 1, "home": {"city": "x"}})))
    assert row["inputs"] == {"user.age": 1, "user.home.city": "x"}


def test_nested_lists_become_tensors_and_other_shapes_are_refused() -> None:
    d = decoder(inputs__image="tensor(2, 2)")
    images = [[[1, 2], [3, 4]], [[1, 2], [3]], [1, 2, 3, 4], [["a", 1], [2, 3]], [[1e300, 0], [0, 0]], None]
    decoded = decode(d, [record(image=image, n=1) for image in images])
    assert [row["inputs"].get("image") for row in only(decoded)] == [[[1.0, 2.0], [3.0, 4.0]], None]
    reasons = [rejection.reason for rejection in decoded.rejected.listed]
    assert reasons[0].startswith("expected tensor(2, 2)")
    assert "got shape (4)" in reasons[1]
    assert "more than numbers" in reasons[2]
    assert "not finite in 32 bits" in reasons[3]


def test_texts_in_a_list_do_not_explode_in_memory() -> None:
    decoded = decode(decoder(), record(a=["x" * 1_000_000] + [""] * 99_999))
    assert decoded.blocks[0].table.nbytes < 2_000_000
    decoded = decode(decoder(), record(a=[1, "x" * 1_000_000] + [""] * 99_998))
    assert decoded.rejected.listed[0].field == "inputs.a[1]"


def test_the_last_of_two_equal_keys_counts() -> None:
    body = b'{"model":"churn","inputs":{"a":1,"a":2}}'
    assert only(decode(decoder(), body))[0]["inputs"] == {"a": 2}


def test_malformed_json_is_refused_with_its_byte_position() -> None:
    with pytest.raises(ProblemError, match="at byte 9") as raised:
        decode(decoder(), '{"é": 1,,}'.encode())
    assert raised.value.problem.status == 400
    assert raised.value.problem.extra == {"position": 9}


def test_what_is_not_utf8_is_refused_with_its_byte_position() -> None:
    with pytest.raises(ProblemError, match="byte 0xff at byte 11"):
        decode(decoder(), b'{"model": "\xff"}')


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 200_000], ids=["lists", "objects"])
def test_deep_nesting_is_refused(body: bytes) -> None:
    with pytest.raises(ProblemError, match=r"limits\.depth"):
        decode(decoder(), body)


def test_nesting_beyond_the_limit_is_rejected_per_record() -> None:
    deep: Any = 1
    for _ in range(20):
        deep = {"k": deep}
    decoded = decode(decoder(), [record(a=1), record(a=1, x=deep)])
    assert decoded.accepted == 1
    assert "limits.depth" in decoded.rejected.listed[0].reason


def test_one_malformed_line_is_rejected_alone() -> None:
    body = b'{"model":"churn","inputs":{"a":1}}\n\n{"model":\n{"model":"churn","inputs":{"a":2}}\n'
    decoded = decode(decoder(), body, form="lines")
    assert [row["inputs"]["a"] for row in only(decoded)] == [1, 2]
    assert [(r.index, "at byte 9" in r.reason) for r in decoded.rejected.listed] == [(1, True)]


def test_more_records_than_allowed_are_refused() -> None:
    d = Decoder(SchemaBook({"churn": {}}), max_records=2)
    for body, form in (([record(a=1)] * 3, "json"), (b'{"model":"churn","inputs":{"a":1}}\n' * 3, "lines")):
        with pytest.raises(ProblemError, match=r"limits\.records"):
            decode(d, body, form=form)


def test_more_fields_than_columns_are_allowed_share_one() -> None:
    d = Decoder(SchemaBook({"churn": {}}), max_columns=2)
    rows = only(decode(d, [record(a=1), record(a=1, b=1), record(a=1, c=1)]))
    assert [row["inputs"] for row in rows] == [{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "__rest__": '{"c": 1}'}]


def test_large_requests_become_several_blocks() -> None:
    decoded = decode(decoder(), [record(a=i) for i in range(BLOCK_ROWS + 5)] + [record(a="x")])
    assert [block.table.num_rows for block in decoded.blocks] == [BLOCK_ROWS, 5]
    assert decoded.rejected.listed[0].index == BLOCK_ROWS + 5


def test_several_models_in_one_body_become_blocks_of_their_own() -> None:
    d = Decoder(SchemaBook({"a": {}, "b": {}}))
    decoded = decode(d, [{"model": m, "inputs": {"x": 1}} for m in "abab"])
    assert [(block.model, block.table.num_rows) for block in decoded.blocks] == [("a", 2), ("b", 2)]


def test_labels_are_a_table_of_their_own() -> None:
    sent = [
        {"model": "churn", "id": "a", "label": {"label": 1}, "source": "human", "ts": "2026-01-05T10:00:00Z"},
        {"model": "churn", "id": "b", "label": {"label": "no"}},
        {"model": "churn", "label": {"label": 1}},
        {"model": "churn", "id": "c", "label": {}},
    ]
    decoded = decode(decoder(), sent, kind="labels")
    [block] = decoded.blocks
    assert block.kind == "labels"
    ts = datetime(2026, 1, 5, 10, tzinfo=UTC)
    assert block.table.to_pylist() == [
        {"id": "a", "ts": ts, "source": "human", "entity": None, "key": None, "label.label": 1}
    ]
    assert [(r.index, r.field) for r in decoded.rejected.listed] == [
        (1, "label.label"),
        (2, "id"),
        (3, "label"),
    ]


def test_a_wrong_declaration_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"models\.churn\.columns: inputs\.a: column type must be one of"):
        decoder(inputs__a="integer")
    with pytest.raises(ConfigError, match="age"):
        SchemaBook({"churn": {"age": "int"}})


# ---- Arrow ---------------------------------------------------------------------------------------------


def test_arrow_columns_are_cast_whole() -> None:
    batch = pa.record_batch({
        "id": ["a", None], "entity": pa.array([1, 2]), "inputs.age": pa.array([1, 2], pa.int8()),
        "inputs.name": pa.array(["x", "y"]).dictionary_encode(),
        "outputs.score": pa.array([0.5, None], pa.float32()),
        "inputs.image": pa.FixedSizeListArray.from_arrays(pa.array(range(8), pa.float64()), 4),
    })  # fmt: skip
    rows = only(decode(decoder(), ipc(batch), form="arrow", model="churn"))
    assert rows[0]["id"] == "a"
    assert len(rows[1]["id"]) == 36
    assert rows[0]["entity"] == "1"
    assert rows[0]["inputs"] == {"age": 1, "name": "x", "image": [0.0, 1.0, 2.0, 3.0]}
    assert "outputs" not in rows[1]


def test_arrow_rows_that_do_not_fit_are_rejected_alone() -> None:
    batch = pa.record_batch({
        "id": ["a", "b", "c" * 300, "d"], "weight": [1.0, None, 1.0, -1.0],
        "inputs.age": pa.array([1.0, float("nan"), 1.0, 1.0]),
    })  # fmt: skip
    decoded = decode(decoder(), ipc(batch), form="arrow", model="churn")
    assert [row["id"] for row in only(decoded)] == ["a"]
    assert [(r.index, r.field) for r in decoded.rejected.listed] == [
        (1, "inputs.age"),
        (2, "id"),
        (3, "weight"),
    ]


def test_a_batch_of_one_s_own_may_be_sent_as_it_is() -> None:
    batch = Batch.from_records([{"id": "a", "inputs": {"x": [1, 2]}, "outputs": {"y": 1}}], model="churn")
    [row] = only(decode(decoder(), batch.to_ipc(), form="arrow"))
    assert row["inputs"] == {"x": [1.0, 2.0]}


def test_an_arrow_column_may_name_the_model_of_each_row() -> None:
    d = Decoder(SchemaBook({"a": {}, "b": {}}))
    batch = pa.record_batch({"model": ["a", "b", "a", "c"], "inputs.x": [1, 2, 3, 4]})
    decoded = decode(d, ipc(batch), form="arrow")
    assert [(block.model, block.table.num_rows) for block in decoded.blocks] == [("a", 2), ("b", 1)]
    assert [(r.index, r.field) for r in decoded.rejected.listed] == [(3, "model")]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"input.x": [1]}, "did you mean 'inputs.x'"),
        ({"id": ["a"]}, r"no column inputs\.\*"),
        ({"label.y": [1], "inputs.x": [1]}, "label.y"),
    ],
)
def test_unknown_arrow_columns_are_refused(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProblemError, match=reason):
        decode(decoder(), ipc(pa.record_batch(columns)), form="arrow", model="churn")


def test_compressed_arrow_buffers_are_refused_before_they_inflate() -> None:
    batch = pa.record_batch({"inputs.x": pa.array(np.zeros(100_000))})
    for codec in ("zstd", "lz4"):
        with pytest.raises(ProblemError, match="Content-Encoding"):
            decode(decoder(), ipc(batch, compression=codec), form="arrow", model="churn")


def test_every_truncation_of_an_arrow_stream_is_a_400() -> None:
    body = ipc(pa.record_batch({"id": ["a", "b"], "inputs.x": [1, 2]}))
    for length in range(len(body)):
        with pytest.raises(ProblemError) as raised:
            decode(decoder(), body[:length], form="arrow", model="churn")
        assert raised.value.problem.status == 400


def test_damaged_arrow_streams_never_crash() -> None:
    batch = pa.record_batch(
        {"id": ["a", "b"], "inputs.x": [1, 2], "inputs.t": pa.array(["u", "v"]).dictionary_encode()}
    )
    body = ipc(batch)
    rng = random.Random(0)
    for _ in range(1500):
        damaged = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(body))] = rng.randrange(256)
        with contextlib.suppress(ProblemError):
            decode(decoder(), bytes(damaged), form="arrow", model="churn")


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5),
    st.lists(st.one_of(st.integers(-5, 5), st.floats(), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), values, min_size=1), max_size=12))
@settings(max_examples=examples(150))
def test_every_record_is_accepted_or_rejected_once(dicts: list[dict[str, Any]]) -> None:
    d = decoder()
    body = [record(**inputs) | {"id": str(i)} for i, inputs in enumerate(dicts)]
    for _ in range(2):  # what was learned the first time must not change the balance
        decoded = decode(d, body)
        kept = [key for block in decoded.blocks for key in block.table.column("id").to_pylist()]
        refused = [rejection.id for rejection in decoded.rejected.listed]
        assert sorted(kept + [str(key) for key in refused]) == sorted(str(i) for i in range(len(dicts)))
