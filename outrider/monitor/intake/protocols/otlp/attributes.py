"""Attributes of a call in any convention, each read once.

OpenTelemetry's GenAI conventions in their present and older forms, OpenInference, OpenLLMetry, vLLM, Vercel.
"""

from collections.abc import Callable
from typing import Any

from outrider.monitor.intake.protocols.chat_columns import Fields, text

from .call import Call
from .forms import Attributes
from .messages import (
    Message,
    first_choice,
    flat,
    inner,
    messages_of,
    openinference,
    parsed,
    reason_of,
    united,
)
from .tool_results import document_text

_NAMES: dict[str, tuple[str, ...]] = {
    "operation": ("gen_ai.operation.name",),
    "kind": ("openinference.span.kind",),
    "request_type": ("llm.request.type",),
    "entity_kind": ("traceloop.span.kind",),
    "conversation": (
        "gen_ai.conversation.id",
        "session.id",
        "traceloop.association.properties.session_id",
        "traceloop.association.properties.conversation_id",
    ),
    "request_model": ("gen_ai.request.model", "llm.request.model_name"),
    "model": ("llm.model_name",),
    "response_model": ("gen_ai.response.model", "llm.response.model_name"),
    "input_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "llm.usage.prompt_tokens",
        "ai.usage.promptTokens",
        "ai.usage.inputTokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "llm.usage.completion_tokens",
        "ai.usage.completionTokens",
        "ai.usage.outputTokens",
    ),
    "cost_usd": ("llm.cost.total", "gen_ai.usage.cost", "operation.cost"),
    "cost_of_input": ("llm.cost.prompt",),
    "cost_of_output": ("llm.cost.completion",),
    "temperature": ("gen_ai.request.temperature", "llm.request.temperature"),
    "first_token_s": (
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.server.time_to_first_token",
        "gen_ai.latency.time_to_first_token",
    ),
    "stream": ("gen_ai.request.stream", "gen_ai.is_streaming", "llm.is_streaming"),
    "error": ("error.type",),
    "prompt_version": ("llm.prompt_template.version", "langfuse.observation.prompt.version"),
    "finish": (
        "gen_ai.response.finish_reasons",
        "gen_ai.response.finish_reason",
        "llm.finish_reason",
        "llm.response.finish_reason",
        "ai.response.finishReason",
    ),
    "invocation": ("llm.invocation_parameters",),
    "system": ("gen_ai.system_instructions",),
    "tools": ("gen_ai.tool.definitions",),
    "inputs": ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages"),
    "outputs": ("gen_ai.output.messages", "gen_ai.completion", "ai.response.text"),
    "calls": ("ai.response.toolCalls",),
    "input_value": ("input.value", "traceloop.entity.input"),
    "output_value": ("output.value", "traceloop.entity.output"),
    "documents": ("gen_ai.retrieval.documents",),
    "result": ("gen_ai.tool.call.result",),
}
_RANKS = {key: (name, rank) for name, keys in _NAMES.items() for rank, key in enumerate(keys)}
_FLAT = {
    "llm.input_messages.": "inputs",
    "llm.output_messages.": "outputs",
    "gen_ai.prompt.": "inputs",
    "gen_ai.completion.": "outputs",
    "llm.tools.": "tools",
    "llm.request.functions.": "tools",
    "retrieval.documents.": "documents",
    "reranker.output_documents.": "documents",
}
_FLAT_PREFIXES = tuple(_FLAT)


class SpanAttributes:
    """Attributes under one name each, with flattened lists."""

    __slots__ = ("_attributes", "_ranks", "lists", "values")

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._ranks: dict[str, int] = {}
        self.values: dict[str, Any] = {}
        self.lists: set[str] = set()
        for key, value in attributes.items():
            known = _RANKS.get(key)
            if known is None:
                if key.startswith(_FLAT_PREFIXES):
                    self.lists.add(next(prefix for prefix in _FLAT_PREFIXES if key.startswith(prefix)))
            elif value is not None and known[1] < self._ranks.get(known[0], 99):
                name, self._ranks[name] = known
                self.values[name] = value

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def has(self, what: str) -> bool:
        """Test for ``inputs``, ``outputs``, … in any form."""
        return what in self.values or any(_FLAT[prefix] == what for prefix in self.lists)

    @property
    def result(self) -> Any:
        said = self["result"]
        return self["output_value"] if said is None else said

    def flat(self, what: str) -> tuple[str, list[Any]]:
        """Prefix and objects of the flattened list that holds ``what``."""
        for prefix in _FLAT_PREFIXES if self.lists else ():
            if _FLAT[prefix] == what and prefix in self.lists:
                return prefix, flat(self._attributes, prefix)
        return "", []


