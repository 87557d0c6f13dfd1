"""Every convention says the same of the same call: GenAI old and new, OpenInference, OpenLLMetry, vLLM."""

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.monitor.intake.protocols.otlp import json_form, protobuf
from outrider.monitor.intake.protocols.otlp.attributes import SpanAttributes
from outrider.monitor.intake.protocols.otlp.call import Call
from outrider.monitor.intake.protocols.otlp.semantic_conventions import (
    call_of_span,
    passages_of_span,
    role_of,
)

from .exports import CHAT, as_json, span, traces

PUBLIC = Path(__file__).parents[2] / "data_files" / "public_cases"

WEATHER = {"name": "get_weather", "arguments": '{"city":"Paris"}'}
ASKED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Paris?"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": WEATHER}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rainy, 57 F"},
]
EXPECTED = {
    "inputs.prompt": "Weather in Paris?",
    "inputs.system": "Be brief.",
    "outputs.answer": "Rainy.",
    "outputs.finish_reason": "stop",
    "attrs.request_model": "gpt-4o",
    "attrs.input_tokens": 12,
    "attrs.output_tokens": 3,
    "attrs.latency_s": 0.5,
}


def text(*messages: Any) -> str:
    return json.dumps(messages)


USAGE = {"gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 3}
OLD_USAGE = {"gen_ai.usage.prompt_tokens": 12, "gen_ai.usage.completion_tokens": 3}
PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]},
    {
        "role": "assistant",
        "parts": [
            {"type": "tool_call", "id": "c1", "name": "get_weather", "arguments": {"city": "Paris"}},
        ],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "rainy, 57 F"}]},
]
SAID = [{"role": "assistant", "parts": [{"type": "text", "content": "Rainy."}], "finish_reason": "stop"}]
BRIEF = [{"type": "text", "content": "Be brief."}]
Told = tuple[dict[str, Any], list[tuple[str, float, dict[str, Any]]]]
CONVENTIONS: dict[str, Told] = {
    "gen_ai, JSON": (
        CHAT
        | USAGE
        | {
            "gen_ai.system_instructions": json.dumps(BRIEF),
            "gen_ai.input.messages": json.dumps(PARTS),
            "gen_ai.output.messages": json.dumps(SAID),
        },
        [],
    ),
    "gen_ai, structured": (
        CHAT
        | USAGE
        | {
            "gen_ai.system_instructions": BRIEF,
            "gen_ai.input.messages": PARTS,
            "gen_ai.output.messages": SAID,
            "gen_ai.response.finish_reasons": ["stop"],
        },
        [],
    ),
    "gen_ai, span events of each message": (
        CHAT | USAGE,
        [
            ("gen_ai.system.message", 0, {"content": "Be brief."}),
            ("gen_ai.user.message", 0, {"content": "Weather in Paris?"}),
            ("gen_ai.assistant.message", 0, {"tool_calls": json.dumps(ASKED[2]["tool_calls"])}),
            ("gen_ai.tool.message", 0, {"id": "c1", "content": "rainy, 57 F"}),
            (
                "gen_ai.choice",
                0.5,
                {"index": 0, "finish_reason": "stop", "message": '{"role":"assistant","content":"Rainy."}'},
            ),
        ],
    ),
    "gen_ai, span events of prompt and completion": (
        CHAT | USAGE | {"gen_ai.response.finish_reasons": ["stop"]},
        [
            ("gen_ai.content.prompt", 0, {"gen_ai.prompt": json.dumps(ASKED)}),
            ("gen_ai.content.completion", 0.5, {"gen_ai.completion": text({"content": "Rainy."})}),
        ],
    ),
    "OpenInference": (
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "gpt-4o",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": "Be brief.",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.content": "Weather in Paris?",
            "llm.input_messages.2.message.role": "assistant",
            "llm.input_messages.2.message.tool_calls.0.tool_call.id": "c1",
            "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "get_weather",
            "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": WEATHER["arguments"],
            "llm.input_messages.3.message.role": "tool",
            "llm.input_messages.3.message.tool_call_id": "c1",
            "llm.input_messages.3.message.content": "rainy, 57 F",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "Rainy.",
            "llm.finish_reason": "stop",
            "llm.token_count.prompt": 12,
            "llm.token_count.completion": 3,
            "input.value": "not read: the messages say it",
        },
        [],
    ),
    "OpenInference, values": (
        {
            "openinference.span.kind": "llm",
            "llm.invocation_parameters": '{"model": "gpt-4o"}',
            "input.value": json.dumps({"messages": ASKED}),
            "output.value": json.dumps(
                {"choices": [{"message": {"content": "Rainy."}, "finish_reason": "stop"}]}
            ),
            "llm.token_count.prompt": 12,
            "llm.token_count.completion": 3,
        },
        [],
    ),
    "OpenLLMetry": (
        {
            "llm.request.type": "chat",
            "gen_ai.system": "OpenAI",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "Be brief.",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": "Weather in Paris?",
            "gen_ai.prompt.2.role": "assistant",
            "gen_ai.prompt.2.tool_calls.0.id": "c1",
            "gen_ai.prompt.2.tool_calls.0.name": "get_weather",
            "gen_ai.prompt.2.tool_calls.0.arguments": WEATHER["arguments"],
            "gen_ai.prompt.3.role": "tool",
            "gen_ai.prompt.3.tool_call_id": "c1",
            "gen_ai.prompt.3.content": "rainy, 57 F",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "Rainy.",
            "gen_ai.completion.0.finish_reason": "stop",
        }
        | OLD_USAGE,
        [],
    ),
}


