"""The fast path of JSON takes what the general way takes, and makes the same of it."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.monitor.http.problem import ProblemError
from outrider.monitor.intake.decode import Decoded, Decoder, Form
from outrider.monitor.intake.fast_json import RecordShape
from outrider.monitor.intake.group_commit import merge
from outrider.monitor.intake.schema_book import SchemaBook
from tests.soak import examples

RECEIVED = 1_700_000_000_000_000
FULL = {
    "model": "m", "id": "a", "ts": "2026-01-05T10:00:00.123456+02:00", "version": 3, "entity": "e", "seq": 4,
    "weight": 2.5, "partial": True, "inputs": {"i": 1, "f": 0.5, "s": "x", "b": True},
    "outputs": {"y": 1}, "attrs": {"é ü": "v"},
}  # fmt: skip


def learned() -> Decoder:
    """A decoder that has seen a full record."""
    decoder = Decoder(SchemaBook({"m": {}, "n": {}}))
    general(decoder, json.dumps(FULL).encode())
    return decoder


def general(decoder: Decoder, body: bytes, *, form: Form = "json", model: str | None = None) -> Decoded:
    parts, rejected = decoder.read(body, kind="records", form=form, model=model)
    return decoder.build(parts, rejected, kind="records", received_us=RECEIVED)


def fast(decoder: Decoder, body: bytes, *, form: Form = "json", model: str | None = None) -> Decoded | None:
    parts = decoder.read_known(body, form=form, model=model, received_us=RECEIVED)
    return None if parts is None else decoder.build(parts, kind="records", received_us=RECEIVED)


def same(one: Decoded, other: Decoded) -> bool:
    assert not one.rejected
    assert not other.rejected
    [left], [right] = one.blocks, other.blocks
    assert left.digest == right.digest
    return bool(left.table.equals(right.table, check_metadata=True))


@pytest.mark.parametrize(
    "record",
    [
        FULL,
        FULL | {"id": 7, "entity": -(2**63), "ts": "2026-01-05T10:00:00Z"},
        {"model": "m", "id": "a", "outputs": {"y": 2**63 - 1}},
        {"model": "m", "id": "a", "inputs": None, "outputs": {"y": -(2**63)}, "attrs": None},
        {"model": "m", "id": "a", "inputs": {"f": 2**200, "s": "\u0001😀"}},
        {"model": "m", "id": "a", "inputs": {"f": 3}, "ts": None, "weight": 1e12},
    ],
)
@pytest.mark.parametrize("lines", [False, True])
def test_what_is_taken_fast_is_what_the_general_way_makes_of_it(record: dict[str, Any], lines: bool) -> None:
    form: Form = "lines" if lines else "json"
    for body in (json.dumps(record).encode(), json.dumps(record, ensure_ascii=False).encode()):
        taken = fast(learned(), body, form=form)
        assert taken is not None
        assert same(taken, general(learned(), body, form=form))


@pytest.mark.parametrize(
    "record",
    [
        FULL | {"inputs": {"i": 1.5}},  # widens
        FULL | {"inputs": {"i": 2**63}},
        FULL | {"inputs": {"new": 1}},
        FULL | {"inputs": {}, "outputs": {}},
        FULL | {"inputs": None, "outputs": None},
        FULL | {"inputs": {"i": None}, "outputs": None},
        FULL | {"inputs": {"i": 1}, "label": {}},
        FULL | {"inputs": {"b": 1}},
        FULL | {"inputs": {"s": "\ud800"}},
        FULL | {"inputs": {"f": float("nan")}},
        FULL | {"inputs": {"s": {"nested": 1}}},
        FULL | {"weight": 0},
        FULL | {"id": ""},
        FULL | {"model": "n"},
        FULL | {"model": "unknown"},
        {"id": "a", "inputs": {"i": 1}},
    ],
)
def test_whatever_takes_a_second_look_goes_the_general_way(record: dict[str, Any]) -> None:
    bodies = [record, [FULL, record]]
    assert [fast(learned(), json.dumps(body).encode()) for body in bodies] == [None, None]


def test_a_model_named_in_the_url_counts_for_records_without_one() -> None:
    body = json.dumps({"id": "a", "inputs": {"i": 1}}).encode()
    taken = fast(learned(), body, model="m")
    assert taken is not None
    assert same(taken, general(learned(), body, model="m"))
    assert fast(learned(), json.dumps(FULL).encode(), model="n") is not None  # the record's own name counts
    assert fast(learned(), json.dumps([FULL, {"inputs": {"i": 1}}]).encode(), model="n") is None


def test_a_model_that_was_only_declared_has_a_fast_path_at_once() -> None:
    decoder = Decoder(SchemaBook({"m": {"inputs.x": "float"}}))
    taken = fast(decoder, b'{"model":"m","inputs":{"x":1}}')
    assert taken is not None
    assert taken.blocks[0].table.column("inputs.x").to_pylist() == [1.0]
    assert len(taken.blocks[0].only_id or "") == 36


def test_sparse_records_of_many_columns_are_bounded_as_ever() -> None:
    decoder = Decoder(SchemaBook({"m": {f"inputs.x{at}": "int" for at in range(500)}}))
    body = b"[" + b",".join([b'{"model":"m","inputs":{"x0":1}}'] * 50_000) + b"]"
    assert fast(decoder, body) is None
    with pytest.raises(ProblemError, match="too many in one request"):
        general(decoder, body)


def test_a_changed_schema_changes_the_shape() -> None:
    decoder = learned()
    wider = json.dumps(FULL | {"inputs": {"i": 1.5, "new": "x"}}).encode()
    assert fast(decoder, wider) is None
    general(decoder, wider)
    taken = fast(decoder, wider)
    assert taken is not None
    assert same(taken, general(decoder, wider))


def test_records_of_many_requests_become_one_entry() -> None:
    decoder = learned()
    blocks = []
    for number in range(5):
        body = json.dumps(FULL | {"id": f"r{number}", "ts": None}).encode()
        parts = decoder.read_known(body, form="json", model=None, received_us=RECEIVED + number)
        assert parts is not None
        blocks += decoder.build(parts, kind="records", received_us=RECEIVED + number).blocks
    slow = general(decoder, json.dumps([FULL | {"id": "s", "inputs": {"i": 5}}]).encode()).blocks
    assert {type(block.shape) for block in blocks} == {RecordShape}
    [entry] = merge([*blocks[:3], *slow, *blocks[3:]])
    with pa.ipc.open_stream(pa.py_buffer(entry.payload)) as reader:
        table = reader.read_all()
    assert table.column("id").to_pylist() == ["r0", "r1", "r2", "s", "r3", "r4"]
    received = [time.timestamp() * 1e6 - RECEIVED for time in table.column("received").to_pylist()]
    assert received == [0, 1, 2, 0, 3, 4]
    assert table.column("ts").to_pylist()[0] == table.column("received").to_pylist()[0]
    assert pa.ipc.read_schema(pa.py_buffer(entry.schema)).equals(table.schema, check_metadata=True)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**66), 2**66), st.floats(), st.text(max_size=4), st.just([1]),
    st.just("\ud800"), st.just({}),
)  # fmt: skip
fields = st.dictionaries(st.sampled_from(["i", "f", "s", "b", "y", "é ü"]), scalars, max_size=3)
envelopes = st.fixed_dictionaries(
    {"model": st.just("m"), "id": st.one_of(st.just("a"), st.integers(-5, 2**65), st.just(""))},
    optional={
        "inputs": st.one_of(st.none(), fields), "outputs": st.one_of(st.none(), fields),
        "attrs": st.one_of(st.none(), fields), "ts": st.sampled_from([None, "2026-01-05", FULL["ts"]]),
        "seq": scalars, "weight": scalars, "partial": scalars, "version": scalars, "entity": scalars,
    },
)  # fmt: skip


@given(st.lists(envelopes, min_size=1, max_size=3))
@settings(max_examples=examples(300))
def test_the_fast_path_never_takes_what_the_general_way_refuses(records: list[dict[str, Any]]) -> None:
    body = json.dumps(records).encode()
    taken = fast(learned(), body)
    if taken is not None:
        assert same(taken, general(learned(), body))
