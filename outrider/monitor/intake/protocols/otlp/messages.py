"""Messages of every convention in OpenAI's form: a role, a content, and calls of tools."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from outrider.monitor.intake.protocols.chat_columns import canonical, content_text

Message = dict[str, Any]
_BEGIN = re.compile(r'\s*\[?\s*\{\s*"').match
_PARTS = re.compile(r'\s*\[\s*\{\s*"type"').match
_DEEPEST = 12
"""Steps of a flattened name; what is deeper stays one step."""


def parsed(value: Any) -> Any:
    """Value, parsed if a text holds JSON."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return msgspec.json.decode(with_whole_characters(value))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return value


def is_cut(value: Any) -> bool:
    """Test for JSON that an attribute's limit cut."""
    return isinstance(value, str) and bool(_BEGIN(value)) and isinstance(parsed(value), str)


def with_whole_characters(document: str | bytes) -> bytes:
    """JSON with question marks for half characters, which JavaScript's cuts leave; else a ValueError."""
    return json.dumps(json.loads(document), ensure_ascii=False).encode("utf-8", "replace")


def messages_of(value: Any, *, role: str = "user") -> list[Message]:
    """Messages of a list, of one message, or of a bare text."""
    value = parsed(value)
    if is_cut(value):
        return []
    if isinstance(value, dict):
        # A whole request or answer: OpenAI's own form.
        asked = value.get("messages")
        value = asked if isinstance(asked, list) else [value]
    if not isinstance(value, list):
        return [] if value is None else [{"role": role, "content": _said(value)}]
    if (value and not isinstance(value[0], dict)) or _are_parts(value):
        value = [{"role": role, "parts": value}]
    made: list[Message] = []
    for one in value:
        made += _message(one, role)
    return made