def read(attributes: dict[str, Any], events: Any = (), error: str | None = None) -> Call:
    """The call of a span, the same in both encodings."""
    export = traces(span(attributes, events=events, error=error))
    (one,) = protobuf.spans(export.SerializeToString())
    (other,) = json_form.spans(as_json(export))
    assert one == other
    facts = SpanAttributes(one.attributes)
    assert role_of(facts) == "call"
    return call_of_span(one, facts)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_convention_gives_the_same_columns(name: str) -> None:
    attributes, events = CONVENTIONS[name]
    call = read(attributes, events)
    assert call.is_whole
    columns = call.columns([])
    messages = json.loads(columns.pop("inputs.messages"))
    assert columns == EXPECTED
    assert messages == ASKED


def test_what_vllm_tells_is_a_call_without_content() -> None:
    call = read(
        {
            "gen_ai.response.model": "meta-llama/Llama-3-8B",
            "gen_ai.request.id": "cmpl-1",
            "gen_ai.request.temperature": 0.0,
            "gen_ai.usage.prompt_tokens": 12,
            "gen_ai.usage.completion_tokens": 3,
            "gen_ai.latency.time_to_first_token": 0.05,
        }
    )
    assert not call.is_whole
    assert call.columns([]) == {
        "attrs.response_model": "meta-llama/Llama-3-8B",
        "attrs.temperature": 0.0,
        "attrs.input_tokens": 12,
        "attrs.output_tokens": 3,
        "attrs.first_token_s": 0.05,
        "attrs.latency_s": 0.5,
    }


def test_tools_settings_and_cost_of_openinference() -> None:
    call = read(
        {
            "openinference.span.kind": "LLM",
            "llm.invocation_parameters": '{"temperature": 0.2, "stream": true}',
            "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "get_weather"}}',
            "llm.cost.prompt": 0.002,
            "llm.cost.completion": 0.001,
            "session.id": "s-1",
            "output.value": "Rainy.",
            "input.value": "Weather?",
        },
        [("First Token Stream Event", 0.25, {})],
    )
    assert call.conversation == "s-1"
    assert call.columns(["It rains."]) == {
        "inputs.prompt": "Weather?",
        "inputs.messages": '[{"content":"Weather?","role":"user"}]',
        "inputs.tools": '[{"function":{"name":"get_weather"},"type":"function"}]',
        "inputs.passages": ["It rains."],
        "outputs.answer": "Rainy.",
        "attrs.temperature": 0.2,
        "attrs.stream": True,
        "attrs.cost_usd": pytest.approx(0.003),
        "attrs.first_token_s": 0.25,
        "attrs.latency_s": 0.5,
    }


