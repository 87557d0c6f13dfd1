"""Streamed chat completions (server-sent events), assembled into one answer."""

from typing import Any

import msgspec

_DONE = b"[DONE]"


def assembled(body: bytes) -> dict[str, Any] | None:
    """Completion from a stream of chunks, else None; a broken stream gives what had come.

    Only the first choice is followed.
    """
    if body.lstrip()[:5] != b"data:":
        return None
    whole: dict[str, Any] = {}
    texts: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    finish: Any = None
    for line in body.splitlines():
        if not line.startswith(b"data:") or line[5:].strip() == _DONE:
            continue
        try:
            chunk = msgspec.json.decode(line[5:])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue  # the last line of a stream that broke off
        if not isinstance(chunk, dict):
            continue
        whole |= {name: chunk[name] for name in ("id", "model", "usage") if chunk.get(name) is not None}
        choice = _first(chunk.get("choices"))
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {"content": choice.get("text")}
        if isinstance(delta.get("content"), str):
            texts.append(delta["content"])
        pieces = delta.get("tool_calls")
        for piece in pieces if isinstance(pieces, list) else ():
            _add_call(calls, piece)
        finish = choice.get("finish_reason") or finish
    message: dict[str, Any] = {"content": "".join(texts) if texts else None}
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return whole | {"choices": [{"message": message, "finish_reason": finish}]}


def _first(choices: Any) -> dict[str, Any]:
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            return choice
    return {}


def _add_call(calls: dict[int, dict[str, Any]], part: Any) -> None:
    """Add a piece of a tool call: names come once, arguments in pieces."""
    if not isinstance(part, dict) or not isinstance(index := part.get("index", 0), int):
        return
    call = calls.setdefault(index, {"function": {"name": "", "arguments": ""}})
    call |= {name: part[name] for name in ("id", "type") if part.get(name) is not None}
    function = part.get("function")
    for name in ("name", "arguments"):
        if isinstance(function, dict) and isinstance(function.get(name), str):
            call["function"][name] += function[name]
