"""``POST /v1/traces`` and ``POST /v1/logs``: OTLP over HTTP, in protobuf or JSON."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from outrider.dataops.journal.notes import Notes
from outrider.dataops.state.stored_texts import NUL
from outrider.monitor.http.problem import Problem, ProblemError, problem
from outrider.monitor.intake.decode import Decoded
from outrider.monitor.intake.protocols.base import Arrival, ParsedRequest, SenderReply
from outrider.monitor.intake.rejections import Rejections
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.stream.event_time import fault_of

from . import json_form, protobuf
from .answers import CONTENT_TYPES, Form, Signal, refused, taken
from .attributes import SpanAttributes
from .call import Call
from .forms import LogRecord, Span
from .matching import Matcher
from .part import CallRow, part_of
from .partial_calls import Met, Passages, Waiting
from .semantic_conventions import call_of_log, call_of_span, passages_of_span, role_of

_IDS = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}").fullmatch
_TOO_DEEP = "messages are nested too deep"
_NAMED = 3
"""Reasons that an answer gives."""
MOST_PASSAGES_BYTES = 16_777_216
"""Passages of one export: each call has those of its whole trace, so they may multiply."""


@dataclass(slots=True)
class _Found:
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
            found = self._spans(decode.spans(arrival.body))
        else:
            found = self._logs(decode.logs(arrival.body))
        met = self._waiting.meet(found.calls, found.passages, arrival.received_us)
        self._count(found, met)
        return self._reading(found, met)

    def answer(self, arrival: Arrival, decoded: Decoded) -> SenderReply:
        named = decoded.rejected.listed[:_NAMED]
        reasons = [f"{self._signal} {r.index}: {r.field}: {r.reason}" for r in named]
        more = decoded.rejected.count - len(reasons)
        message = "; ".join(reasons) + (f"; and {more} more" if more > 0 else "")
        return taken(self._signal, _form(arrival.headers) or "json", decoded.rejected.count, message)

    def refuse(self, headers: Mapping[str, str], problem: Problem) -> SenderReply:
        return refused(_form(headers) or "json", problem)

    def _spans(self, spans: Iterable[Span]) -> _Found:
        found = _Found()
        for span in spans:
            try:
                self._span(found, span)
            except RecursionError:
                found.rejected.add(span.place, "", _TOO_DEEP)
        return found

    def _span(self, found: _Found, span: Span) -> None:
        if not span.attributes:
            found.ignored += 1
            return
        facts = SpanAttributes(span.attributes)
        role = role_of(facts)
        if role == "other":
            found.ignored += 1
        elif not _IDS(f"{span.trace}-{span.span}"):
            reason = "a trace id of 16 bytes and a span id of 8 expected"
            found.rejected.add(span.place, "spanId", reason)
        elif role == "call":
            self._add(found, span.place, call_of_span(span, facts))
        elif texts := passages_of_span(span, facts):
            start_ns, end_ns = span.start_ns, max(span.start_ns, span.end_ns)
            found.passages.append(Passages(span.trace, span.span, start_ns // 1000, texts, end_ns // 1000))
        else:
            found.ignored += 1

    def _logs(self, logs: Iterable[LogRecord]) -> _Found:
        found = _Found()
        for log in logs:
            try:
                self._log(found, log)
            except RecursionError:
                found.rejected.add(log.place, "", _TOO_DEEP)
        return found

    def _log(self, found: _Found, log: LogRecord) -> None:
        call = call_of_log(log)
        if call is None:
            found.ignored += 1
        elif _IDS(call.id):
            self._add(found, log.place, call)
        elif call.has_details:
            call.id = ""
            found.loose.append((log.place, call))
        else:
            reason = "a message outside of a span belongs to no call: traceId and spanId expected"
            found.rejected.add(log.place, "spanId", reason)

    def _add(self, found: _Found, index: int, call: Call) -> None:
        """Take a call, unless no model is meant; single messages name none before their span comes."""
        names = call.attrs.get("request_model"), call.attrs.get("response_model")
        names_one = call.is_span or call.has_details
        if names_one and self._matcher.model_of(call) is None:
            reason = self._matcher.reason(call.service, *names)
            found.rejected.add(index, "model", reason, id_=call.id)
            return
        # Before it waits, while the sender can be told.
        if (fault := fault_of(call.start_us)) is not None:
            found.rejected.add(index, "ts", fault, id_=call.id)
            return
        if (name := _with_nul(call)) is not None:
            found.rejected.add(index, name, NUL, id_=call.id)
            return
        found.calls.append(call)
        found.indices.setdefault(call.id.removesuffix(":span"), index)

    def _reading(self, found: _Found, met: Met) -> ParsedRequest:
        made = [
            (found.indices.get(call.id.removesuffix(":span"), 0), call, partial)
            for call, partial in met.calls
        ]
        made += [(index, call, False) for index, call in found.loose]
        for call, reason in met.unfit:
            found.rejected.add(found.indices.get(call.id, 0), "", reason, id_=call.id)
        rows, bare = rows_of(made, self._matcher, self._waiting, found.rejected)
        if bare:
            self._items.labels(signal=self._signal, outcome="bare").inc(bare)
        parts = [part_of(model, members) for model, members in rows.items()]
        return ParsedRequest(
            parts,
            rejected=found.rejected,
            notes=Notes(met.put, met.remove),
            settled=_settled(self._waiting, met),
        )

    def _count(self, found: _Found, met: Met) -> None:
        counts = {
            "ignored": found.ignored,
            "passages": len(found.passages),
            "waiting": met.waiting,
            "late": met.late,
            "rejected": found.rejected.count + len(met.unfit),
            "call": len(met.calls) + len(found.loose),
        }
        for outcome, count in counts.items():
            if count:
                self._items.labels(signal=self._signal, outcome=outcome).inc(count)


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
