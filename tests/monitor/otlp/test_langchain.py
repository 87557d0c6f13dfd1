"""One run of LangChain agents, two deep, as two instrumentations of it exported it: both tell the same.

`record_langchain.py` made the exports with the packages that `recorded/versions.json` names.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from outrider.assertions import Batch
from outrider.assertions.library import llm

from .exports import CHAT, Receiver, receiving, span, traces
from .record_langchain import CHAIN, DOCUMENTS, FINAL, FOUND, INSTRUMENTORS

RECORDED = Path(__file__).with_name("recorded")
SEARCHED = "\n".join(DOCUMENTS)
Records = dict[str, dict[str, Any]]


def export(name: str) -> ExportTraceServiceRequest:
    found = ExportTraceServiceRequest()
    found.ParseFromString((RECORDED / f"langchain-{name}.otlp").read_bytes())
    return found


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as receiver:
        yield receiver


@pytest.fixture(params=INSTRUMENTORS)
def told(request: pytest.FixtureRequest, receiver: Receiver) -> Records:
    """Records of the run by what was answered, or by the tool that was called."""
    receiver.export(export(request.param))
    return by_answer(receiver)


def by_answer(receiver: Receiver) -> Records:
    rows = receiver.records()
    made = {row.get("outputs.answer") or tool_called(row): row for row in rows}
    assert len(made) == len(rows) == 5
    return made


def tool_called(row: dict[str, Any]) -> str:
    (call,) = json.loads(row["outputs.tool_calls"])
    return str(call["function"]["name"])


def ungrounded(row: dict[str, Any]) -> float:
    """Severity of one record."""
    batch = Batch.from_records(
        [{"inputs": {"passages": row["inputs.passages"]}, "outputs": {"answer": row["outputs.answer"]}}],
        model="m",
    )
    return float(llm.ungrounded().severities(batch)[0])


def test_passages_are_what_had_ended_before_each_call_as_text(told: Records) -> None:
    passages = {answer: row.get("inputs.passages") for answer, row in told.items()}
    assert passages == {
        "ask_researcher": None,
        "search": None,
        FOUND: [*DOCUMENTS, SEARCHED],
        FINAL: [*DOCUMENTS, SEARCHED, FOUND],
        CHAIN: [*DOCUMENTS],
    }


def test_an_agent_called_as_a_tool_does_not_support_its_own_answer(told: Records) -> None:
    assert ungrounded(told[FOUND]) > 0.9
    assert ungrounded(told[FOUND] | {"inputs.passages": [*DOCUMENTS, FOUND]}) == 0.0


def test_reasons_models_and_tools_mean_the_same_from_both(told: Records) -> None:
    for answer, row in told.items():
        calls_tool = answer in ("ask_researcher", "search")
        assert row["outputs.finish_reason"] == ("tool_calls" if calls_tool else "stop")
        assert (row["attrs.request_model"], row["attrs.response_model"]) == ("gpt-4o", "gpt-4o-2024-08-06")
        assert (row["attrs.input_tokens"], row["attrs.output_tokens"]) == (12, 3)
        assert row["attrs.temperature"] == 0.2
    (offered,) = json.loads(told[FOUND]["inputs.tools"])
    assert offered == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the handbook.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}},
                "required": ["query"],
            },
        },
    }
    assert "inputs.tools" not in told[CHAIN]


def test_both_instrumentations_say_the_same_of_a_call(tmp_path: Path) -> None:
    made: list[dict[str, dict[str, Any]]] = []
    for name in INSTRUMENTORS:
        folder = tmp_path / name
        folder.mkdir()
        with receiving(folder) as receiver:
            receiver.export(export(name))
            made.append(by_answer(receiver))
    one, other = made
    for answer in one:
        names = {*one[answer], *other[answer]} - {"attrs.stream"}  # only one of them tells
        varies = {
            "id",
            "ts",
            "received",
            "entity",
            "attrs.latency_s",
            "inputs.messages",
            "outputs.tool_calls",
        }
        for name in sorted(names - varies):
            assert one[answer].get(name) == other[answer].get(name), (answer, name)


@pytest.mark.parametrize("name", INSTRUMENTORS)
@pytest.mark.parametrize("cut", ["each", "backwards"])
def test_passages_do_not_depend_on_how_spans_are_cut_into_exports(
    receiver: Receiver, name: str, cut: str
) -> None:
    whole = export(name)
    spans = [one for group in whole.resource_spans for scope in group.scope_spans for one in scope.spans]
    spans.sort(key=lambda one: one.end_time_unix_nano)  # as a processor without batches sends them
    if cut == "backwards":  # in one export, whatever its order
        receiver.export(traces(*reversed(spans), service="helpdesk"))
    else:
        for one in spans:
            receiver.export(traces(one, service="helpdesk"))
    told = by_answer(receiver)
    assert told[FINAL]["inputs.passages"] == [*DOCUMENTS, SEARCHED, FOUND]
    assert told[FOUND]["inputs.passages"] == [*DOCUMENTS, SEARCHED]


def test_a_tool_that_is_not_said_to_have_ended_gives_nothing(receiver: Receiver) -> None:
    running = span({"openinference.span.kind": "TOOL", "output.value": "57 F"}, 9, at_s=-1)
    running.end_time_unix_nano = 0
    before = span({"openinference.span.kind": "TOOL", "output.value": "58 F"}, 8, at_s=-1, lasts_s=1.0)
    inside = span({"openinference.span.kind": "TOOL", "output.value": "59 F"}, 7, at_s=-1, lasts_s=1.1)
    receiver.export(traces(running, before, inside, span(CHAT | WHOLE_TEXT)))
    (record,) = receiver.records()
    assert record["inputs.passages"] == ["58 F"]


WHOLE_TEXT = {"gen_ai.input.messages": "How warm?", "gen_ai.output.messages": "58 F"}
RESULTS: dict[str, tuple[Any, list[str]]] = {
    "text": ("57 F", ["57 F"]),
    "JSON of the tool's own": ('{"degrees": 57, "data": {"x": 1}}', ['{"degrees": 57, "data": {"x": 1}}']),
    "a list of the tool's own": ("[1, 2]", ["[1, 2]"]),
    "an attribute that is no text": ({"degrees": 57}, ['{"degrees":57}']),
    "message of a tool": ('{"type": "tool", "data": {"type": "tool", "content": "57 F"}}', ["57 F"]),
    "message with parts": (
        '{"type": "tool", "data": {"type": "tool", "content": [{"type": "text", "text": "57 F"}]}}',
        ["57 F"],
    ),
    "parts, as in MCP": ('{"content": [{"type": "text", "text": "57 F"}]}', ["57 F"]),
    "what LangChain's callback got": ('{"output": "57 F", "kwargs": {"name": "weather"}}', ["57 F"]),
    "JSON in what the callback got": ('{"output": "{\\"degrees\\": 57}", "kwargs": {}}', ['{"degrees": 57}']),
    "documents": ('[{"page_content": "A.", "metadata": {}}, {"page_content": "B."}]', ["A.", "B."]),
    "command to the graph": (
        '{"graph": null, "update": {"messages": [{"type": "tool", "tool_call_id": "c", "content": "57 F"}]}}',
        ["57 F"],
    ),
    "nothing": ("", []),
    "an empty message": ('{"type": "tool", "data": {"type": "tool", "content": ""}}', []),
    "cut off": ('{"output": {"lc": 1, "kwa', ['{"output": {"lc": 1, "kwa']),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_of_tools_are_texts(receiver: Receiver, name: str) -> None:
    said, expected = RESULTS[name]
    result = span({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": said}, 9, at_s=-1)
    receiver.export(traces(result, span(CHAT | WHOLE_TEXT)))
    (record,) = receiver.records()
    assert record.get("inputs.passages", []) == expected


def test_results_nested_without_end_are_no_error(receiver: Receiver) -> None:
    deep = '{"lc":1,"kwargs":' * 500 + "{}" + "}" * 500
    result = span({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": deep}, 9, at_s=-1)
    receiver.export(traces(result, span(CHAT | WHOLE_TEXT)))
    (record,) = receiver.records()
    assert record["inputs.passages"] == [deep]
