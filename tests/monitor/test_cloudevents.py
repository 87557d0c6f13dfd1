"""Events of inference calls: the official library's, and those of KServe, Seldon and MLServer as recorded."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v03.event import CloudEvent as OldCloudEvent
from cloudevents.core.v1.event import CloudEvent

from outrider.assertions import Batch
from outrider.dataops.journal.journal import SqliteJournal
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings

from .event_payloads import IRIS, Call, kserve, mlserver, seldon
from .test_intake import Caller

CONFIG = """
[server]
port = 0
[storage]
min_free_bytes = 0
[intake]
join_s = 60
[models.iris]
inputs = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
[models.iris.intake]
request_models = ["sklearn-iris", "classifier"]
missing_inputs = "flag"
entity_header = "x-user"
[models.mirrored]
[models.mirrored.intake]
answers = "replica"
[models.chat]
"""
FIELDS = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
FIRST, SECOND = (dict(zip(FIELDS, row, strict=True)) for row in IRIS)
V2_REQUEST = {
    "id": "body-id",
    "inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": IRIS}],
}
V2_RESPONSE = {
    "model_name": "iris",
    "model_version": "v0.1.0",
    "id": "body-id",
    "outputs": [{"name": "predict", "shape": [2, 1], "datatype": "INT64", "data": [1, 2]}],
}


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Caller]:
    path = tmp_path / "outrider.toml"
    path.write_text(CONFIG)
    intake = ServerProcess(load_settings(path))
    intake.writer.start()
    yield Caller(intake)
    intake.close()


def send(call: Caller, event: Call, query: str = "") -> httpx.Response:
    headers, body = event
    return call("POST", f"/v1/cloudevents{query}", headers=headers, content=body)


def records(call: Caller) -> list[dict[str, Any]]:
    journal = SqliteJournal(call.intake.settings.journal_path, read_only=True)
    blocks = [block for block in journal.read(0, limit=1000) if block.kind == "records"]
    journal.close()
    return [record for block in blocks for record in Batch.from_ipc(block.payload).to_records()]


def official(side: str, data: Any, *, kind: type[BaseCloudEvent] = CloudEvent, **more: Any) -> BaseCloudEvent:
    attributes = {
        "type": f"org.kubeflow.serving.inference.{side}",
        "source": "http://localhost:9081/",
        "id": "a b/ü%",
        "time": datetime(2026, 1, 5, 10, tzinfo=UTC),
        "datacontenttype": "application/json",
        "inferenceservicename": "iris",
    }
    attributes["specversion"] = "0.3" if kind is OldCloudEvent else "1.0"
    return kind(attributes=attributes | more, data=data)


@pytest.mark.parametrize("kind", [CloudEvent, OldCloudEvent])
@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
def test_events_of_the_official_library_are_joined(call: Caller, kind: Any, write: Any) -> None:
    request = write(official("request", {"instances": IRIS[:1]}, kind=kind))
    response = write(official("response", {"predictions": [1]}, kind=kind))
    for message in (request, response):
        assert send(call, (message.headers, message.body)).status_code == 202
    (record,) = records(call)
    assert (record["id"], record["ts"]) == ("a b/ü%", "2026-01-05T10:00:00Z")
    assert (record["inputs"], record["outputs"]) == (FIRST, {"label": 1})


@pytest.mark.parametrize("kind", [CloudEvent, OldCloudEvent])
def test_binary_data_of_structured_events_is_unpacked(call: Caller, kind: Any) -> None:
    data = json.dumps({"instances": IRIS[:1]}).encode()
    message = to_structured_event(
        official("request", data, kind=kind, datacontenttype="application/octet-stream")
    )
    assert base64.b64encode(data) in message.body
    assert send(call, (message.headers, message.body)).json() == {"accepted": 1, "rejected": []}


def test_a_batch_of_events_is_taken_event_by_event(call: Caller) -> None:
    events = [
        official("request", {"instances": IRIS[:1]}, id="a"),
        official("response", {"predictions": [0.5]}, id="b"),
        official("request", {"instances": 7}, id="c"),
        official("outlier", {}, id="d"),
        official("response", {"predictions": [1.5]}, id="a"),
        official("request", {"instances": IRIS[1:]}, id="b"),
    ]
    listed = [json.loads(to_structured_event(event).body) for event in events]
    listed[5]["source"] = ""  # the library would not
    headers = {"content-type": "application/cloudevents-batch+json; charset=utf-8"}
    answer = send(call, (headers, json.dumps([*listed, 8]).encode()))
    assert (answer.status_code, answer.json()["accepted"]) == (202, 3)
    rejected = {one["index"]: (one["id"], one["field"]) for one in answer.json()["rejected"]}
    assert rejected == {2: ("c", "data"), 3: ("d", "type"), 5: (None, "source"), 6: (None, "")}
    assert "instances: a list" in answer.json()["rejected"][0]["reason"]


def test_kserve_v1_requests_and_responses_become_records(call: Caller) -> None:
    send(call, kserve("request", {"instances": IRIS}))
    assert records(call) == []
    send(call, kserve("response", {"predictions": [1, 2]}))
    first, second = records(call)
    assert first["id"] == "0009174a-24a8-4603-b098-09c8799950e9:0"
    assert (first["inputs"], first["outputs"]) == (FIRST, {"label": 1})
    assert (second["inputs"], second["outputs"]) == (SECOND, {"label": 2})
    assert first["attrs"] == {"namespace": "kserve-test", "component": "predictor", "endpoint": "default"}
    assert first["ts"] == "2026-01-05T10:00:00.348264Z"


def test_the_response_may_come_first(call: Caller) -> None:
    send(call, kserve("response", {"predictions": [[0.25, 0.75]]}))
    send(call, kserve("request", {"instances": [{"sepal_length": 6.8, "place": "here"}]}))
    (record,) = records(call)
    assert record["inputs"] == {"sepal_length": 6.8, "place": "here"}
    assert record["outputs"] == {"predictions": [0.25, 0.75]}


def test_headers_that_kserve_passes_on_name_the_record_but_none_else_is_kept(call: Caller) -> None:
    metadata = {"X-Request-Id": ["r1"], "X-User": ["u7"], "Authorization": ["Bearer secret"]}
    more = {"ce-metadata": json.dumps(metadata), "x-request-id": "of the delivery"}
    answer = send(call, kserve("request", {"instances": IRIS[:1]}, **more))
    assert answer.headers["x-outrider-id"] == "r1"
    send(call, kserve("response", {"predictions": [1]}, **more | {"x-request-id": "of another delivery"}))
    (record,) = records(call)
    assert (record["id"], record["entity"], record["outputs"]) == ("r1", "u7", {"label": 1})
    assert "secret" not in call.intake.settings.journal_path.read_bytes().decode("latin-1")


def test_tensors_are_read_with_and_without_bytes_behind_the_json(call: Caller) -> None:
    send(call, mlserver("request", V2_REQUEST))
    send(call, mlserver("response", V2_RESPONSE))
    assert [record["outputs"] for record in records(call)] == [{"predict": 1}, {"predict": 2}]
    assert records(call)[0]["version"] == "v0.1.0"
    head = {
        "inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}]
    }
    body = json.dumps(head).encode() + bytes(16)
    octets = {"content-type": "application/octet-stream"}
    assert send(call, kserve("request", body, id_="bin", **octets)).json()["accepted"] == 1
    tensor = {"name": "predict", "shape": [1], "datatype": "INT64", "data": [3]}
    send(call, kserve("response", {"model_name": "iris", "outputs": [tensor]}, id_="bin"))
    assert records(call)[-1]["id"] == "bin"


@pytest.mark.parametrize(
    ("request_body", "response_body", "inputs", "outputs"),
    [
        (
            {"data": {"names": FIELDS, "ndarray": IRIS[:1]}},
            {"data": {"names": ["t:0", "t:1"], "ndarray": [[0.25, 0.75]]}, "meta": {"puid": "x"}},
            FIRST,
            {"t:0": 0.25, "t:1": 0.75},
        ),
        (
            {"data": {"names": ["a", "b"], "tensor": {"shape": [1, 2], "values": [1, 2]}}},
            {
                "data": {"names": [], "tensor": {"shape": [1], "values": [0.5]}},
                "meta": {"tags": {"route": "b"}},
            },
            {"a": 1.0, "b": 2.0},
            {"label": 0.5},
        ),
        (
            {"strData": "good film"},
            {"strData": "positive"},
            {"instances": "good film"},
            {"label": "positive"},
        ),
        ({"jsonData": {"age": 41}}, {"jsonData": {"score": 0.5}}, {"age": 41}, {"score": 0.5}),
    ],
)
def test_seldon_bodies_are_joined_by_request_id(
    call: Caller, request_body: Any, response_body: Any, inputs: Any, outputs: Any
) -> None:
    send(call, seldon("request", request_body, event="e1"))
    send(call, seldon("response", response_body, event="e2"))
    (record,) = records(call)
    assert (record["id"], record["inputs"], record["outputs"]) == ("92c8a6d1", inputs, outputs)
    tags = response_body.get("meta", {}).get("tags", {})
    assert record["attrs"] == {"namespace": "seldon", "endpoint": "default"} | tags


def test_chat_calls_that_kserve_logs_get_the_columns_of_chat_calls(call: Caller) -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "Two and two?"}], "temperature": 0}
    said = {
        "id": "cmpl-1",
        "model": "m-2",
        "choices": [{"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1},
    }
    for event in (kserve("request", asked), kserve("response", said)):
        assert send(call, event, "?model=chat").status_code == 202
    (record,) = records(call)
    assert record["inputs"]["prompt"] == "Two and two?"
    assert record["outputs"] == {"answer": "4", "finish_reason": "stop"}
    assert (record["attrs"]["request_model"], record["attrs"]["output_tokens"]) == ("m", 1)


def test_a_streamed_answer_is_put_together(call: Caller) -> None:
    pieces = ["Two", " and", " two"]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"content": text}}]} for text in pieces
    ]
    chunks[0]["model"] = "m-2"
    for name, arguments in (("add", '{"a":'), ("", "2}")):
        part = {"index": 0, "function": {"name": name, "arguments": arguments}}
        chunks.append({"choices": [{"index": 0, "delta": {"tool_calls": [part]}}]})
    chunks.append({"choices": [{"index": 1, "delta": {"content": "other"}}]})
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    stream = "".join([*lines, "data: [DONE]\n\n"]).encode()
    send(
        call,
        kserve("request", {"messages": [{"role": "user", "content": "?"}], "stream": True}),
        "?model=chat",
    )
    assert send(call, kserve("response", stream), "?model=chat").status_code == 202
    (record,) = records(call)
    assert record["outputs"] == {
        "answer": "Two and two",
        "finish_reason": "stop",
        "tool_calls": '[{"function":{"arguments":"{\\"a\\":2}","name":"add"}}]',
    }
    assert (record["attrs"]["response_model"], record["attrs"]["output_tokens"]) == ("m-2", 3)


def test_the_columnar_form_of_tensorflow_is_one_record_per_element(call: Caller) -> None:
    send(call, kserve("request", {"inputs": {"a": [1, 2], "b": ["x", "y"]}}), "?model=chat")
    send(call, kserve("response", {"outputs": [0.5, 0.25]}), "?model=chat")
    assert [(r["inputs"], r["outputs"]) for r in records(call)] == [
        ({"a": 1, "b": "x"}, {"label": 0.5}),
        ({"a": 2, "b": "y"}, {"label": 0.25}),
    ]


def test_instances_without_names_and_encoded_bytes_are_taken(call: Caller) -> None:
    image = base64.b64encode(bytes(range(200))).decode()
    send(
        call,
        kserve("request", {"instances": [{"picture": {"b64": image}, "x": 1}, {"b64": image}, []]}),
        "?model=chat",
    )
    answer = send(call, kserve("response", {"predictions": [1, 2, 3]}), "?model=chat")
    assert answer.json() == {"accepted": 3, "rejected": []}
    first, second = (record["inputs"] for record in records(call)[:2])
    assert first["x"] == 1
    assert first["picture"] == second["instances"]
    send(call, kserve("request", {"instances": [5, 6]}, id_="b"), "?model=mirrored")
    assert records(call)[-1]["inputs"] == {"instances": 6}


def test_requests_of_a_model_that_its_replica_answers_do_not_wait(call: Caller) -> None:
    send(call, kserve("request", {"instances": [[1, 2]]}), "?model=mirrored")
    assert [(r["inputs"], bool(r.get("partial"))) for r in records(call)] == [({"instances": [1, 2]}, False)]
    answer = send(call, kserve("response", {"predictions": [1]}), "?model=mirrored")
    assert answer.status_code == 422
    assert "replica" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("change", "body", "status", "says"),
    [
        ({"ce-specversion": "2.0"}, {"instances": [1]}, 422, "expected 1.0 or 0.3"),
        ({"ce-id": ""}, {"instances": [1]}, 422, "id: expected a text"),
        ({"ce-type": "com.example.order"}, {"instances": [1]}, 422, "inference.request"),
        ({"ce-time": "yesterday"}, {"instances": [[1, 2, 3, 4]]}, 422, "ts: "),
        ({"ce-inferenceservicename": "other"}, {"instances": [1]}, 422, "request_models"),
        ({}, b"{", 422, "malformed JSON"),
        ({}, [1], 422, "a JSON object"),
        ({}, {}, 422, "expected instances, inputs"),
        ({}, {"instances": []}, 422, "at least one element"),
        ({}, b'{"instances\x8b": [1]}', 422, "not UTF-8"),
        ({}, {"\ud800": 1}, 422, "expected instances, inputs"),
        ({}, {"inputs": [{"datatype": "FP32", "\ud800": 1}]}, 422, "V2 body"),
        ({}, {"error": "model is not ready"}, 422, "model is not ready"),
        ({}, {"data": {"tensor": {"shape": [3], "values": [1, 2]}}}, 422, "data.tensor"),
        ({}, {"inputs": {"a": [1], "b": [1, 2]}}, 422, "lists of one length"),
        ({"content-type": "application/cloudevents+xml"}, b"<event/>", 415, "is not known"),
        ({"content-type": "application/cloudevents-batch+json"}, {"id": "a"}, 400, "a list of events"),
    ],
)
def test_what_cannot_be_read_is_named(
    call: Caller, change: dict[str, str], body: Any, status: int, says: str
) -> None:
    answer = send(call, kserve("request", body, **change))
    assert (answer.status_code, says in answer.json()["detail"]) == (status, True), answer.json()


def test_numbers_that_are_none_and_texts_that_are_none_are_refused_in_structured_events_too(
    call: Caller,
) -> None:
    event = json.loads(to_structured_event(official("request", {})).body)
    listed = [
        event | {"id": "a", "data": {"instances": [[1, 2, 3, float("nan")]]}},
        event | {"id": "\ud800", "data": {"instances": [[1, 2, 3, 4]]}},
        event | {"id": "c", "data": {"instances": ["\ud800"]}},
        event | {"id": "d", "data": json.dumps({"instances": [[1, 2, 3, 4]]})},
    ]
    headers = {"content-type": "application/cloudevents-batch+json"}
    answer = send(call, (headers, json.dumps(listed).encode()))
    assert {r["index"]: r["field"] for r in answer.json()["rejected"]} == {
        0: "inputs.petal_width",
        1: "id",
        2: "inputs.instances",
    }
    assert answer.json()["accepted"] == 1


def test_a_request_that_is_no_event_is_told_what_one_is(call: Caller) -> None:
    answer = call("POST", "/v1/cloudevents", json={"instances": [1]})
    assert (answer.status_code, "ce-specversion" in answer.json()["detail"]) == (415, True)


def test_an_event_nested_to_the_edge_of_what_can_be_read_is_refused_alone(call: Caller) -> None:
    event = json.loads(to_structured_event(official("request", {"instances": [[1, 2, 3, 4]]})).body)
    headers = {"content-type": "application/cloudevents-batch+json"}
    told = set()
    for depth in range(900, 1000):  # where the edge lies depends on how deep the stack is already
        deep = json.dumps(event | {"id": "deep", "data": {"messages": "$"}})
        deep = deep.replace('"$"', "[" * depth + "]" * depth)
        body = f"[{deep}, {json.dumps(event | {'id': str(depth)})}]"
        answer = send(call, (headers, body.encode()))
        assert answer.status_code in (202, 400), (depth, answer.json())
        told |= {one["field"] for one in answer.json().get("rejected", ())}
    assert told <= {"data", ""}
