"""Lines of chats.

Requests of a language model, alone or beside their responses.
"""

from collections.abc import Mapping
from typing import Any

from outrider.monitor.intake.protocols.chat_columns import (
    Fields,
    answer_fields,
    content_text,
    input_fields,
    output_fields,
    request_attrs,
    response_attrs,
)

from .columns import Names

_SYSTEM = {"id": ("id", "custom_id"), "entity": ("entity", "conversation", "user"), "ts": ("ts", "timestamp")}
_ANSWERS = ("response", "answer", "output")


def chat_record(item: Mapping[str, Any], names: Names) -> dict[str, Any] | None:
    """Record of a chat in the columns of mirrored chats; None for other objects."""
    request = item.get("request", item.get("body", item))
    if not isinstance(request, Mapping) or "inputs" in item or "messages" in names.named:
        return None
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    if not all(isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in messages):
        return None
    given = {name: item[name] for name in _ANSWERS if item.get(name) is not None}
    outputs, about = _answer(next(iter(given.values()), None))
    given_attrs = item.get("attrs")
    attrs = given_attrs if isinstance(given_attrs, Mapping) else {}
    record: dict[str, Any] = {
        "inputs": input_fields(messages, tools=request.get("tools")),
        "outputs": outputs,
        "attrs": {**attrs, **request_attrs(request), **about},
        "label": item.get("label"),
    }
    for system, called in _SYSTEM.items():
        options = (names.system[system],) if system in names.system else called
        value = next((item[name] for name in options if item.get(name) is not None), None)
        record[system] = str(value) if value is not None and system != "ts" else value
    return {name: value for name, value in record.items() if value}


def _answer(value: Any) -> tuple[Fields, Fields]:
    if isinstance(value, Mapping) and isinstance(value.get("body"), Mapping):
        value = value["body"]
    if not isinstance(value, Mapping):
        return output_fields(answer=content_text(value)), {}
    if "choices" in value:
        return answer_fields(value), response_attrs(value)
    text = content_text(value.get("content", value.get("text")))
    return output_fields(answer=text, tool_calls=value.get("tool_calls")), {}
