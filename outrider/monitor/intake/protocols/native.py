"""Outrider's own intakes: JSON, JSON lines and Arrow IPC streams of records or labels."""

from collections.abc import Mapping

from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.query_names import check_names
from outrider.monitor.intake.decode import Decoded, Decoder, Form, RecordKind

from .base import Arrival, HalfPart, ParsedRequest, SenderReply, accepted
from .native_sides import split

_FORMS: dict[str, Form] = {
    "": "json",
    "application/json": "json",
    "application/x-ndjson": "lines",
    "application/ndjson": "lines",
    "application/jsonl": "lines",
    "application/json-lines": "lines",
    "application/x-jsonlines": "lines",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.outrider.framed": "framed",
}
_PARAMETERS = ("clock", "join", "model")


class Native:
    """``POST /v1/records`` or ``POST /v1/labels``."""

    def __init__(self, kind: RecordKind, decoder: Decoder) -> None:
        self.name: str = kind
        self._kind = kind
        self._path = f"/v1/{kind}"
        self._decoder = decoder

    def matches(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:  # noqa: ARG002 - protocol
        return path == self._path and method == "POST"

    def quick(self, arrival: Arrival) -> ParsedRequest | None:
        _check(arrival.query)
        if self._kind == "labels" or "join" in arrival.query:
            return None
        model = arrival.query.get("model")
        parts = self._decoder.read_known(
            arrival.body, form=_form(arrival.headers), model=model, received_us=arrival.received_us
        )
        return ParsedRequest(parts) if parts else None

    def read(self, arrival: Arrival) -> ParsedRequest:
        _check(arrival.query)
        form = _form(arrival.headers)
        model = arrival.query.get("model")
        parts, rejected = self._decoder.read(arrival.body, kind=self._kind, form=form, model=model)
        if not rejected and not any(part.indices for part in parts):
            raise ProblemError(problem(422, "the body holds no records", accepted=0, rejected=[]))
        halves: list[HalfPart] = []
        if self._kind == "records" and _flag(arrival.query, "join"):
            parts, halves = split(parts, rejected)
        return ParsedRequest(parts, halves, rejected, self._kind)

    def answer(self, arrival: Arrival, decoded: Decoded) -> SenderReply:  # noqa: ARG002 - protocol
        return accepted(decoded)


def _check(query: Mapping[str, str]) -> None:
    check_names(query, _PARAMETERS)
    if (clock := query.get("clock", "own")) != "own":
        raise ProblemError(problem(422, f"?clock= is own, got {clock!r:.80}", field="clock"))


def _flag(query: Mapping[str, str], name: str) -> bool:
    said = query.get(name, "false")
    if said not in ("true", "false"):
        raise ProblemError(problem(400, f"?{name}= is true or false, got {said!r:.80}"))
    return said == "true"


def _form(headers: Mapping[str, str]) -> Form:
    name = headers.get("content-type", "").partition(";")[0].strip().lower()
    # curl --data says this unless told otherwise; the body is JSON all the same.
    form = _FORMS.get("" if name == "application/x-www-form-urlencoded" else name)
    if form is None:
        known = ", ".join(name for name in _FORMS if name)
        raise ProblemError(problem(415, f"Content-Type {name!r} is not known; send one of {known}"))
    return form
