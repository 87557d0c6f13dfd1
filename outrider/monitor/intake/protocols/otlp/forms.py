"""What is read of an export, the same for protobuf and JSON: spans and log records with plain attributes."""

from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

Attributes: TypeAlias = dict[str, Any]
"""Values by key: text, number, boolean, bytes, list or dictionary."""

_PREFIXES = (
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
    """Something that happened during a span."""

    name: str
    time_ns: int
    attributes: Attributes


class Span(NamedTuple):
    """One span; ids in lower-case hex, ``""`` where none was given."""

    place: int
    """Number in the request, from 0."""
    trace: str
    span: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    events: list[SpanEvent]
    error: str | None
    """What the status says of a span that failed."""
    service: str
    state: str = ""
    """``tracestate``: says how many calls a sampled one stands for."""


class LogRecord(NamedTuple):
    """One log record that is an event; ids as in `Span`."""

    place: int
    trace: str
    span: str
    name: str
    time_ns: int
    body: Any
    attributes: Attributes
    service: str


def is_read(key: str) -> bool:
    """Whether an attribute may say something about a call of a model; the others are passed over.

    Examples
    --------
    >>> is_read("gen_ai.request.model"), is_read("http.request.method")
    (True, False)
    """
    # Keys come from strangers: only short ones are remembered.
    return _is_read(key) if len(key) <= _SHORT else key.startswith(_PREFIXES)


@lru_cache(4096)
def _is_read(key: str) -> bool:
    return key.startswith(_PREFIXES)