def test_calls_of_tools_in_an_answer_are_kept_and_thoughts_are_no_answer() -> None:
    said = [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm."},
                {"type": "text", "content": "One moment."},
                {"type": "tool_call", "id": "c1", "name": "get_weather", "arguments": {"city": "Paris"}},
            ],
            "finish_reason": "tool_call",
        }
    ]
    columns = read(CHAT | {"gen_ai.input.messages": "Hi", "gen_ai.output.messages": said}).columns([])
    assert columns["outputs.answer"] == "One moment."
    assert columns["outputs.finish_reason"] == "tool_calls"
    assert json.loads(columns["outputs.tool_calls"]) == ASKED[2]["tool_calls"]


PASSAGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "retriever": (
        {
            "openinference.span.kind": "RETRIEVER",
            "retrieval.documents.0.document.content": "A.",
            "retrieval.documents.10.document.content": "C.",
            "retrieval.documents.2.document.content": "B.",
            "retrieval.documents.2.document.score": 0.5,
        },
        ["A.", "B.", "C."],
    ),
    "reranker": (
        {"openinference.span.kind": "RERANKER", "reranker.output_documents.0.document.content": "A."},
        ["A."],
    ),
    "tool": ({"openinference.span.kind": "TOOL", "output.value": "57 F"}, ["57 F"]),
    "gen_ai retrieval": (
        {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.retrieval.documents": json.dumps([{"id": "d1", "score": 0.9, "content": "A."}]),
        },
        ["A."],
    ),
    "gen_ai tool": ({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": "57 F"}, ["57 F"]),
    "traceloop tool": ({"traceloop.span.kind": "tool", "traceloop.entity.output": "57 F"}, ["57 F"]),
    "documents without content": (
        {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": [{"id": "d1", "score": 0.9}]},
        [],
    ),
}


@pytest.mark.parametrize("name", PASSAGES)
def test_retrievals_and_tools_give_passages(name: str) -> None:
    attributes, expected = PASSAGES[name]
    (one,) = protobuf.spans(traces(span(attributes)).SerializeToString())
    facts = SpanAttributes(one.attributes)
    assert (role_of(facts), passages_of_span(one, facts)) == ("passages", expected)


def test_hostile_attributes_are_no_error() -> None:
    strange: dict[str, Any] = {
        "gen_ai.input.messages": "[" * 100_000,
        "gen_ai.output.messages": [[["deep"]], 3, None is None],
        "gen_ai.prompt." + "a." * 5000 + "b": "x",
        "gen_ai.completion.99999999999999999999.content": "x",
        "gen_ai.completion.0": "a value where an object stands",
        "gen_ai.completion.0.content": "x",
        "gen_ai.usage.input_tokens": "many",
        "gen_ai.usage.output_tokens": 1e300,
        "gen_ai.request.temperature": "NaN-ish",
        "gen_ai.tool.definitions": 5,
        "gen_ai.response.finish_reasons": [1, 2],
        "gen_ai.conversation.id": ["no", "text"],
        "llm.tools.0.tool": "not an object",
        "retrieval.documents.0": "bare",
    }
    for name, value in strange.items():
        read(CHAT | {name: value}).columns([])
    read(CHAT | strange, [("gen_ai.choice", 0, {"message": "[[[["}), ("gen_ai.user.message", 0, {})])


def public(name: str) -> dict[str, Any]:
    """Columns of the one call in a public file."""
    (one,) = json_form.spans((PUBLIC / name).read_bytes())
    facts = SpanAttributes(one.attributes)
    assert role_of(facts) == "call"
    return call_of_span(one, facts).columns([])


def test_items_of_an_answer_are_no_choices() -> None:
    assert public("otlp_responses_reasoning.json")["outputs.answer"] == "12 degrees"
    call = {"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "now"}
    thought = {
        "llm.output_messages.1.message.contents.0.message_content.type": "reasoning",
        "llm.output_messages.1.message.contents.0.message_content.text": "Hm.",
    }
    said = {
        "llm.output_messages.2.message.role": "assistant",
        "llm.output_messages.2.message.content": "Noon.",
    }
    kind = {"openinference.span.kind": "LLM"}
    columns = read(kind | call | thought | said).columns([])
    assert columns["outputs.answer"] == "Noon."
    assert json.loads(columns["outputs.tool_calls"]) == [
        {"type": "function", "function": {"name": "now", "arguments": "{}"}}
    ]


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "chat", "gen_ai.output.messages": "VALUE"},
        {"openinference.span.kind": "LLM", "output.value": "VALUE"},
        {"gen_ai.operation.name": "chat", "gen_ai.completion": "VALUE"},
    ],
)
def test_output_of_the_responses_interface_is_one_answer(attributes: dict[str, Any]) -> None:
    items = [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "now", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Noon."}]},
    ]
    for value in (items, {"object": "response", "output": items}):
        told = {name: json.dumps(value) if said == "VALUE" else said for name, said in attributes.items()}
        columns = read(told).columns([])
        assert columns["outputs.answer"] == "Noon."
        assert json.loads(columns["outputs.tool_calls"])[0]["function"] == {"name": "now", "arguments": "{}"}


