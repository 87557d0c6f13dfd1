"""Answers to an exporter, in its own encoding."""

from typing import Literal

import msgspec

from outrider.monitor.http.problem import Problem
from outrider.monitor.intake.protocols.base import SenderReply

Signal = Literal["traces", "logs"]
Form = Literal["protobuf", "json"]
CONTENT_TYPES: dict[str, Form] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_TYPES: dict[Form, bytes] = {form: name.encode() for name, form in CONTENT_TYPES.items()}
_UNITS: dict[Signal, str] = {"traces": "rejectedSpans", "logs": "rejectedLogRecords"}
_AGAIN = {408: 503, 507: 503}
"""Statuses that exporters would take for final, though sending again helps."""


def taken(signal: Signal, form: Form, rejected: int, message: str) -> SenderReply:
    """The export was taken, but for ``rejected`` spans or log records."""
    if not rejected and not message:
        return SenderReply(200, b"" if form == "protobuf" else b"{}", _TYPES[form])
    if form == "json":
        members = {_UNITS[signal]: str(rejected), "errorMessage": message}
        return SenderReply(200, msgspec.json.encode({"partialSuccess": members}), _TYPES[form])
    # ExportTracePartialSuccess and ExportLogsPartialSuccess have the same fields: int64 1, string 2.
    said = b"\x08" + _varint(rejected) + _field(2, message)
    return SenderReply(200, b"\x0a" + _varint(len(said)) + said, _TYPES[form])


def refused(form: Form, problem: Problem) -> SenderReply:
    """Error as a ``google.rpc.Status``, with the status that exporters retry where that helps."""
    status = _AGAIN.get(problem.status, problem.status)
    headers = dict(problem.headers)
    if form == "json":
        return SenderReply(status, msgspec.json.encode({"message": problem.detail}), _TYPES[form], headers)
    return SenderReply(status, _field(2, problem.detail), _TYPES[form], headers)


def _field(number: int, text: str) -> bytes:
    said = text.encode("utf-8", "replace")
    return bytes([number << 3 | 2]) + _varint(len(said)) + said


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
