"""Requests that can be sent again without side effects."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from outrider.errors import ConfigError

from .questions import Members, value_of

KINDS: Mapping[str, str] = {
    "server_tools": "tools that the server itself runs",
    "stored": "store: the server keeps the answer",
    "conversation": "the answer continues a conversation that the server keeps",
    "files": "files that the server keeps",
    "background": "background: the answer is made later",
    "callbacks": "the server calls somebody back",
    "several_answers": "n > 1: one answer is compared with one",
    "audio": "an answer in sound",
}
"""Kinds of requests that are only sent if ``--safe-to-ask`` names them, each with the reason."""
_SECRET = re.compile(
    r"(^|[._-])(authorization|cookie|set[_-]cookie|(x[_-])?api[_-]?key|proxy[_-]authorization)$",
    re.IGNORECASE,
)
_NAMED: Mapping[str, tuple[str, ...]] = {
    "server_tools": (
        "web_search_options", "data_sources", "plugins", "mcp_servers", "connectors", "tool_resources",
        "search_parameters", "enable_search", "container", "code_interpreter",
    ),
    "conversation": (
        "previous_response_id", "conversation", "conversation_id", "thread_id", "assistant_id", "session_id",
    ),
    "files": ("file_ids", "file_id", "attachments"),
    "callbacks": ("webhook", "webhook_url", "callback", "callback_url", "callbacks"),
}  # fmt: skip
_FILE = re.compile(rb'(?<!\\)"(?:file_id|container_id|vector_store_ids)"\s*:')
_OWN_TOOLS = ("function", "custom", None)


def is_secret(name: str) -> bool:
    """True for an attribute that holds an API key or a cookie.

    Examples
    --------
    >>> is_secret("headers.Authorization"), is_secret("x-api-key"), is_secret("country")
    (True, True, False)
    """
    return _SECRET.search(name) is not None


def checked_kinds(names: Collection[str]) -> frozenset[str]:
    if unknown := sorted(set(names) - KINDS.keys()):
        raise ConfigError(f"--safe-to-ask: one of {', '.join(KINDS)} expected, got {unknown[0]!r}")
    return frozenset(names)


def unsafe_kind(request: Members, safe: Collection[str] = ()) -> str:
    """Kind of :data:`KINDS` that forbids sending the request, or empty.

    Examples
    --------
    >>> from .questions import members_of
    >>> unsafe_kind(members_of(b'{"messages": [], "store": true}'))
    'stored'
    >>> unsafe_kind(members_of(b'{"messages": [], "tools": [{"type": "web_search"}]}'))
    'server_tools'
    """
    kinds = (kind for kind, is_of in _TESTS.items() if kind not in safe and is_of(request))
    return next(kinds, "")


def _has(kind: str) -> Callable[[Members], bool]:
    names = _NAMED[kind]
    return lambda request: any(value_of(request, name) not in (None, False, [], {}, "") for name in names)


def _has_server_tools(request: Members) -> bool:
    tools = value_of(request, "tools")
    listed = tools if isinstance(tools, list) else [tools] if tools else []
    return _has("server_tools")(request) or any(_is_server_tool(tool) for tool in listed)


def _is_server_tool(tool: Any) -> bool:
    return not isinstance(tool, Mapping) or tool.get("type") not in _OWN_TOOLS


def _has_files(request: Members) -> bool:
    parts = (request.get(name) for name in ("messages", "prompt", "tools"))
    return _has("files")(request) or any(part is not None and _FILE.search(part) for part in parts)


def _is_on(name: str) -> Callable[[Members], bool]:
    return lambda request: value_of(request, name) not in (None, False)


def _has_several(request: Members) -> bool:
    prompt = value_of(request, "prompt")
    many = isinstance(prompt, list) and len(prompt) > 1 and not all(isinstance(one, int) for one in prompt)
    return many or any(value_of(request, name) not in (None, 0, 1) for name in ("n", "best_of"))


def _has_audio(request: Members) -> bool:
    modes = value_of(request, "modalities")
    return (isinstance(modes, list) and "audio" in modes) or value_of(request, "audio") is not None


_TESTS: Mapping[str, Callable[[Members], bool]] = {
    "server_tools": _has_server_tools,
    "stored": _is_on("store"),
    "conversation": _has("conversation"),
    "files": _has_files,
    "background": _is_on("background"),
    "callbacks": _has("callbacks"),
    "several_answers": _has_several,
    "audio": _has_audio,
}
