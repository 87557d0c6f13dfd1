"""CloudEvents over HTTP, versions 1.0 and 0.3: binary, structured and batched, as plain values."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from outrider.dataops.state.stored_texts import text_fault
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.intake.decode import FieldError, parse_json

VERSIONS = ("1.0", "0.3")
STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
_PREFIX = "ce-"
_OTHER_FORM = "application/cloudevents"
_NO_EXTENSION = {"specversion", "id", "source", "type", "time", "data", "data_base64", "datacontentencoding"}


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    source: str
    type: str
    time: str | None
    """RFC 3339."""
    data: bytes
    extensions: Mapping[str, str] = field(default_factory=dict)


def read_events(
    headers: Mapping[str, str], body: bytes, *, max_events: int, max_depth: int
) -> list[Event | FieldError]:
    """Events of a request; a faulty event of a batch is its fault."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == STRUCTURED:
        return [_structured(parse_json(body, max_depth), max_depth)]
    if kind == BATCHED:
        listed = parse_json(body, max_depth)
        if not isinstance(listed, list):
            raise ProblemError(problem(400, f"{BATCHED}: a list of events expected"))
        if len(listed) > max_events:
            raise ProblemError(
                problem(413, f"{len(listed)} events, at most {max_events} in one request (limits.records)")
            )
        return [_structured(item, max_depth) for item in listed]
    if kind.startswith(_OTHER_FORM):
        raise ProblemError(
            problem(415, f"Content-Type {kind!r} is not known; send {STRUCTURED} or {BATCHED}")
        )
    if _PREFIX + "specversion" not in headers:
        raise ProblemError(
            problem(
                415,
                "no CloudEvent: headers ce-specversion, ce-id, ce-source and ce-type expected, or "
                f"Content-Type {STRUCTURED} or {BATCHED}",
            )
        )
    named = {name[3:]: _decoded(value) for name, value in headers.items() if name.startswith(_PREFIX)}
    return [_event(named, body)]


def _structured(item: Any, max_depth: int) -> Event | FieldError:
    if not isinstance(item, dict):
        return FieldError("", f"expected an event as JSON object, got {type(item).__name__}")
    try:
        data = _data(item, max_depth)
    except FieldError as fault:
        return fault
    return _event({name: value for name, value in item.items() if name != "data"}, data)


def _data(item: Mapping[str, Any], max_depth: int) -> bytes:
    """Payload of an event in JSON form, as it would be the body of a binary one."""
    if (encoded := item.get("data_base64")) is not None:
        return _unpacked(encoded, "data_base64")
    data = item.get("data")
    if str(item.get("datacontentencoding", "")).lower() == "base64":  # 0.3
        return _unpacked(data, "data")
    if isinstance(data, str):  # a body of JSON is no text: whoever sends one has written it out
        return data.encode("utf-8", "surrogatepass")
    try:
        # Unlike faster writers this keeps numbers that are none, so that they are refused where they stand.
        return json.dumps(data).encode()
    except RecursionError:
        raise FieldError("data", f"nested deeper than {max_depth} levels (limits.depth)") from None


def _unpacked(encoded: Any, name: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise FieldError(name, f"is not base64: {error}") from None


def _event(named: Mapping[str, Any], data: bytes) -> Event | FieldError:
    if named.get("specversion") not in VERSIONS:
        known = " or ".join(VERSIONS)
        return FieldError("specversion", f"expected {known}, got {named.get('specversion')!r:.80}")
    for name in ("id", "source", "type"):
        if not (_is_text(named.get(name)) and named[name]):
            return FieldError(
                name, f"expected a text that is not empty, without NUL, got {named.get(name)!r:.80}"
            )
    time = named.get("time")
    if time is not None and not _is_text(time):
        return FieldError("time", f"expected a time as RFC 3339, got {time!r:.80}")
    extensions = {
        name: value if isinstance(value, str) else str(value)
        for name, value in named.items()
        if name not in _NO_EXTENSION
        and isinstance(value, str | int)  # what is no text is refused where it is used
    }
    return Event(named["id"], named["source"], named["type"], time or None, data, extensions)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and text_fault(value) is None


def _decoded(value: str) -> str:
    """Value of a header: UTF-8, percent-encoded, received as Latin-1."""
    return unquote_to_bytes(value.encode("latin-1")).decode("utf-8", "replace")
