"""Columns of language model calls, in mirrored chat requests and in traces.

A call is read from OpenAI's form: messages with a role and a content, choices with a message; spans and log
events are brought into this form first.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

Fields = dict[str, Any]
"""Values by the name of a column without its prefix."""
CALLERS_KEYS = ("api_key", "authorization", "headers", "extra_headers", "api_base", "base_url")
"""Members of a request that hold callers' keys or addresses; neither kept nor sent on."""


def input_fields(
    messages: Sequence[Any], *, tools: Any = None, passages: Iterable[str] | None = None
) -> Fields:
    """``inputs.*``: the user's last message, system text, messages, tools, passages; empty ones left out."""
    fields: Fields = {
        "prompt": _last_text(messages, "user"),
        "system": _joined(messages, ("system", "developer")),
        "messages": canonical(messages) if messages else None,
        "tools": canonical(tools) if tools else None,
        "passages": None if passages is None else list(passages),
    }
    return _present(fields)


def output_fields(*, answer: str | None, finish_reason: str | None = None, tool_calls: Any = None) -> Fields:
    """``outputs.*`` of an answer; empty fields are left out."""
    calls = canonical(tool_calls) if tool_calls else None
    return _present({"answer": answer, "finish_reason": finish_reason, "tool_calls": calls})


def request_attrs(body: Mapping[str, Any]) -> Fields:
    """``attrs.*``: settings of a call."""
    temperature = number(body.get("temperature"))
    return _present(
        {
            "request_model": text(body.get("model")),
            "temperature": _as_float(temperature),
            "stream": body["stream"] if isinstance(body.get("stream"), bool) else None,
        }
    )


def response_attrs(body: Mapping[str, Any]) -> Fields:
    """``attrs.*``: model and tokens that an answer names."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    return _present(
        {
            "response_model": text(body.get("model")),
            "input_tokens": _tokens(usage, "prompt_tokens", "input_tokens"),
            "output_tokens": _tokens(usage, "completion_tokens", "output_tokens"),
        }
    )


def answer_fields(body: Mapping[str, Any]) -> Fields:
    """``outputs.*`` of the first choice of a completion."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, Mapping):
        return {}
    message = first.get("message")
    message = message if isinstance(message, Mapping) else {"content": first.get("text")}
    return output_fields(
        answer=content_text(message.get("content")),
        finish_reason=text(first.get("finish_reason")),
        tool_calls=message.get("tool_calls"),
    )


def content_text(content: Any) -> str | None:
    """Text of a message: its own, or that of its text parts, one per line."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part if isinstance(part, str) else _part_text(part) for part in content]
    found = [one for one in texts if one is not None]
    return "\n".join(found) if found else None


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal texts."""
    try:
        return msgspec.json.encode(value, order="deterministic").decode()
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        # Unpaired surrogates and integers of any size: JSON all the same, though no text or int64.
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_float(value: int | float | None) -> int | float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:
        return value  # refused where it stands


def _part_text(part: Any) -> str | None:
    if not isinstance(part, Mapping):
        return None
    return text(part.get("text"))


def _last_text(messages: Sequence[Any], role: str) -> str | None:
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("role") == role:
            found = content_text(message.get("content"))
            if found is not None:
                return found
    return None


def _joined(messages: Sequence[Any], roles: Sequence[str]) -> str | None:
    texts = [
        content_text(message.get("content"))
        for message in messages
        if isinstance(message, Mapping) and message.get("role") in roles
    ]
    found = [one for one in texts if one is not None]
    return "\n".join(found) if found else None


def _tokens(usage: Mapping[str, Any], *names: str) -> int | None:
    counts = (usage.get(name) for name in names)
    return next((n for n in counts if isinstance(n, int) and not isinstance(n, bool)), None)


def _present(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}
