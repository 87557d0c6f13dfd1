"""Completion responses as columns: text, tool calls, finish reason, tokens."""

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from outrider.monitor.intake.protocols.chat_columns import canonical, content_text
from outrider.monitor.intake.protocols.streamed_answers import assembled

NAMES = ("text", "tool_calls", "finish_reason")
"""Output columns of a completion."""
Fields = dict[str, Any]


class OtherForm(ValueError):  # noqa: N818 - reads as the thing it is
    """Response that is not a complete, valid completion."""


def parsed_answer(body: bytes) -> Mapping[str, Any]:
    """JSON object of a response body, streamed or not; raises :class:`OtherForm` for an incomplete stream."""
    if body.lstrip()[:5] == b"data:":
        found = assembled(body)
        if not found or (found["choices"][0]["finish_reason"] is None and b"[DONE]" not in body):
            raise OtherForm("a stream that broke off")
        return found
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise OtherForm(f"JSON expected: {error}") from None
    if not isinstance(value, Mapping):
        raise OtherForm(f"a JSON object expected, got {type(value).__name__}")
    return value


def answer_fields(answer: Mapping[str, Any]) -> Fields:
    """Output columns of a completion's first choice.

    Examples
    --------
    >>> answer_fields({"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]})
    {'text': '4', 'tool_calls': '[]', 'finish_reason': 'stop'}
    """
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message", {"content": first.get("text")}) if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(message, Mapping):
        named = ", ".join(map(str, list(answer)[:10])) or "nothing"
        raise OtherForm(f"choices with a message or a text expected, got {named}")
    calls = message.get("tool_calls")
    listed = list(calls) if isinstance(calls, list) else []
    if isinstance(message.get("function_call"), Mapping):
        listed.append({"function": message["function_call"]})
    text = content_text(message.get("content"))
    refusal = message.get("refusal")
    if text is None and isinstance(refusal, str):
        text = refusal
    if text is None and not listed and "content" not in message:
        raise OtherForm("a message with content or tool_calls expected")
    reason = first.get("finish_reason")
    return {
        "text": text or "",
        "tool_calls": tool_calls(listed),
        "finish_reason": reason if isinstance(reason, str) else None,
    }


def tool_calls(calls: list[Any]) -> str:
    """Canonical JSON of tool calls without their ids, so that equal calls have equal text.

    Examples
    --------
    >>> tool_calls([{"id": "7", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}])
    '[{"arguments":{"a":2,"b":1},"name":"f"}]'
    """
    return canonical([_call(call) for call in calls])


def _call(call: Any) -> Fields:
    inner = call if isinstance(call, Mapping) else {}
    inner = inner.get("function") or inner.get("custom") or inner
    given = inner.get("arguments", inner.get("input")) if isinstance(inner, Mapping) else None
    if isinstance(given, str):
        # Arguments that are no JSON differ by their text.
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            given = msgspec.json.decode(given)
    return {"name": inner.get("name") if isinstance(inner, Mapping) else None, "arguments": given}


def tokens(answer: Mapping[str, Any]) -> tuple[int, int]:
    """Prompt and completion tokens; -1 for an unknown count."""
    usage = answer.get("usage")
    found = usage if isinstance(usage, Mapping) else {}
    asked = found.get("prompt_tokens", found.get("input_tokens"))
    answered = found.get("completion_tokens", found.get("output_tokens"))
    return _count(asked), _count(answered)


def _count(value: Any) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if is_count else -1
