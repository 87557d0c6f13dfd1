"""Questions of an OTLP trace export: its LLM calls."""

import contextlib
from typing import Any

import msgspec

from outrider.monitor.intake.protocols.otlp import json_form
from outrider.monitor.intake.protocols.otlp.attributes import SpanAttributes
from outrider.monitor.intake.protocols.otlp.call import Call
from outrider.monitor.intake.protocols.otlp.forms import Span
from outrider.monitor.intake.protocols.otlp.messages import parsed
from outrider.monitor.intake.protocols.otlp.semantic_conventions import call_of_span, role_of

from .completions import OtherForm, answer_fields
from .questions import RecordedQuestion

_SETTINGS = {
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
    "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.seed": "seed",
}
"""Span attributes, and the request members that they become."""
_KEPT = ("request_model", "response_model", "input_tokens", "output_tokens", "latency_s", "cost_usd")


def calls_of_export(body: bytes) -> list[RecordedQuestion]:
    """Questions of an ``ExportTraceServiceRequest`` in JSON; spans that are no LLM calls are skipped."""
    found = []
    for span in json_form.spans(body):
        facts = SpanAttributes(span.attributes)
        if span.attributes and role_of(facts) == "call":
            found.append(_question(span, call_of_span(span, facts), facts))
    return found


def _question(span: Span, call: Call, facts: SpanAttributes) -> RecordedQuestion:
    attrs = {name: call.attrs[name] for name in _KEPT if name in call.attrs}
    if call.service:
        attrs["service"] = call.service
    outputs: dict[str, Any] = {}
    if isinstance(call.answer, dict):
        choice = {"message": call.answer, "finish_reason": call.finish_reason}
        with contextlib.suppress(OtherForm):
            outputs = answer_fields({"choices": [choice]})
    body = msgspec.json.encode(_request(span, call, facts))
    return RecordedQuestion(call.id or None, call.conversation, body=body, outputs=outputs, attrs=attrs)


def _request(span: Span, call: Call, facts: SpanAttributes) -> dict[str, Any]:
    whole = parsed(facts["input_value"])
    if isinstance(whole, dict) and isinstance(whole.get("messages"), list) and "model" in whole:
        return whole
    invocation = parsed(facts["invocation"])
    body: dict[str, Any] = dict(invocation) if isinstance(invocation, dict) else {}
    for name, member in _SETTINGS.items():
        if span.attributes.get(name) is not None:
            body[member] = span.attributes[name]
    if call.attrs.get("request_model"):
        body["model"] = call.attrs["request_model"]
    return body | {"messages": call.inputs} | ({"tools": call.tools} if call.tools else {})
