"""A NUL or half of a surrogate pair in a text that a database keeps is refused by record, at every door."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.dataops.state.stored_texts import has_nul, rows_with_nul, text_fault
from outrider.monitor.client import Client
from outrider.monitor.intake.decode import Decoder, Form, RecordKind
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from tests.soak import PATIENCE_S

from .decoding import decode_body
from .test_intake import Caller, ipc, key_of, process

CONFIG = """
[server]
port = 0
[storage]
min_free_bytes = 0
[models.churn]
slice_by = "region"
group_by = ["sex"]
target = "label"
[models.support.intake]
request_models = ["gpt"]
keep_request = false
[models.v2.intake]
answers = "replica"
"""
BAD = ["a\0b", "\ud83d", "\0"]
HALF = "\ud83d"
FIELDS = ["id", "entity", "version", "attrs.region", "inputs.sex", "outputs.label"]
MIRROR = {"x-outrider-mirror": "1"}


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Caller]:
    (tmp_path / "outrider.toml").write_text(CONFIG)
    intake = ServerProcess(load_settings(tmp_path / "outrider.toml"))
    intake.writer.start()
    try:
        yield Caller(intake)
    finally:
        intake.close()


def post(call: Caller, path: str, value: Any) -> httpx.Response:
    headers = {"content-type": "application/json", "x-outrider-mirror": "1"}
    return call("POST", path, content=json.dumps(value).encode(), headers=headers)


def record(name: str = "", value: str = "", *, id_: str = "r") -> dict[str, Any]:
    made: dict[str, Any] = {
        "model": "churn", "id": id_, "entity": "e", "version": "1",
        "inputs": {"x": 1, "sex": "f"}, "outputs": {"label": "yes"}, "attrs": {"region": "eu"},
    }  # fmt: skip
    part, dot, field = name.partition(".")
    if dot:
        made[part] = made[part] | {field: value}
    elif name:
        made[name] = value
    return made


def body_of(form: str, records: list[dict[str, Any]]) -> tuple[bytes, str]:
    text = json.dumps(records).encode()
    if form == "json":
        return text, "application/json"
    if form == "lines":
        return b"\n".join(json.dumps(one).encode() for one in records), "application/x-ndjson"
    head = b'{"sizes": [], "records": ' + text + b"}"
    return len(head).to_bytes(8, "little") + head, "application/vnd.outrider.framed"


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("form", ["json", "lines", "framed"])
@pytest.mark.parametrize("field", FIELDS)
def test_records_door_refuses_a_bad_text_alone_and_names_its_field(
    call: Caller, form: str, field: str, is_known: bool
) -> None:
    if is_known:  # so that the fast path is tried
        assert call("POST", "/v1/records", json=record()).status_code == 202
    records = [record(id_="a"), *(record(field, value, id_=f"b{n}") for n, value in enumerate(BAD))]
    body, kind = body_of(form, [*records, record(id_="c")])
    answer = call("POST", "/v1/records", content=body, headers={"content-type": kind}).json()
    assert answer["accepted"] == 2, answer
    assert [(one["index"], one["field"]) for one in answer["rejected"]] == [
        (1, field),
        (2, field),
        (3, field),
    ]
    assert ["NUL" in one["reason"] for one in answer["rejected"]] == [True, False, True]


def test_a_nul_in_a_free_text_is_taken(call: Caller) -> None:
    for _ in range(2):  # once new, once known
        answer = call("POST", "/v1/records", json=record("inputs.prompt", "a\0b"))
        assert answer.json() == {"accepted": 1, "rejected": []}
    answer = call("POST", "/v1/records", json=record("inputs.prompt", r"a\u0000b"))  # says so, has none
    assert answer.json() == {"accepted": 1, "rejected": []}


def as_arrow(columns: dict[str, list[str | bytes | None]]) -> bytes:
    """A stream whose texts may be none: Arrow in Python would not write them."""
    arrays = [
        pa.array([None if one is None else one if isinstance(one, bytes) else one.encode() for one in values],
                 pa.binary()).view(pa.string())
        for values in columns.values()
    ]  # fmt: skip
    return ipc(pa.RecordBatch.from_arrays(arrays, list(columns)))


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "bad", [b"a\0b", HALF.encode("utf-8", "surrogatepass"), b"\xff"], ids=["nul", "half", "byte"]
)
def test_arrow_door_refuses_a_bad_text_alone_and_names_its_field(
    call: Caller, field: str, bad: bytes, is_known: bool
) -> None:
    if is_known:
        assert call("POST", "/v1/records", json=record()).status_code == 202
    columns: dict[str, list[str | bytes | None]] = {
        "id": ["a", "b", "c"], "entity": ["e"] * 3, "version": ["1"] * 3, "attrs.region": ["eu", None, "us"],
        "inputs.sex": ["f"] * 3, "outputs.label": ["yes"] * 3,
    }  # fmt: skip
    columns[field][1] = bad
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    answer = call("POST", "/v1/records?model=churn", content=as_arrow(columns), headers=headers).json()
    assert answer["accepted"] == 2, answer
    assert [(one["index"], one["field"]) for one in answer["rejected"]] == [(1, field)]


def unchecked(values: list[bytes]) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


NESTED = {
    "dictionary": lambda texts: pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, None, 0], pa.int8()), texts
    ),
    "list": lambda texts: pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 3, 3], pa.int32()), texts),
    "objects": lambda texts: pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3, 3, 3], pa.int32()),
        pa.StructArray.from_arrays([texts, pa.array(range(3))], ["word", "n"]),
    ),
}


@pytest.mark.parametrize(
    ("kind", "column"), [*((kind, "inputs.word") for kind in NESTED), ("dictionary", "attrs.region")]
)
def test_arrow_door_refuses_a_bad_text_inside_a_column_alone(call: Caller, kind: str, column: str) -> None:
    rows = {"id": pa.array([*"abcde"]), column: NESTED[kind](unchecked([b"x", b"\xff", b"z"]))}
    rows.setdefault("inputs.n", pa.array(range(5)))
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    for _ in range(2):  # once new, once known
        answer = call("POST", "/v1/records?model=churn", content=ipc(pa.record_batch(rows)), headers=headers)
        found = answer.json()
        assert answer.status_code == 202, found
        assert (found["accepted"], [(one["index"], one["field"]) for one in found["rejected"]]) == (
            4, [(1, column)],
        )  # fmt: skip


def test_arrow_door_refuses_a_dictionary_whose_places_lie_outside(call: Caller) -> None:
    whole = pa.array(["x", "y", "x"]).dictionary_encode()
    outside = pa.DictionaryArray.from_buffers(
        whole.type, 3, [None, pa.py_buffer(np.array([0, 1, 99], np.int32))], unchecked([b"x", b"\xff"])
    )
    body = ipc(pa.record_batch({"inputs.word": outside}))
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    answer = call("POST", "/v1/records?model=churn", content=body, headers=headers)
    assert (answer.status_code, "not a readable Arrow" in answer.text) == (400, True)


@pytest.mark.parametrize("field", ["id", "entity", "source", "label.label", "label.spans"])
@pytest.mark.parametrize("value", BAD)
def test_labels_door_refuses_a_bad_text_alone_and_names_its_field(
    call: Caller, field: str, value: str
) -> None:
    good = {
        "model": "churn",
        "id": "a",
        "entity": "e",
        "source": "s",
        "label": {"label": "yes", "spans": ["a"]},
    }
    bad = dict(good)
    if field.startswith("label."):
        inner: Any = value if field == "label.label" else ["a", value]
        bad["label"] = {"label": "yes", "spans": ["a"]} | {field.removeprefix("label."): inner}
    else:
        bad[field] = value
    answer = post(call, "/v1/labels", [good, bad, good | {"id": "c"}]).json()
    assert answer["accepted"] == 2, answer
    [one] = answer["rejected"]
    assert (one["index"], one["field"].partition("[")[0]) == (1, field)


@pytest.mark.parametrize("value", BAD)
def test_events_door_names_the_field(call: Caller, value: str) -> None:
    event = {
        "specversion": "1.0", "id": "e", "source": "s", "type": "io.seldon.serving.inference.request",
        "modelid": "v2", "data": {"instances": [{"x": 1}]},
    }  # fmt: skip
    events = [
        event,
        event | {"id": value},
        event | {"id": "c", "entity": value},
        event | {"id": "d", "source": value},
    ]
    headers = {"content-type": "application/cloudevents-batch+json"}
    answer = call("POST", "/v1/cloudevents", content=json.dumps(events).encode(), headers=headers).json()
    assert answer["accepted"] == 1, answer
    assert [(one["index"], one["field"]) for one in answer["rejected"]] == [
        (1, "id"), (2, "entity"), (3, "source"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("place", ["id", "entity", "attrs.region"])
def test_v2_door_names_the_field(call: Caller, place: str, value: str) -> None:
    request: dict[str, Any] = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}
    path = "/v2/models/v2/infer"
    assert call("POST", path, json=request, headers=MIRROR).status_code == 200
    if place == "id":
        request["id"] = value
    else:
        request["parameters"] = {{"entity": "sequence_id", "attrs.region": "region"}[place]: value}
    answer = post(call, path, request)
    said = answer.json()
    assert (answer.status_code, [one["field"] for one in said["rejected"]]) == (422, [place]), said


@pytest.mark.parametrize("value", BAD)
def test_chat_door_names_the_entity(call: Caller, value: str) -> None:
    request = {"model": "gpt", "user": value, "messages": [{"role": "user", "content": "hello"}]}
    answer = post(call, "/v1/chat/completions", request)
    assert (answer.status_code, [one["field"] for one in answer.json()["rejected"]]) == (422, ["entity"])


def test_traces_door_names_the_field(call: Caller) -> None:
    def span(number: int, conversation: str) -> dict[str, Any]:
        said = {
            "gen_ai.conversation.id": conversation, "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt",
        }  # fmt: skip
        for side, role in (("input", "user"), ("output", "assistant")):
            message = {"role": role, "parts": [{"type": "text", "content": "a"}]}
            said[f"gen_ai.{side}.messages"] = json.dumps([message])
        return {
            "traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": "chat",
            "startTimeUnixNano": "1767225600000000000", "endTimeUnixNano": "1767225601000000000",
            "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in said.items()],
        }  # fmt: skip

    spans = [span(1, "c"), span(2, "a\0b"), span(3, "d")]
    body = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    said = call("POST", "/v1/traces", json=body).json()["partialSuccess"]
    assert said["rejectedSpans"] == "1"
    assert "traces 1: entity: holds a NUL" in said["errorMessage"]


def test_client_learns_that_a_record_with_a_nul_was_refused(tmp_path: Path) -> None:
    with process(tmp_path) as (_, url):
        client = Client(url, key_of(tmp_path), model="churn")
        with client._memory.lock:  # one block
            client.capture({"x": 1}, {}, id="a")
            client.capture({"x": 1}, {}, id="b\0")
        assert client.flush(PATIENCE_S)
        counts = client.counts
        client.close()
    assert counts.acknowledged == 1


TEXTS = st.one_of(
    st.sampled_from(["eu", "", "a\0", "\ud800", "\udfff b", "\\u0000", "é", "x" * 257]),
    st.text(st.characters(codec=None), max_size=4),
)


@given(data=st.data(), form=st.sampled_from(["json", "lines", "framed"]))
@example(data=None, form="json")
def test_whatever_is_accepted_can_be_stored_anywhere(data: Any, form: Form) -> None:
    book = SchemaBook({"churn": {}}, groups={"churn": ["inputs.sex", "outputs.label"]})
    decoder = Decoder(book)
    if data is None:
        records = [record(field, value) for field in FIELDS for value in BAD]
    else:
        changes = st.tuples(st.sampled_from(FIELDS), TEXTS)
        records = [record(*data.draw(changes)) for _ in range(data.draw(st.integers(1, 6)))]
    for _ in range(2):  # unknown columns first, known ones then
        body, _kind = body_of(form, records)
        decoded = decode_body(decoder, body, form=form, received_us=1)
        assert decoded.accepted + decoded.rejected.count == len(records)
        for block in decoded.blocks:
            for name in FIELDS:
                at = block.table.schema.get_field_index(name)
                for text in block.table.column(at).to_pylist() if at >= 0 else ():
                    assert text is None or (text.encode() is not None and "\0" not in text)
        kept = [one for one in records if all(text_fault(text) is None for text in texts_of(one))]
        assert decoded.accepted <= len(kept)


def texts_of(one: dict[str, Any]) -> list[str]:
    return [
        one["id"],
        one["entity"],
        one["version"],
        *map(str, (*one["attrs"].values(), *one["outputs"].values())),
    ]


@given(
    st.lists(st.one_of(st.none(), st.text(st.sampled_from("a\0é"), max_size=3)), max_size=8),
    st.integers(0, 3),
)
def test_rows_with_nul_are_those_that_python_finds(texts: list[str | None], start: int) -> None:
    wanted = [row for row, text in enumerate(texts[start:]) if text is not None and "\0" in text]
    plain = pa.array(texts, pa.string()).slice(start)
    lists = pa.array([None if text is None else ["x", text] for text in texts], pa.list_(pa.string())).slice(
        start
    )
    objects = pa.array([{"a": text} for text in texts], pa.struct([("a", pa.string())])).slice(start)
    for array in (plain, lists, objects):
        assert rows_with_nul(array).tolist() == wanted
        assert has_nul(array) or not wanted
    assert not len(rows_with_nul(pa.array(np.arange(3))))


@pytest.mark.parametrize("kind", ["records", "labels"])
def test_names_of_fields_hold_no_nul(kind: RecordKind) -> None:
    part = {"records": "inputs", "labels": "label"}[kind]
    body = json.dumps([{"model": "churn", "id": "a", part: {"a\0": 1}}]).encode()
    [one] = decode_body(Decoder(SchemaBook({"churn": {}})), body, kind=kind, received_us=1).rejected.listed
    assert (one.field, one.reason) == (
        f"'{part}.a\\x00'",
        "names of fields are texts of at most 256 characters",
    )
