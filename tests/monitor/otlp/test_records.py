"""What an export becomes: records, notes, answers."""

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from .exports import (
    ASKED,
    CHAT,
    PROTOBUF,
    SAID,
    START_NS,
    TRACE,
    WHOLE,
    Receiver,
    as_json,
    log,
    logs,
    receiving,
    span,
    traces,
)

FIRST = f"{TRACE}-0000000000000001"
DETAILS = "gen_ai.client.inference.operation.details"
ASKED_TEXT = '[{"content":"Weather in Paris?","role":"user"}]'


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as running:
        yield running


def known(record: dict[str, Any]) -> dict[str, Any]:
    """Fields of a record alone."""
    return {name: value for name, value in record.items() if "." in name}


def test_a_call_becomes_one_record_with_all_columns(receiver: Receiver) -> None:
    attributes = WHOLE | {
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cost": 0.001,
        "gen_ai.response.time_to_first_chunk": 0.125,
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": "conv-7",
        "gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "get_weather"}]),
        "server.address": "api.example.com",
    }
    answer = receiver.export(traces(span(attributes)))
    assert answer.content == b""
    assert answer.headers["content-type"] == PROTOBUF
    (record,) = receiver.records()
    assert record["id"] == FIRST
    assert record["entity"] == "conv-7"
    assert record["ts"] == datetime.fromtimestamp(START_NS / 1e9, UTC)
    assert record["partial"] is False
    assert known(record) == {
        "inputs.prompt": "Weather in Paris?",
        "inputs.messages": ASKED_TEXT,
        "inputs.tools": '[{"function":{"name":"get_weather"},"type":"function"}]',
        "outputs.answer": "Rainy.",
        "outputs.finish_reason": "stop",
        "attrs.request_model": "gpt-4o",
        "attrs.response_model": "gpt-4o-2024-08-06",
        "attrs.temperature": 0.5,
        "attrs.input_tokens": 12,
        "attrs.output_tokens": 3,
        "attrs.cost_usd": 0.001,
        "attrs.first_token_s": 0.125,
        "attrs.stream": True,
        "attrs.latency_s": 0.5,
    }


@pytest.mark.parametrize("encode", ["protobuf", "json", "gzip"])
def test_every_encoding_gives_the_same_record(tmp_path: Path, encode: str) -> None:
    export = traces(span(WHOLE | {"gen_ai.usage.input_tokens": 2**40, "gen_ai.request.temperature": 1.0}))
    body = as_json(export) if encode == "json" else export.SerializeToString()
    with receiving(tmp_path) as receiver:
        if encode == "gzip":
            answer = receiver.post("/v1/traces", gzip.compress(body), **{"content-encoding": "gzip"})
        elif encode == "json":
            answer = receiver.post("/v1/traces", body, "application/json; charset=utf-8")
            assert answer.json() == {}
        else:
            answer = receiver.post("/v1/traces", body)
        assert answer.status_code == 200, answer.text
        (record,) = receiver.records()
    assert record["id"] == FIRST
    assert known(record) == {
        "inputs.prompt": "Weather in Paris?",
        "inputs.messages": ASKED_TEXT,
        "outputs.answer": "Rainy.",
        "outputs.finish_reason": "stop",
        "attrs.request_model": "gpt-4o",
        "attrs.input_tokens": 2**40,
        "attrs.temperature": 1.0,
        "attrs.latency_s": 0.5,
    }


def test_a_sampled_call_stands_for_those_that_were_not_kept(receiver: Receiver) -> None:
    sampled = span(WHOLE)
    sampled.trace_state = "ot=th:c"
    receiver.export(traces(sampled, span(WHOLE, 2)))
    assert [record["weight"] for record in receiver.records()] == [4.0, 1.0]


def test_without_a_conversation_the_trace_is_the_entity(receiver: Receiver) -> None:
    receiver.export(traces(span(WHOLE)))
    assert [record["entity"] for record in receiver.records()] == [TRACE]


