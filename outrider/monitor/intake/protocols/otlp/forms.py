"""Spans and log records of an export, the same for protobuf and JSON."""

from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

Attributes: TypeAlias = dict[str, Any]
"""Values by key: text, number, boolean, bytes, list or dictionary."""

_PREFIXES = (
    "ai.",
    "gen_ai.",
    "llm.",
    "openinference.",
    "input.",
    "output.",
    "retrieval.",
    "reranker.",
    "session.",
    "traceloop.",
    "error.",
    "event.name",
    "operation.cost",
    "content",
    "message",
    "role",
    "index",
    "id",
    "tool_calls",
    "finish_reason",
)
_SHORT = 256


class SpanEvent(NamedTuple):
    name: str
    time_ns: int
    attributes: Attributes


class Span(NamedTuple):
    """Span; ids in lower-case hex, ``""`` without one."""

    place: int
    """Number in the request, from 0."""
    trace: str
    span: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    events: list[SpanEvent]
    error: str | None
    """Status message of a span that failed."""
    service: str
    state: str = ""
    """``tracestate``: says how many calls a sampled one stands for."""


class LogRecord(NamedTuple):
    place: int
    trace: str
    span: str
    name: str
    time_ns: int
    body: Any
    attributes: Attributes
    service: str


def is_read(key: str) -> bool:
    """Test for an attribute that may describe a model's call; the others are passed over."""
    # Keys come from strangers: only short ones are remembered.
    return _is_read(key) if len(key) <= _SHORT else key.startswith(_PREFIXES)


@lru_cache(4096)
def _is_read(key: str) -> bool:
    return key.startswith(_PREFIXES)
