"""A protocol reads a request into columns, and answers the sender."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import msgspec

from outrider.dataops.journal.journal import NONE
from outrider.dataops.journal.notes import Notes
from outrider.monitor.http.problem import Problem
from outrider.monitor.intake.decode import Decoded, RecordKind
from outrider.monitor.intake.pending_blocks import Side
from outrider.monitor.intake.rejections import Rejections
from outrider.monitor.intake.request_parts import HalfPart, RequestPart

__all__ = [
    "AddsError",
    "Arrival",
    "HalfPart",
    "IntakeProtocol",
    "ParsedRequest",
    "SenderReply",
    "Side",
    "SpeaksErrors",
    "accepted",
    "rejections",
]


def _nothing(is_durable: bool) -> None: ...


class Arrival(msgspec.Struct, frozen=True):  # a dataclass takes as long as to parse a record
    """Request as received: names of headers in lower case, body decompressed, receipt in µs."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    received_us: int
    models: frozenset[str] | None = None
    """Models that its key is limited to."""


@dataclass(slots=True)
class ParsedRequest:
    parts: list[RequestPart] = field(default_factory=list)
    halves: list[HalfPart] = field(default_factory=list)
    rejected: Rejections = field(default_factory=Rejections)
    kind: RecordKind = "records"
    notes: Notes = NONE
    """Written to the journal in the commit of the parts."""
    settled: Callable[[bool], None] = _nothing
    """Called with whether all of it became durable."""


class SenderReply(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""
    content_type: bytes = b"application/json"
    headers: Mapping[str, str] = {}


class IntakeProtocol(Protocol):
    """Protocol of arriving records; stateless and thread-safe."""

    name: str
    """Value of the label ``route`` of the metrics."""

    def matches(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:
        """Test for this intake's requests; cheap, before the body."""

    def read(self, arrival: Arrival) -> ParsedRequest: ...

    def answer(self, arrival: Arrival, decoded: Decoded) -> SenderReply: ...


@runtime_checkable
class QuickIntake(Protocol):
    """Intake with a fast path."""

    def quick(self, arrival: Arrival) -> ParsedRequest | None:
        """Columns of a request on the fast path; None: it needs `IntakeProtocol.read`."""


@runtime_checkable
class SpeaksErrors(Protocol):
    """Intake with errors in its peers' own form, and success even where nothing was taken."""

    def refuse(self, headers: Mapping[str, str], problem: Problem) -> SenderReply: ...


@runtime_checkable
class AddsError(Protocol):
    """Intake whose peers' clients look for an ``error`` member in problem documents."""

    def error(self, problem: Problem) -> object: ...


def accepted(decoded: Decoded, *, status: int = 202) -> SenderReply:
    """Counts and rejected records; a request of one record learns its id as ``x-outrider-id``."""
    count = decoded.accepted
    if decoded.rejected:
        # Reasons may quote what is no text, which the faster writer refuses.
        said = json.dumps({"accepted": count} | rejections(decoded), ensure_ascii=False)
        body = said.encode("utf-8", "replace")
    else:
        body = b'{"accepted":%d,"rejected":[]}' % count
    return SenderReply(status, body, headers=id_header(decoded) if count == 1 else {})


def id_header(decoded: Decoded) -> dict[str, str]:
    blocks = [*decoded.blocks, *(half.block for half in decoded.halves)]
    if decoded.accepted == 1 and blocks[0].kind == "records":
        # Header values are Latin-1, and ids are anything.
        id_ = blocks[0].only_id
        if id_ and id_.isascii() and id_.isprintable():
            return {"x-outrider-id": id_}
    return {}


def rejections(decoded: Decoded) -> dict[str, object]:
    """Members of an answer that name rejected records, the first thousand."""
    listed = decoded.rejected.listed
    members: dict[str, object] = {
        "rejected": [{"index": r.index, "id": r.id, "field": r.field, "reason": r.reason} for r in listed]
    }
    if decoded.rejected.count > len(listed):
        members["rejected_count"] = decoded.rejected.count
    return members