def test_several_choices_are_not_put_together() -> None:
    choices = [{"parts": [{"type": "text", "content": text}], "role": "assistant"} for text in "ab"]
    assert read(CHAT | {"gen_ai.output.messages": json.dumps(choices)}).columns([])["outputs.answer"] == "a"
    flat = {f"llm.output_messages.{n}.message.content": text for n, text in enumerate("ab")}
    assert read({"openinference.span.kind": "LLM"} | flat).columns([])["outputs.answer"] == "a"


def test_parts_in_a_text_are_opened() -> None:
    assert public("otlp_openllmetry_parts.json")["inputs.prompt"] == "look"
    parts = json.dumps([{"type": "text", "text": "look"}])
    for attributes in (
        {"openinference.span.kind": "LLM", "llm.input_messages.0.message.content": parts},
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([{"role": "user", "content": parts}]),
        },
    ):
        whole = attributes | {"llm.input_messages.0.message.role": "user"}
        assert read(whole).columns([])["inputs.prompt"] == "look"


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.input.messages",
        "gen_ai.prompt",
        "input.value",
        "gen_ai.prompt.0.content",
        "ai.prompt.messages",
    ],
)
def test_cut_json_is_no_prompt(name: str) -> None:
    whole = json.dumps([{"type": "text", "text": "Weather in Paris?"}])
    if name != "gen_ai.prompt.0.content":
        whole = json.dumps([{"role": "user", "content": "Weather in Paris?"}])
    for length in range(12, len(whole)):
        told = (
            CHAT | {name: whole[:length], "gen_ai.prompt.0.role": "user"}
            if ".0." in name
            else CHAT | {name: whole[:length]}
        )
        columns = read(told).columns([])
        assert "inputs.prompt" not in columns, whole[:length]
    assert "outputs.answer" not in read(CHAT | {"gen_ai.output.messages": whole[:20]}).columns([])


def test_text_that_begins_with_a_bracket_is_a_prompt() -> None:
    for prompt in ("[sic] why?", "{name}, why?", "[1, 2", '{"a": 1}'):
        assert (
            read(CHAT | {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": prompt}).columns([])[
                "inputs.prompt"
            ]
            == prompt
        )


def test_calls_of_vercels_sdk_are_read() -> None:
    columns = public("otlp_vercel.json")
    assert (columns["inputs.prompt"], columns["outputs.answer"]) == ("q", "a")
    call = [{"toolCallId": "c1", "toolName": "now", "args": {"zone": "UTC"}}]
    told = {
        "gen_ai.request.model": "gpt-4o",
        "ai.prompt.messages": json.dumps([{"role": "user", "content": [{"type": "text", "text": "time?"}]}]),
        "ai.response.toolCalls": json.dumps(call),
        "ai.response.finishReason": "tool-calls",
        "ai.usage.promptTokens": 4,
    }
    columns = read(told).columns([])
    assert columns["inputs.prompt"] == "time?"
    assert json.loads(columns["outputs.tool_calls"])[0]["function"] == {
        "name": "now",
        "arguments": '{"zone":"UTC"}',
    }
    assert (columns["outputs.finish_reason"], columns["attrs.input_tokens"]) == ("tool_calls", 4)