def test_spans_that_are_no_calls_are_ignored_and_counted(receiver: Receiver) -> None:
    others = [
        span({"http.request.method": "POST"}, 2),
        span({"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e5"}, 3),
        span({"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "gpt-4o"}, 4),
        span({"openinference.span.kind": "CHAIN", "output.value": "no call"}, 5),
    ]
    answer = receiver.export(traces(*others, span(WHOLE)))
    assert answer.content == b""
    assert [record["id"] for record in receiver.records()] == [FIRST]
    assert receiver.counted("traces", "ignored") == 4
    assert receiver.counted("traces", "call") == 1


def test_retrieved_passages_come_from_the_same_and_from_an_earlier_export(receiver: Receiver) -> None:
    first = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": "It rains."}
    second = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": "57 degrees"}
    later = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": "Too late."}
    receiver.export(traces(span(first, 2, at_s=-2)))
    receiver.export(traces(span(later, 3, at_s=2), span(WHOLE), span(second, 4, at_s=-1)))
    other = "0af7651916cd43dd8448eb211c80319c"
    receiver.export(traces(span(WHOLE, 5, trace=other)))
    found = {record["id"]: record.get("inputs.passages") for record in receiver.records()}
    assert found == {FIRST: ["It rains.", "57 degrees"], f"{other}-0000000000000005": None}


def test_passages_and_parts_that_wait_survive_a_restart(tmp_path: Path) -> None:
    retrieved = {
        "openinference.span.kind": "RETRIEVER",
        "retrieval.documents.0.document.content": "It rains.",
    }
    with receiving(tmp_path) as receiver:
        receiver.export(traces(span(retrieved, 2, at_s=-2)))
        receiver.export(logs(log("gen_ai.user.message", {"content": "Weather in Paris?"})))
        assert receiver.records() == []
    with receiving(tmp_path) as receiver:
        receiver.export(traces(span(CHAT)))
        receiver.export(logs(log("gen_ai.choice", {"index": 0, "message": {"content": "Rainy."}})))
        (record,) = receiver.records()
        assert record["inputs.passages"] == ["It rains."]
        assert (record["inputs.prompt"], record["outputs.answer"]) == ("Weather in Paris?", "Rainy.")
        receiver.give_up(3600)
        assert receiver.intake.journal.notes() == []
        assert len(receiver.records()) == 1


MESSAGES = [
    log("gen_ai.system.message", {"content": "Be brief."}),
    log("gen_ai.user.message", {"content": "Weather in Paris?"}),
]
CHOICE = log("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "Rainy."}})
ORDERS: dict[str, list[Any]] = {
    "questions, span, answer": [logs(*MESSAGES), traces(span(CHAT)), logs(CHOICE)],
    "span, questions, answer": [traces(span(CHAT)), logs(*MESSAGES), logs(CHOICE)],
    "all logs, span": [logs(*MESSAGES, CHOICE), traces(span(CHAT))],
    "one by one": [logs(MESSAGES[0]), logs(MESSAGES[1]), logs(CHOICE), traces(span(CHAT))],
    "repeated": [logs(*MESSAGES), logs(*MESSAGES), logs(CHOICE), traces(span(CHAT)), traces(span(CHAT))],
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_span_and_its_log_events_become_one_record_in_any_order(receiver: Receiver, order: str) -> None:
    for export in ORDERS[order]:
        receiver.export(export)
    receiver.give_up(3600)
    (record,) = receiver.records()
    assert (record["id"], record["partial"], record["ts"]) == (
        FIRST,
        False,
        datetime.fromtimestamp(START_NS / 1e9, UTC),
    )
    assert known(record) == {
        "inputs.prompt": "Weather in Paris?",
        "inputs.system": "Be brief.",
        "inputs.messages": '[{"content":"Be brief.","role":"system"},' + ASKED_TEXT[1:],
        "outputs.answer": "Rainy.",
        "outputs.finish_reason": "stop",
        "attrs.request_model": "gpt-4o",
        "attrs.latency_s": 0.5,
    }
    assert receiver.intake.journal.notes() == []


def test_details_of_an_operation_join_their_span(receiver: Receiver) -> None:
    told = {"gen_ai.input.messages": ASKED, "gen_ai.output.messages": SAID}
    receiver.export(logs(log(DETAILS, attributes=CHAT | told)))
    receiver.export(traces(span(CHAT | {"gen_ai.usage.output_tokens": 3})))
    (record,) = receiver.records()
    assert (record["inputs.prompt"], record["outputs.answer"]) == ("Weather in Paris?", "Rainy.")
    assert (record["attrs.output_tokens"], record["attrs.latency_s"]) == (3, 0.5)


def test_content_on_the_span_and_in_a_log_event_is_one_record(receiver: Receiver) -> None:
    event = logs(log(DETAILS, attributes=CHAT | {"gen_ai.input.messages": ASKED}))
    receiver.export(event)
    receiver.export(traces(span(WHOLE)))
    receiver.export(event)
    receiver.give_up(3600)
    assert [record["id"] for record in receiver.records()] == [FIRST]
    assert receiver.counted("logs", "late") == 1
    assert receiver.intake.journal.notes() == []


def test_details_outside_of_a_span_are_a_record_and_single_messages_are_refused(receiver: Receiver) -> None:
    told = CHAT | {"gen_ai.input.messages": ASKED, "gen_ai.output.messages": SAID}
    answer = receiver.post(
        "/v1/logs",
        as_json(
            logs(log(DETAILS, number=0, attributes=told), log("gen_ai.user.message", {"content": "?"}, 0))
        ),
        "application/json",
    )
    told_back = answer.json()["partialSuccess"]
    assert told_back["rejectedLogRecords"] == "1"
    assert "traceId and spanId expected" in told_back["errorMessage"]
    assert [record["outputs.answer"] for record in receiver.records()] == ["Rainy."]


def test_a_span_without_messages_is_given_up_as_partial(receiver: Receiver) -> None:
    receiver.export(traces(span(CHAT | {"gen_ai.usage.output_tokens": 3})))
    receiver.give_up(29)
    assert receiver.records() == []
    receiver.give_up(31)
    (record,) = receiver.records()
    assert (record["id"], record["partial"], record["attrs.output_tokens"]) == (FIRST, True, 3)
    assert receiver.counted("traces", "partial") == 1


def test_questions_alone_wait_as_long_as_an_answer_may_take(receiver: Receiver) -> None:
    receiver.export(logs(*MESSAGES))
    receiver.give_up(60)
    assert receiver.records() == []
    receiver.export(logs(CHOICE))
    receiver.export(traces(span(CHAT)))
    assert [record["partial"] for record in receiver.records()] == [False]


def test_a_span_behind_its_log_events_that_were_given_up_is_a_partial_record_of_its_own(
    receiver: Receiver,
) -> None:
    receiver.export(logs(*MESSAGES, CHOICE))
    receiver.give_up(31)
    receiver.export(traces(span(CHAT)))
    assert [(record["id"], record["partial"]) for record in receiver.records()] == [
        (FIRST, True),
        (f"{FIRST}:span", True),
    ]


def test_a_call_that_failed_is_not_waited_for(receiver: Receiver) -> None:
    failed = {name: value for name, value in WHOLE.items() if name != "gen_ai.output.messages"}
    receiver.export(traces(span(failed, error="deadline exceeded")))
    (record,) = receiver.records()
    assert (record["attrs.error"], record["partial"]) == ("deadline exceeded", False)
    assert "outputs.answer" not in record


MODELS = """
[models.support.intake]
otel_service = "helpdesk"
[models.search.intake]
request_models = ["gpt-4o*"]
[models.llama]
"""


def test_service_and_name_say_which_model_is_meant_and_others_are_refused(tmp_path: Path) -> None:
    def call(number: int, name: str) -> Any:
        return span(WHOLE | {"gen_ai.request.model": name}, number)

    with receiving(tmp_path, MODELS) as receiver:
        receiver.export(traces(call(1, "gpt-4o"), call(2, "anything"), service="helpdesk"))
        receiver.export(traces(call(3, "gpt-4o-mini"), call(4, "llama"), service="shop"))
        answer = receiver.export(traces(call(5, "mistral"), call(6, "gpt-4o"), service="shop"))
        said = ExportTraceServiceResponse.FromString(answer.content).partial_success
        assert said.rejected_spans == 1
        assert "calls of 'mistral' by service 'shop'" in said.error_message
        assert "request_models or otel_service" in said.error_message
        assert receiver.counted("traces", "rejected") == 1
        none = receiver.export(traces(call(7, "mistral"), service="shop"))
        assert ExportTraceServiceResponse.FromString(none.content).partial_success.rejected_spans == 1
        blocks = receiver.intake.journal.read(0)
    rows = {block.model: 0 for block in blocks}
    for block in blocks:
        rows[block.model] += block.rows
    assert rows == {"support": 2, "search": 2, "llama": 1}


def test_a_bad_call_is_refused_alone(receiver: Receiver) -> None:
    receiver.export(traces(span(WHOLE | {"gen_ai.request.temperature": 0.5})))
    worse = [
        span(WHOLE | {"gen_ai.request.temperature": float("nan")}, 2),
        span(WHOLE, 3, trace=""),
        span(WHOLE, 4),
    ]
    answer = receiver.export(traces(*worse))
    said = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert said.rejected_spans == 2
    assert "attrs.temperature" in said.error_message
    assert "trace id of 16 bytes" in said.error_message
    assert [record["id"][-1] for record in receiver.records()] == ["1", "4"]


def test_errors_speak_the_encoding_of_the_request(receiver: Receiver) -> None:
    broken = receiver.post("/v1/traces", b"\xff\xff")
    assert (broken.status_code, broken.headers["content-type"]) == (400, PROTOBUF)
    assert b"ExportTraceServiceRequest" in broken.content
    malformed = receiver.post("/v1/logs", b'{"resourceLogs": 3}', "application/json")
    assert malformed.status_code == 400
    assert "resourceLogs" in malformed.json()["message"]
    unknown = receiver.post("/v1/traces", b"", "text/plain")
    assert unknown.status_code == 415
    assert "application/x-protobuf" in unknown.json()["message"]
    receiver.intake.writer.close()
    gone = receiver.post("/v1/traces", traces(span(WHOLE)).SerializeToString())
    assert gone.status_code == 503
    assert gone.headers["retry-after"] == "1"


def test_half_a_character_costs_no_export(receiver: Receiver) -> None:
    body = as_json(traces(span(WHOLE))).replace(b"Rainy.", rb"Rainy. \\ud83d")
    answer = receiver.post("/v1/traces", body, "application/json")
    assert answer.json() == {}
    body = as_json(traces(span(CHAT | {"gen_ai.input.messages": "Hi", "gen_ai.output.messages": "R."}, 2)))
    answer = receiver.post("/v1/traces", body.replace(b'"R."', rb'"R. \ud83d"'), "application/json")
    assert answer.json() == {}
    assert [record["outputs.answer"] for record in receiver.records()] == ["Rainy. ?", "R. ?"]


def test_an_empty_export_is_a_success(receiver: Receiver) -> None:
    assert receiver.post("/v1/traces", b"").status_code == 200
    assert receiver.post("/v1/logs", b"{}", "application/json").json() == {}
    assert receiver.records() == []


def test_what_was_not_written_waits_until_it_is_sent_again(receiver: Receiver) -> None:
    receiver.export(logs(*MESSAGES, CHOICE))
    ended = traces(span(CHAT)).SerializeToString()
    journal, full = receiver.intake.journal, receiver.intake.journal.append

    def refuse(*_: Any, **__: Any) -> list[int]:
        raise OSError("the disk has gone")

    journal.append = refuse  # type: ignore[method-assign]
    assert receiver.post("/v1/traces", ended).status_code == 503
    journal.append = full  # type: ignore[method-assign]
    assert receiver.post("/v1/traces", ended).status_code == 200
    assert [(record["id"], record["partial"]) for record in receiver.records()] == [(FIRST, False)]
    receiver.give_up(3600)
    assert journal.notes() == []
    assert len(receiver.records()) == 1


def test_messages_nested_to_the_edge_of_what_can_be_read_refuse_their_span_alone(receiver: Receiver) -> None:
    refused = 0
    depths = range(900, 1000)  # where the edge lies depends on how deep the stack is already
    for depth in depths:
        deep = {"gen_ai.input.messages": "[" * depth + "]" * depth}
        number = 2 * depth
        answer = receiver.export(traces(span(WHOLE | deep, number), span(WHOLE, number + 1)))
        told = ExportTraceServiceResponse.FromString(answer.content).partial_success
        assert told.rejected_spans <= 1
        refused += told.rejected_spans
    assert len(receiver.records()) == 2 * len(depths) - refused
