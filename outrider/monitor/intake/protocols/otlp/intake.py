"""``POST /v1/traces`` and ``POST /v1/logs``: OTLP over HTTP, in protobuf or JSON."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from outrider.assertions.batch import TIME
from outrider.dataops.journal.notes import Notes
from outrider.dataops.state.stored_texts import NUL
from outrider.monitor.http.problem import Problem, ProblemError, problem
from outrider.monitor.intake.column_types import Values
from outrider.monitor.intake.decode import Decoded
from outrider.monitor.intake.protocols.base import Arrival, ParsedRequest, SenderReply
from outrider.monitor.intake.protocols.chat_columns import Fields
from outrider.monitor.intake.rejections import Rejections
from outrider.monitor.intake.request_parts import RequestPart
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.stream.event_time import fault_of

from . import json_form, protobuf
from .attributes import SpanAttributes
from .call import Call
from .forms import LogRecord, Span
from .matching import Matcher
from .partial_calls import Met, Passages, Waiting
from .semantic_conventions import call_of_log, call_of_span, passages_of_span, role_of

_Item = TypeVar("_Item", Span, LogRecord)
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
    success = b"\x08" + _varint(rejected) + _field(2, message)
    return SenderReply(200, b"\x0a" + _varint(len(success)) + success, _TYPES[form])


def refused(form: Form, problem: Problem) -> SenderReply:
    """Error as a ``google.rpc.Status``, with the status that exporters retry where that helps."""
    status = _AGAIN.get(problem.status, problem.status)
    headers = dict(problem.headers)
    if form == "json":
        return SenderReply(status, msgspec.json.encode({"message": problem.detail}), _TYPES[form], headers)
    return SenderReply(status, _field(2, problem.detail), _TYPES[form], headers)


def _field(number: int, text: str) -> bytes:
    encoded = text.encode("utf-8", "replace")
    return bytes([number << 3 | 2]) + _varint(len(encoded)) + encoded


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


_LONGEST = 256


class CallRow(NamedTuple):
    place: int
    call: Call
    is_partial: bool
    fields: Fields


def part_of(model: str, rows: Sequence[CallRow]) -> RequestPart:
    """Columns of calls: id, begin, entity (conversation, else trace), and the known fields."""
    calls = [row.call for row in rows]
    names = dict.fromkeys(name for row in rows for name in row.fields)
    # Exporters that know no time write 0.
    times = pa.array([call.start_us or None for call in calls], pa.int64())
    system: dict[str, Values] = {
        "id": [call.id or None for call in calls],
        "ts": times.cast(TIME),
        "entity": [_entity(call) for call in calls],
        "weight": [row.call.weight for row in rows],
        "partial": [row.is_partial for row in rows],
    }
    columns: dict[str, Values] = {name: [row.fields.get(name) for row in rows] for name in names}
    return RequestPart(model, [row.place for row in rows], system, columns=columns, has_own_names=True)


def _entity(call: Call) -> str | None:
    conversation = call.conversation
    return conversation if conversation and len(conversation) <= _LONGEST else call.trace or None


_IDS = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}").fullmatch
_TOO_DEEP = "messages are nested too deep"
_NAMED = 3
"""Reasons that an answer gives."""
MOST_PASSAGES_BYTES = 16_777_216
"""Passages of one export: each call has those of its whole trace, so they may multiply."""


@dataclass(slots=True)
class _Export:
    calls: list[Call] = field(default_factory=list)
    indices: dict[str, int] = field(default_factory=dict)
    """Id of a call to the place of its span, or of its first log record."""
    loose: list[tuple[int, Call]] = field(default_factory=list)
    """Calls without ids, which nothing can be joined to."""
    passages: list[Passages] = field(default_factory=list)
    rejected: Rejections = field(default_factory=Rejections)
    ignored: int = 0


class Otlp:
    def __init__(self, signal: Signal, matcher: Matcher, waiting: Waiting, metrics: Metrics) -> None:
        self.name: str = signal
        self._signal: Signal = signal
        self._path = f"/v1/{signal}"
        self._matcher = matcher
        self._waiting = waiting
        self._items = metrics.counter("outrider_otlp_items_total")

    def matches(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:  # noqa: ARG002 - protocol
        return path == self._path and method == "POST"

    def read(self, arrival: Arrival) -> ParsedRequest:
        form = _form(arrival.headers)
        if form is None:
            known = ", ".join(CONTENT_TYPES)
            raise ProblemError(
                problem(415, f"Content-Type {arrival.headers.get('content-type')!r}: one of {known} expected")
            )
        decode = protobuf if form == "protobuf" else json_form
        if self._signal == "traces":
            export = _gathered(decode.spans(arrival.body), self._span)
        else:
            export = _gathered(decode.logs(arrival.body), self._log)
        met = self._waiting.meet(export.calls, export.passages, arrival.received_us)
        self._count(export, met)
        return self._reading(export, met)

    def answer(self, arrival: Arrival, decoded: Decoded) -> SenderReply:
        named = decoded.rejected.listed[:_NAMED]
        reasons = [f"{self._signal} {r.index}: {r.field}: {r.reason}" for r in named]
        more = decoded.rejected.count - len(reasons)
        message = "; ".join(reasons) + (f"; and {more} more" if more > 0 else "")
        return taken(self._signal, _form(arrival.headers) or "json", decoded.rejected.count, message)

    def refuse(self, headers: Mapping[str, str], problem: Problem) -> SenderReply:
        return refused(_form(headers) or "json", problem)

    def _span(self, export: _Export, span: Span) -> None:
        if not span.attributes:
            export.ignored += 1
            return
        facts = SpanAttributes(span.attributes)
        role = role_of(facts)
        if role == "other":
            export.ignored += 1
        elif not _IDS(f"{span.trace}-{span.span}"):
            reason = "a trace id of 16 bytes and a span id of 8 expected"
            export.rejected.add(span.place, "spanId", reason)
        elif role == "call":
            self._add(export, span.place, call_of_span(span, facts))
        elif texts := passages_of_span(span, facts):
            start_ns, end_ns = span.start_ns, max(span.start_ns, span.end_ns)
            export.passages.append(Passages(span.trace, span.span, start_ns // 1000, texts, end_ns // 1000))
        else:
            export.ignored += 1

    def _log(self, export: _Export, log: LogRecord) -> None:
        call = call_of_log(log)
        if call is None:
            export.ignored += 1
        elif _IDS(call.id):
            self._add(export, log.place, call)
        elif call.has_details:
            call.id = ""
            export.loose.append((log.place, call))
        else:
            reason = "a message outside of a span belongs to no call: traceId and spanId expected"
            export.rejected.add(log.place, "spanId", reason)

    def _add(self, export: _Export, index: int, call: Call) -> None:
        """Take a call, unless no model is meant; single messages name none before their span comes."""
        names = call.attrs.get("request_model"), call.attrs.get("response_model")
        names_one = call.is_span or call.has_details
        if names_one and self._matcher.model_of(call) is None:
            reason = self._matcher.reason(call.service, *names)
            export.rejected.add(index, "model", reason, id_=call.id)
            return
        # Before it waits, while the sender can be told.
        if (fault := fault_of(call.start_us)) is not None:
            export.rejected.add(index, "ts", fault, id_=call.id)
            return
        if (name := _with_nul(call)) is not None:
            export.rejected.add(index, name, NUL, id_=call.id)
            return
        export.calls.append(call)
        export.indices.setdefault(call.id.removesuffix(":span"), index)

    def _reading(self, export: _Export, met: Met) -> ParsedRequest:
        made = [
            (export.indices.get(call.id.removesuffix(":span"), 0), call, partial)
            for call, partial in met.calls
        ]
        made += [(index, call, False) for index, call in export.loose]
        for call, reason in met.unfit:
            export.rejected.add(export.indices.get(call.id, 0), "", reason, id_=call.id)
        rows, bare = rows_of(made, self._matcher, self._waiting, export.rejected)
        if bare:
            self._items.labels(signal=self._signal, outcome="bare").inc(bare)
        parts = [part_of(model, members) for model, members in rows.items()]
        return ParsedRequest(
            parts,
            rejected=export.rejected,
            notes=Notes(met.put, met.remove),
            settled=_settled(self._waiting, met),
        )

    def _count(self, export: _Export, met: Met) -> None:
        counts = {
            "ignored": export.ignored,
            "passages": len(export.passages),
            "waiting": met.waiting,
            "late": met.late,
            "rejected": export.rejected.count + len(met.unfit),
            "call": len(met.calls) + len(export.loose),
        }
        for outcome, count in counts.items():
            if count:
                self._items.labels(signal=self._signal, outcome=outcome).inc(count)


def _gathered(items: Iterable[_Item], take: Callable[[_Export, _Item], None]) -> _Export:
    export = _Export()
    for item in items:
        try:
            take(export, item)
        except RecursionError:
            export.rejected.add(item.place, "", _TOO_DEEP)
    return export


def rows_of(
    calls: Iterable[tuple[int, Call, bool]], matcher: Matcher, waiting: Waiting, rejected: Rejections
) -> tuple[dict[str, list[CallRow]], int]:
    """Rows by model, and how many calls lack their passages; calls of no model are ``rejected``."""
    rows: dict[str, list[CallRow]] = {}
    bare, left = 0, MOST_PASSAGES_BYTES
    for index, call, is_partial in calls:
        names = call.attrs.get("request_model"), call.attrs.get("response_model")
        model = matcher.model_of(call)
        if model is None:
            rejected.add(index, "model", matcher.reason(call.service, *names), id_=call.id)
            continue
        passages, size = waiting.passages(call, left)
        if size > left:
            bare += 1
        else:
            left -= size
        try:
            fields = call.columns(passages)
        except RecursionError:
            rejected.add(index, "inputs.messages", _TOO_DEEP, id_=call.id)
            continue
        rows.setdefault(model, []).append(CallRow(index, call, is_partial, fields))
    return rows, bare


def _with_nul(call: Call) -> str | None:
    """Entity or attribute of a call that no record may have, for its NUL."""
    if call.conversation and "\0" in call.conversation:
        return "entity"
    names = (
        f"attrs.{name}" for name, value in call.attrs.items() if isinstance(value, str) and "\0" in value
    )
    return next(names, None)


def _settled(waiting: Waiting, met: Met) -> Callable[[bool], None]:
    return lambda is_durable: waiting.committed(met) if is_durable else waiting.failed(met)


def _form(headers: Mapping[str, str]) -> Form | None:
    return CONTENT_TYPES.get(headers.get("content-type", "").partition(";")[0].strip().lower())