def flat(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Objects in attributes ``prefix.0.field``, ``prefix.1.field`` and so on."""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if key.startswith(prefix):
            _put(tree, key[len(prefix) :].split(".", _DEEPEST), value)
    listed = _listed(tree)
    return listed if isinstance(listed, list) else []


def openinference(items: list[Any]) -> list[Message]:
    """Messages of OpenInference: ``message.role``, ``message.content`` or ``message.contents``."""
    made = []
    for item in items:
        said = item.get("message") if isinstance(item, dict) else None
        if not isinstance(said, dict):
            continue
        message: Message = {"role": said.get("role"), "content": _opened(said.get("content"))}
        if isinstance(said.get("contents"), list):
            message["content"] = [_content(part) for part in said["contents"]]
        calls = [_call(_whole_call(inner(one, "tool_call"))) for one in _list(said.get("tool_calls"))]
        message |= {"tool_calls": calls or None}
        message |= {name: said.get(name) for name in ("tool_call_id", "name")}
        made.append(_without_none(message))
    return made


def first_choice(value: Any) -> tuple[Message | None, str | None]:
    """Message and finish reason of the first answer, in any form."""
    value = parsed(value)
    made: list[Message] = []
    reasons = []
    for one in _answers(value):
        if isinstance(one, dict):
            reasons.append(one.get("finish_reason"))
            one = one.get("message", one)
        if isinstance(one, dict):
            one = [
                _of_item({key: said for key, said in one.items() if key not in ("finish_reason", "index")})
            ]
        made += messages_of(one, role="assistant")
    return united(made), next((reason for reason in reasons if isinstance(reason, str)), None)


def _answers(value: Any) -> list[Any]:
    """First of several choices, or all items of one answer."""
    if isinstance(value, dict):
        if isinstance(value.get("choices"), list):
            return value["choices"][:1] or [value]
        return value["output"] if isinstance(value.get("output"), list) else [value]
    return value if isinstance(value, list) and value and not _are_parts(value) else [value]


def united(messages: list[Message]) -> Message | None:
    """Answer of a model from its items or choices: the first text, with tool calls of items without."""
    texts = [one for one in messages if content_text(one.get("content")) is not None]
    calls = [one for one in messages if one.get("tool_calls")]
    if len(texts) > 1 or not calls:
        return next(iter(texts or messages), None)
    answer = next(iter(texts or calls))
    return answer | {"tool_calls": [call for one in calls for call in _list(one["tool_calls"])]}


def _of_item(item: Message) -> Message:
    """Item of OpenAI's Responses as a message; others unchanged."""
    match item.get("type"):
        case "function_call":
            call = {"id": item.get("call_id", item.get("id"))} | {
                name: item[name] for name in ("name", "arguments") if name in item
            }
            return {"role": "assistant", "tool_calls": [call]}
        case "reasoning":
            return {"role": "assistant"}
        case "message":
            return {name: said for name, said in item.items() if name not in ("type", "id", "status")}
    return item


def reason_of(value: Any) -> str | None:
    """Finish reason of a response's first answer, OpenAI's own or as LangChain keeps it."""
    value = parsed(value)
    generations = value.get("generations") if isinstance(value, dict) else None
    if not isinstance(generations, list):
        return first_choice(value)[1]
    first = generations[0] if generations else None
    first = first[0] if isinstance(first, list) and first else first
    reason = inner(first, "generation_info").get("finish_reason")
    return reason if isinstance(reason, str) else None


def _message(value: Any, role: str) -> list[Message]:
    """Messages of one message; results of several tools become one each."""
    if not isinstance(value, dict):
        return [{"role": role, "content": _said(value)}]
    parts = value.get("parts")
    if len(value) == 2 and "role" in value and (text := _only_text(parts)) is not None:
        return [{"role": value["role"], "content": text}]  # nearly all are like this
    message = {"role": role}
    message |= {name: said for name, said in value.items() if name not in ("parts", "tool_calls")}
    message["content"] = _opened(message.get("content"))
    calls = [_call(one) for one in _list(parsed(value.get("tool_calls")))]
    made = _of_parts(message, calls, parts) if isinstance(parts, list) else [_with_calls(message, calls)]
    return [_without_none(one) for one in made]


def _opened(content: Any) -> Any:
    """Content whose parts came as JSON; None if that is cut."""
    if not isinstance(content, str) or not _PARTS(content):
        return content
    found = parsed(content)
    if isinstance(found, list):
        return [_part(part) for part in found]
    return None


def _only_text(parts: Any) -> Any:
    only: Any = parts[0] if isinstance(parts, list) and len(parts) == 1 else None
    return only["content"] if _type(only) == "text" and isinstance(only.get("content"), str) else None


def _of_parts(message: Message, calls: list[Message], parts: list[Any]) -> list[Message]:
    """Message with its parts as content and calls, then each result of a tool."""
    results = [
        {"role": "tool", "tool_call_id": one.get("id"), "content": _result(one)}
        for one in parts
        if _type(one) == "tool_call_response"
    ]
    calls = calls + [_call(one) for one in parts if _type(one) == "tool_call"]
    rest = [_part(one) for one in parts if _type(one) not in ("tool_call", "tool_call_response")]
    if results and not (rest or calls):
        return results
    return [_with_calls(message | {"content": _united(rest)}, calls), *results]


def _with_calls(message: Message, calls: list[Message]) -> Message:
    return message | {"tool_calls": calls} if calls else message


def _united(parts: list[Message]) -> Any:
    """Content of a message: nothing, its one text, or its parts."""
    match parts:
        case []:
            return None
        case [{"type": "text", "text": text}]:
            return text
    return parts


def _part(part: Any) -> Message:
    if not isinstance(part, dict):
        return {"type": "text", "text": _said(part)}
    if part.get("type", "text") == "text" and ("content" in part or "text" in part):
        return {"type": "text", "text": _said(part.get("text", part.get("content")))}
    return dict(part)


def _content(part: Any) -> Message:
    """Content of one of OpenInference's ``message.contents``."""
    said = inner(part, "message_content")
    if said.get("type") == "image":
        return {"type": "image_url", "image_url": inner(said.get("image"), "image")}
    if said.get("type") in ("reasoning", "thinking"):  # a thought is no text of the message
        return {"thought" if name == "text" else name: value for name, value in said.items()}
    return dict(said)


def _whole_call(call: Mapping[str, Any]) -> Message:
    """Call of a tool with the empty arguments that OpenInference leaves out."""
    function = inner(call, "function")
    return {**call, "function": {"arguments": "{}", **function}} if function else dict(call)


def _call(call: Any) -> Message:
    if not isinstance(call, dict):
        return {"type": "function", "function": {"name": _said(call)}}
    function = inner(call, "function") or call
    said = function.get("arguments", function.get("args", function.get("input")))
    name = function.get("name", function.get("toolName"))
    function = {"name": name, "arguments": None if said is None else _said(said)}
    id_ = call.get("id", call.get("toolCallId"))
    return _without_none({"id": id_, "type": "function", "function": _without_none(function)})


def _result(part: Mapping[str, Any]) -> str | None:
    said = part.get("response", part.get("result"))
    return None if said is None else _said(said)


def _said(value: Any) -> str:
    return value if isinstance(value, str) else canonical(value)


def _type(part: Any) -> Any:
    return part.get("type") if isinstance(part, dict) else None


def _are_parts(value: Any) -> bool:
    """True for a list of one message's parts rather than messages."""
    first = value[0] if isinstance(value, list) and value else None
    if not isinstance(first, dict) or {"role", "parts", "message", "summary", "call_id"} & first.keys():
        return False
    return "type" in first or "text" in first


def inner(value: Any, name: str) -> Mapping[str, Any]:
    """Object under a name in another, else an empty one."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _without_none(message: Mapping[str, Any]) -> Message:
    return {name: value for name, value in message.items() if value is not None}


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for step in path[:-1]:
        below = tree.setdefault(step, {})
        if not isinstance(below, dict):
            return  # a value stands where an object should: it stays
        tree = below
    tree[path[-1]] = value


def _listed(tree: Any) -> Any:
    """The tree with lists in place of dictionaries whose keys are numbers."""
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdecimal() and key.isascii() for key in tree):
        return [_listed(tree[key]) for key in sorted(tree, key=lambda key: (len(key), key))]
    return {key: _listed(value) for key, value in tree.items()}
