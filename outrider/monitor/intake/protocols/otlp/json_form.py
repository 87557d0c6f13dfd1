"""OTLP in JSON: ids in hex, integers of 64 bits as texts, names in lowerCamelCase."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from outrider.monitor.http.problem import ProblemError, problem

from .forms import Attributes, LogRecord, Span, SpanEvent, is_read
from .messages import with_whole_characters

_ERROR = 2
T = TypeVar("T")


class _Struct(msgspec.Struct, rename="camel"):
    """Unknown members are passed over, as OTLP wants it."""


class _Value(_Struct):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: "_Array | None" = None
    kvlist_value: "_Pairs | None" = None
    bytes_value: str | None = None


class _Array(_Struct):
    values: list[_Value] = []


class _Pair(_Struct):
    key: str = ""
    value: _Value | None = None


class _Pairs(_Struct):
    values: list[_Pair] = []


class _Resource(_Struct):
    attributes: list[_Pair] = []


class _Status(_Struct):
    message: str = ""
    code: int = 0


class _Event(_Struct):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[_Pair] = []


class _Span(_Struct):
    trace_id: str = ""
    span_id: str = ""
    trace_state: str = ""
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[_Pair] = []
    events: list[_Event] = []
    status: _Status = msgspec.field(default_factory=_Status)


class _ScopeSpans(_Struct):
    spans: list[_Span] = []


class _ResourceSpans(_Struct):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_spans: list[_ScopeSpans] = []


class _Traces(_Struct):
    resource_spans: list[_ResourceSpans] = []


class _Log(_Struct):
    trace_id: str = ""
    span_id: str = ""
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    event_name: str = ""
    body: _Value | None = None
    attributes: list[_Pair] = []


class _ScopeLogs(_Struct):
    log_records: list[_Log] = []


class _ResourceLogs(_Struct):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_logs: list[_ScopeLogs] = []


class _Logs(_Struct):
    resource_logs: list[_ResourceLogs] = []


_TRACES = msgspec.json.Decoder(_Traces)
_LOGS = msgspec.json.Decoder(_Logs)


def spans(body: bytes) -> Iterator[Span]:
    index = 0
    for group in _decoded(_TRACES, body).resource_spans:
        service = _service(group.resource)
        for scope in group.scope_spans:
            for span in scope.spans:
                status = span.status
                yield Span(
                    index,
                    span.trace_id.lower(),
                    span.span_id.lower(),
                    _time(span.start_time_unix_nano),
                    _time(span.end_time_unix_nano),
                    _attributes(span.attributes),
                    [
                        SpanEvent(e.name, _time(e.time_unix_nano), _attributes(e.attributes))
                        for e in span.events
                    ],
                    (status.message or "error") if status.code == _ERROR else None,
                    service,
                    span.trace_state,
                )
                index += 1


def logs(body: bytes) -> Iterator[LogRecord]:
    index = 0
    for group in _decoded(_LOGS, body).resource_logs:
        service = _service(group.resource)
        for scope in group.scope_logs:
            for log in scope.log_records:
                attributes = _attributes(log.attributes)
                yield LogRecord(
                    index,
                    log.trace_id.lower(),
                    log.span_id.lower(),
                    log.event_name or str(attributes.get("event.name", "")),
                    _time(log.time_unix_nano) or _time(log.observed_time_unix_nano),
                    None if log.body is None else _value(log.body),
                    attributes,
                    service,
                )
                index += 1


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        refusal = ProblemError(problem(400, f"the body is no export in OTLP's JSON: {error}"))
    try:
        return decoder.decode(with_whole_characters(body))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise refusal from None


def _attributes(pairs: Iterable[_Pair]) -> Attributes:
    return {pair.key: _value(pair.value) for pair in pairs if pair.value is not None and is_read(pair.key)}


def _service(resource: _Resource) -> str:
    values = (pair.value for pair in resource.attributes if pair.key == "service.name")
    return next((value.string_value or "" for value in values if value is not None), "")


def _value(value: _Value) -> Any:
    if value.string_value is not None:
        return value.string_value
    if value.int_value is not None:
        return _integer(value.int_value)
    if value.double_value is not None:
        return _double(value.double_value)
    if value.array_value is not None:
        return [_value(one) for one in value.array_value.values]
    if value.kvlist_value is not None:
        pairs = value.kvlist_value.values
        return {pair.key: None if pair.value is None else _value(pair.value) for pair in pairs}
    return value.bool_value if value.bool_value is not None else value.bytes_value


def _integer(value: int | str) -> int | None:
    try:
        number = int(value)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**64 else None


def _time(value: int | str) -> int:
    return _integer(value) or 0


def _double(value: float | str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
