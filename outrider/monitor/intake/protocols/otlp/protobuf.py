"""OTLP in protobuf: spans or log records of a request."""

from collections.abc import Iterable, Iterator
from typing import Any

from outrider.monitor.http.problem import ProblemError, problem

from .forms import Attributes, LogRecord, Span, SpanEvent, is_read

_ERROR = 2


def spans(body: bytes) -> Iterator[Span]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = _parsed(ExportTraceServiceRequest(), body)
    index = 0
    for group in request.resource_spans:
        service = _service(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                status = span.status
                yield Span(
                    index,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _attributes(span.attributes),
                    [SpanEvent(e.name, e.time_unix_nano, _attributes(e.attributes)) for e in span.events],
                    (status.message or "error") if status.code == _ERROR else None,
                    service,
                    span.trace_state,
                )
                index += 1


def logs(body: bytes) -> Iterator[LogRecord]:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = _parsed(ExportLogsServiceRequest(), body)
    index = 0
    for group in request.resource_logs:
        service = _service(group.resource.attributes)
        for scope in group.scope_logs:
            for log in scope.log_records:
                attributes = _attributes(log.attributes)
                yield LogRecord(
                    index,
                    log.trace_id.hex(),
                    log.span_id.hex(),
                    log.event_name or str(attributes.get("event.name", "")),
                    log.time_unix_nano or log.observed_time_unix_nano,
                    _value(log.body) if log.HasField("body") else None,
                    attributes,
                    service,
                )
                index += 1


def _parsed(message: Any, body: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        message.ParseFromString(body)
    except DecodeError as error:
        name = type(message).__name__
        raise ProblemError(problem(400, f"the body is no {name} in protobuf: {error}")) from None
    return message


def _attributes(pairs: Iterable[Any]) -> Attributes:
    made: Attributes = {}
    for pair in pairs:
        key = pair.key
        if is_read(key):
            value = pair.value
            made[key] = value.string_value or _value(value)  # nearly all are texts
    return made


def _service(pairs: Iterable[Any]) -> str:
    return next((pair.value.string_value for pair in pairs if pair.key == "service.name"), "")


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value) for pair in value.kvlist_value.values}
    return None if kind is None else getattr(value, kind)
