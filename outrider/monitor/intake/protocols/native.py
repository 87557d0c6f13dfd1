"""Outrider's own intakes: JSON, JSON lines and Arrow IPC streams of records or labels."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.query_names import check_names
from outrider.monitor.intake.decode import Decoded, Decoder, Form, RecordKind
from outrider.monitor.intake.pending_blocks import Side
from outrider.monitor.intake.rejections import Rejections
from outrider.monitor.intake.request_parts import RequestPart

from .base import Arrival, HalfPart, ParsedRequest, SenderReply, accepted

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
    value = query.get(name, "false")
    if value not in ("true", "false"):
        raise ProblemError(problem(400, f"?{name}= is true or false, got {value!r:.80}"))
    return value == "true"


def _form(headers: Mapping[str, str]) -> Form:
    name = headers.get("content-type", "").partition(";")[0].strip().lower()
    # curl --data sends this by default; the body is JSON all the same.
    form = _FORMS.get("" if name == "application/x-www-form-urlencoded" else name)
    if form is None:
        known = ", ".join(name for name in _FORMS if name)
        raise ProblemError(problem(415, f"Content-Type {name!r} is not known; send one of {known}"))
    return form


_NAMELESS = "is missing: with join=true, a record meets its other side by id"


def split(parts: Sequence[RequestPart], rejected: Rejections) -> tuple[list[RequestPart], list[HalfPart]]:
    """Whole records and unmatched sides; sides without an id are rejected.

    A record with inputs and no outputs is a request, one with outputs and no inputs a response.
    """
    whole: list[RequestPart] = []
    halves: list[HalfPart] = []
    for part in parts:
        inputs, outputs = _filled(part, "inputs"), _filled(part, "outputs")
        rows: dict[Side | None, list[int]] = {}
        for row, (has_inputs, has_outputs) in enumerate(zip(inputs, outputs, strict=True)):
            side: Side | None = "request" if has_inputs else "response"
            rows.setdefault(None if has_inputs == has_outputs else side, []).append(row)
        for kind, members in rows.items():
            chosen = part if len(rows) == 1 else part.take(members)
            if kind is None:
                whole.append(chosen)
                continue
            named, unnamed = _by_name(chosen)
            rejected.add_rows(
                np.array(unnamed, np.int64), "id", _NAMELESS, indices=chosen.indices, model=part.model
            )
            if named:
                halves.append(HalfPart("", kind, chosen.take(named) if unnamed else chosen))
    return whole, halves


def _filled(part: RequestPart, prefix: str) -> list[bool]:
    """Rows with a value in any field of ``prefix``."""
    if prefix in part.fields:
        return [bool(fields) for fields in part.fields[prefix]]
    filled = pa.array([False] * len(part.indices))
    for name, values in part.columns.items():
        if name.startswith(f"{prefix}."):
            if isinstance(values, pa.Array):
                filled = pc.or_(filled, values.is_valid())
            else:
                filled = pc.or_(filled, pa.array([value is not None for value in values]))
    found: list[bool] = filled.to_pylist()
    return found


def _by_name(part: RequestPart) -> tuple[list[int], list[int]]:
    ids = part.system.get("id")
    given = (
        ids.is_valid().to_pylist() if isinstance(ids, pa.Array) else [id_ is not None for id_ in ids or ()]
    )
    given = given or [False] * len(part.indices)
    return [row for row, has in enumerate(given) if has], [row for row, has in enumerate(given) if not has]
