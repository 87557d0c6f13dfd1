"""Calls of models and passages of retrievals, from spans and log records."""

import re
from typing import Any, Literal

from outrider.monitor.intake.protocols.chat_columns import text

from .attributes import SpanAttributes, call_of, passages_of
from .call import Call
from .forms import LogRecord, Span, SpanEvent
from .messages import first_choice, messages_of, parsed
from .tool_results import result_texts

Role = Literal["call", "passages", "other"]
DETAILS = "gen_ai.client.inference.operation.details"
_CALLS = {"chat", "generate_content", "text_completion"}
_NO_CALLS = {"embeddings", "create_agent", "invoke_agent", "invoke_workflow"}
_RETRIEVALS = {"retrieval", "execute_tool", "vector_db_retrieve"}
_KINDS: dict[str, Role] = {
    "LLM": "call",
    "RETRIEVER": "passages",
    "RERANKER": "passages",
    "TOOL": "passages",
}
_THRESHOLD = re.compile(r"(?:^|,)\s*ot=(?:[^,]*;)?th:([0-9a-f]{1,14})(?:[;,\s]|$)").search
_CHOICE = "gen_ai.choice"
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CONTENTS = {"gen_ai.content.prompt", "gen_ai.content.completion"}
_FIRST_TOKEN = {
    "First Token Stream Event",
    "gen_ai.content.completion.chunk",
    "llm.content.completion.chunk",
}


def role_of(facts: SpanAttributes) -> Role:
    """Role of a span by OpenInference, GenAI, OpenLLMetry in turn, then by its contents."""
    kind = facts["kind"]
    if isinstance(kind, str):
        return _KINDS.get(kind.upper(), "other")
    operation = text(facts["operation"]) or text(facts["request_type"])
    if operation in _RETRIEVALS:
        return "passages"
    if operation in _CALLS or operation == "completion":
        return "call"
    if facts["entity_kind"] is not None:
        return "passages" if facts["entity_kind"] == "tool" else "other"
    if operation in _NO_CALLS or facts["request_type"] is not None:
        return "other"
    # Names of operations may be a system's own, and older instrumentations have none.
    names = facts["request_model"] or facts["response_model"] or facts["model"]
    told = facts.has("outputs") or facts.has("calls") or facts["output_tokens"] is not None
    return "call" if names and told else "other"


def call_of_span(span: Span, facts: SpanAttributes) -> Call:
    call = call_of(facts)
    call.id, call.trace, call.service = f"{span.trace}-{span.span}", span.trace, span.service
    call.start_us, call.is_span = span.start_ns // 1000, True
    if span.state:
        call.weight = weight_of(span.state)
    if span.end_ns >= span.start_ns > 0:
        call.attrs["latency_s"] = (span.end_ns - span.start_ns) / 1e9
    if span.error is not None:
        call.attrs.setdefault("error", span.error)
    for event in span.events:
        _add_event(call, span, event)
    return call


def weight_of(state: str) -> float:
    """Weight of a sampled span, by the threshold in its ``tracestate``; 1.0 without one.

    OpenTelemetry, "TraceState: Probability Sampling": of 2**56 random values those from the threshold on are
    sampled; zeros at its end are left out.
    """
    found = _THRESHOLD(state)
    if found is None:
        return 1.0
    return min(1e12, 2**56 / (2**56 - int(found[1].ljust(14, "0"), 16)))


def passages_of_span(span: Span, facts: SpanAttributes) -> list[str]:
    """Texts that a span of role ``passages`` found; none before it has ended."""
    if span.start_ns > 0 and not span.end_ns:
        return []
    return passages_of(facts) or result_texts(facts.result)


def call_of_log(log: LogRecord) -> Call | None:
    """Part of a call in a log record, or None."""
    if log.name == DETAILS:
        said = log.body if isinstance(log.body, dict) else {}
        call = call_of(SpanAttributes(said | log.attributes))
        call.has_details = True
    elif log.name == _CHOICE or log.name in _ROLES:
        call = Call()
        _add_message(call, log.name, log.body if log.body is not None else log.attributes)
        call.has_details = False
    else:
        return None
    known = bool(log.trace and log.span)
    call.id, call.trace = (f"{log.trace}-{log.span}", log.trace) if known else ("", "")
    call.service, call.start_us = log.service, log.time_ns // 1000
    return call


def _add_event(call: Call, span: Span, event: SpanEvent) -> None:
    if event.name in _FIRST_TOKEN:
        if event.time_ns >= span.start_ns:
            call.attrs.setdefault("first_token_s", (event.time_ns - span.start_ns) / 1e9)
            call.attrs.setdefault("stream", True)
    elif event.name == DETAILS or event.name in _CONTENTS:
        told = call_of(SpanAttributes(event.attributes))
        if event.name in _CONTENTS:  # one event per message
            told.inputs = [*call.inputs, *told.inputs]
            call.inputs = []
        _take(call, told)
    elif event.name == _CHOICE or event.name in _ROLES:
        _add_message(call, event.name, event.attributes)


def _take(call: Call, told: Call) -> None:
    """Take facts of an event that the span itself lacks."""
    if not call.inputs:
        call.inputs, call.has_inputs = told.inputs, call.has_inputs or told.has_inputs
    call.has_outputs |= told.has_outputs
    call.answer = call.answer or told.answer
    call.finish_reason = call.finish_reason or told.finish_reason
    call.tools = call.tools or told.tools
    call.attrs = told.attrs | call.attrs


def _add_message(call: Call, name: str, body: Any) -> None:
    """Add one message of the older events: the body of a log record, or the attributes of a span's event."""
    said = parsed(body)
    if name == _CHOICE:
        call.has_outputs = True
        choice = said if isinstance(said, dict) else {"message": said}
        if call.answer is None and choice.get("index") in (None, 0):
            message = parsed(choice.get("message", choice.get("content")))
            answer, reason = first_choice(message)
            if isinstance(answer, dict) and choice.get("tool_calls") is not None:
                answer = answer | {"tool_calls": parsed(choice["tool_calls"])}
            call.answer = answer
            call.finish_reason = call.finish_reason or text(choice.get("finish_reason")) or reason
        return
    call.has_inputs = True
    if isinstance(said, dict):
        names = ("role", "content", "tool_calls", "id", "name", "tool_call_id")
        said = {key: parsed(said[key]) if key == "tool_calls" else said[key] for key in names if key in said}
        parts = parsed(said.get("content"))
        if isinstance(parts, list):
            said = {key: value for key, value in said.items() if key != "content"} | {"parts": parts}
        if not said.keys() - {"role"}:
            return  # its content is not captured
        if name == "gen_ai.tool.message" and "id" in said:
            said["tool_call_id"] = said.pop("id")
    call.inputs = [*call.inputs, *messages_of(said, role=_ROLES[name])]
