"""Columns of language model calls.

The same for mirrored chat requests and for traces.

A call is read from OpenAI's form: messages with a role and a content, choices with a message. Whoever has
another form (spans, log events) brings it into this one first.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

Fields = dict[str, Any]
CALLERS_KEYS = ("api_key", "authorization", "headers", "extra_headers", "api_base", "base_url")
"""Members of a request that hold callers' keys or addresses; neither kept nor sent on."""
"""Values by the name of a column without its prefix."""


def input_fields(
    messages: Sequence[Any], *, tools: Any = None, passages: Iterable[str] | None = None
) -> Fields:
    """Input of a language model, for ``inputs.*``.

    Parameters
    ----------
    messages
        Objects with ``role`` and ``content`` (text, or a list of parts), oldest first.
    tools
        Tools it was offered, as they came.
    passages
        Texts that were retrieved for it.

    Returns
    -------
    dict
        ``prompt`` (the last message of the user), ``system`` (of role system or developer), ``messages``
        and ``tools`` (canonical JSON), ``passages``; what there is none of is left out.

    Examples
    --------
    >>> fields = input_fields([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    >>> fields["prompt"], fields["system"]
    ('Hi', 'Be brief.')
    >>> fields["messages"]
    '[{"content":"Be brief.","role":"system"},{"content":"Hi","role":"user"}]'
    """
    fields: Fields = {
        "prompt": _last_text(messages, "user"),
        "system": _joined(messages, ("system", "developer")),
        "messages": canonical(messages) if messages else None,
        "tools": canonical(tools) if tools else None,
        "passages": None if passages is None else list(passages),
    }
    return _present(fields)


def output_fields(*, answer: str | None, finish_reason: str | None = None, tool_calls: Any = None) -> Fields:
    """Answer of a language model, for ``outputs.*``.

    Empty fields are left out.

    Examples
    --------
    >>> output_fields(answer="4", finish_reason="stop")
    {'answer': '4', 'finish_reason': 'stop'}
    """
    calls = canonical(tool_calls) if tool_calls else None
    return _present({"answer": answer, "finish_reason": finish_reason, "tool_calls": calls})


def request_attrs(body: Mapping[str, Any]) -> Fields:
    """Settings of a call, for ``attrs.*``.

    Examples
    --------
    >>> request_attrs({"model": "small", "temperature": 0, "stream": True})
    {'request_model': 'small', 'temperature': 0.0, 'stream': True}
    """
    temperature = number(body.get("temperature"))
    return _present(
        {
            "request_model": text(body.get("model")),
            "temperature": _as_float(temperature),
            "stream": body["stream"] if isinstance(body.get("stream"), bool) else None,
        }
    )


def response_attrs(body: Mapping[str, Any]) -> Fields:
    """Model and tokens that an answer names, for ``attrs.*``.

    Examples
    --------
    >>> response_attrs({"model": "small-2", "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
    {'response_model': 'small-2', 'input_tokens': 9, 'output_tokens': 3}
    """
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
    """Answer of a chat completion's first choice, for ``outputs.*``.

    Or of a completion's.

    Examples
    --------
    >>> answer_fields({"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]})
    {'answer': '4', 'finish_reason': 'stop'}
    """
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
    """Text of a message.

    Its own, or that of its parts of text, one per line; None when it has none.

    Examples
    --------
    >>> content_text([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {}}])
    'What is this?'
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part if isinstance(part, str) else _part_text(part) for part in content]
    found = [one for one in texts if one is not None]
    return "\n".join(found) if found else None


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal texts.

    Examples
    --------
    >>> canonical({"b": 1, "a": [True, None]})
    '{"a":[true,null],"b":1}'
    """
    try:
        return msgspec.json.encode(value, order="deterministic").decode()
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        # Unpaired surrogates and integers of any size: JSON all the same, though no text or int64.
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def text(value: Any) -> str | None:
    """Value of type text, else None."""
    return value if isinstance(value, str) else None


def number(value: Any) -> int | float | None:
    """Value of type number, else None."""
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
