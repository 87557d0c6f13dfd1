"""Texts of a tool's or retriever's result, without the wrapping that frameworks log it in."""

from typing import Any

from outrider.monitor.intake.protocols.chat_columns import canonical, content_text

from .messages import inner, parsed

_DOCUMENT = ("content", "text", "page_content")
_DEEPEST = 8
"""Nested wrappings that are opened."""


def result_texts(value: Any) -> list[str]:
    """Texts of a tool's message, of documents, of a list of either, or the value unchanged.

    LangChain logs the object that its tool returned (``lc``, ``data``, ``update``) and what else its callback
    was given; what the tool itself wrote stays unchanged, JSON too.
    """
    found = _held(parsed(value), _DEEPEST)
    return [text for text in (_own(value) if found is None else found) if text]


def document_text(document: Any) -> str | None:
    if isinstance(document, str):
        return document
    if not isinstance(document, dict):
        return None
    document = inner(document, "document") or document
    return next((document[name] for name in _DOCUMENT if isinstance(document.get(name), str)), None)


def _held(value: Any, deep: int) -> list[str] | None:
    """Texts in a known wrapping, else None."""
    if not deep:
        return None
    if isinstance(value, list):
        each = [_held(one, deep - 1) for one in value]
        found = [texts for texts in each if texts is not None]
        return [text for texts in found for text in texts] if value and len(found) == len(value) else None
    if not isinstance(value, dict):
        return None
    for name in ("output", "outputs"):
        if value.keys() == {name, "kwargs"}:  # what LangChain's callback was given
            given = _held(value[name], deep - 1)
            return _own(value[name]) if given is None else given
    wrapped = _wrapped(value)
    return _texts(value) if wrapped is None else _held(wrapped, deep - 1)


def _wrapped(value: dict[str, Any]) -> Any:
    """Contents of an object of LangChain, else None."""
    if "lc" in value:
        return value.get("kwargs")
    if value.keys() == {"type", "data"} and isinstance(value["data"], dict):
        return value["data"]
    if "graph" in value and "update" in value:  # a tool's command to its graph
        return inner(value, "update").get("messages")
    return None


def _texts(value: dict[str, Any]) -> list[str] | None:
    if isinstance(value.get("documents"), list):
        return [text for one in value["documents"] if (text := document_text(one))]
    if isinstance(value.get("page_content"), str):
        return [value["page_content"]]
    content = value.get("content")
    if value.get("type") == "tool" or "tool_call_id" in value or _are_parts(content):
        return [content_text(content) or ""]
    return None


def _are_parts(content: Any) -> bool:
    """True for a list of texts as messages have them; tools of MCP return such."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(part, dict) and part.get("type") == "text" for part in content)
    )


def _own(value: Any) -> list[str]:
    if value is None:
        return []
    return [value if isinstance(value, str) else canonical(value)]