def call_of(facts: SpanAttributes) -> Call:
    """The call that these attributes describe, without its place and times."""
    answer, reason = _answer(facts)
    inputs = _inputs(facts)
    finish = parsed(facts["finish"])
    finish = finish[0] if isinstance(finish, list) and finish else finish
    return Call(
        conversation=text(facts["conversation"]),
        inputs=inputs,
        answer=answer,
        finish_reason=text(finish) or reason,
        has_inputs=bool(inputs),
        has_outputs=answer is not None,
        tools=_tools(facts),
        passages=passages_of(facts),
        attrs=_attrs(facts),
    )


def passages_of(facts: SpanAttributes) -> list[str]:
    documents = parsed(facts["documents"])
    items = documents if isinstance(documents, list) else facts.flat("documents")[1]
    return [found for item in items if (found := document_text(item))]


def _inputs(facts: SpanAttributes) -> list[Message]:
    prefix, items = facts.flat("inputs")
    if facts["inputs"] is not None:
        messages = messages_of(facts["inputs"])
    elif items:
        messages = openinference(items) if prefix.startswith("llm.") else messages_of(items)
    else:
        messages = messages_of(facts["input_value"])
    if facts["system"] is None:
        return messages
    return [*messages_of(facts["system"], role="system"), *messages]


def _answer(facts: SpanAttributes) -> tuple[Message | None, str | None]:
    prefix, items = facts.flat("outputs")
    if facts["calls"] is not None:
        calls = parsed(facts["calls"])
        said = {"content": facts["outputs"], "tool_calls": calls if isinstance(calls, list) else None}
        return first_choice(said)
    if facts["outputs"] is not None:
        return first_choice(facts["outputs"])
    if prefix.startswith("llm."):
        reason = None if facts["finish"] is not None else reason_of(facts["output_value"])
        return united(openinference(items)), reason
    # Some tell why an answer ended, but not the answer.
    named = [item for item in items if isinstance(item, dict)]
    if named and not any({"content", "tool_calls"} & item.keys() for item in named):
        return None, text(named[0].get("finish_reason"))
    return first_choice(items or facts["output_value"])


def _tools(facts: SpanAttributes) -> Any:
    if facts["tools"] is not None:
        items = parsed(facts["tools"])
        return [_tool(one) for one in items] if isinstance(items, list) else items
    prefix, items = facts.flat("tools")
    if prefix == "llm.tools.":
        items = [parsed(inner(one, "tool").get("json_schema")) for one in items]
    return [_tool(one) for one in items if one is not None] or None


def _tool(tool: Any) -> Any:
    """Definition of a tool as OpenAI's chat requests have it, whoever flattened it."""
    if not isinstance(tool, dict) or "function" in tool or "name" not in tool:
        return tool
    if tool.get("type", "function") != "function":
        return tool  # one of the provider's own
    function = {name: value for name, value in tool.items() if name not in ("type", "input_schema")}
    schema = parsed(tool.get("parameters", tool.get("input_schema")))
    return {"type": "function", "function": function | ({} if schema is None else {"parameters": schema})}


def _attrs(facts: SpanAttributes) -> Fields:
    told = dict(facts.values)
    if "invocation" in told:
        settings = parsed(told["invocation"])
        if isinstance(settings, dict):
            told = {
                name: settings[key] for key, name in _SETTINGS.items() if settings.get(key) is not None
            } | told
    if "model" in told:  # OpenInference's: who answered, unless nothing else says who was asked
        told.setdefault("response_model" if "request_model" in told else "request_model", told["model"])
    if "cost_usd" not in told and ("cost_of_input" in told or "cost_of_output" in told):
        shares = (_float(told.get(name)) for name in ("cost_of_input", "cost_of_output"))
        told = told | {"cost_usd": sum(share or 0.0 for share in shares)}
    attrs: Fields = {}
    for name, read in _ATTRS.items():
        if name in told and (value := read(told[name])) is not None:
            attrs[name] = value
    return attrs


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _name(value: Any) -> str | None:
    """A version; some write it as a number."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _integer(value: Any) -> int | None:
    """A count; some exporters write it as a text or as 12.0."""
    number = _float(value)
    return int(number) if number is not None and number.is_integer() and abs(number) < 2**53 else None


_SETTINGS = {
    "model_name": "request_model",
    "model": "request_model",
    "temperature": "temperature",
    "stream": "stream",
}
"""Parameters of an invocation and their columns; of two, the later."""
_ATTRS: dict[str, Callable[[Any], Any]] = {
    "request_model": text,
    "response_model": text,
    "prompt_version": _name,
    "temperature": _float,
    "first_token_s": _float,
    "input_tokens": _integer,
    "output_tokens": _integer,
    "cost_usd": _float,
    "stream": _boolean,
    "error": text,
}
