"""``POST /v1/cloudevents``: requests and responses logged by KServe, Seldon and MLServer.

Both events of a call have one id; they are joined into one record (`outrider.monitor.intake.join`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from outrider.monitor.http.problem import ProblemError
from outrider.monitor.intake.decode import Decoded, FieldError, parse_json
from outrider.monitor.intake.pending_blocks import Side
from outrider.monitor.intake.request_parts import RequestPart
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import LimitSettings

from .base import Arrival, HalfPart, ParsedRequest, SenderReply, accepted
from .events import Event, read_events
from .ids import check_short, request_id, row_ids
from .open_inference import MirrorTarget
from .plain_bodies import PlainForm, read_plain
from .request_models import RequestModels
from .streamed_answers import assembled
from .v2 import Message, V2Form

PATH = "/v1/cloudevents"
_SIDES: dict[str, Side] = {"inference.request": "request", "inference.response": "response"}
_FAMILIES = ("org.kubeflow.serving.", "io.seldon.serving.")
_ABOUT = ("namespace", "component", "endpoint")
_UNSET = ("", "NOTIMPLEMENTED")
"""What MLServer writes where it knows no name."""
_NO_TENSORS = {"instances", "predictions", "data", "strData", "jsonData", "binData", "messages", "choices"}
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class ModelForm:
    v2: V2Form = field(default_factory=V2Form)
    plain: PlainForm = field(default_factory=PlainForm)
    is_joined: bool = True
    """Whether requests wait for their responses; else a replica answers them."""
    entity_header: str | None = None
    """Header of the call with the entity, if the sender passes it on."""

    @classmethod
    def of(cls, model: ModelSettings, limits: LimitSettings) -> "ModelForm":
        """Form by configuration: without a word there, requests wait for their responses."""
        return cls(
            v2=MirrorTarget.of(model, limits).form,
            plain=PlainForm(
                model.inputs,
                model.target,
                model.intake.tensors_of("inputs"),
                model.intake.tensors_of("outputs"),
            ),
            is_joined=model.intake.answers != "replica",
            entity_header=model.intake.entity_header,
        )


class CloudEvents:
    name = "cloudevents"

    def __init__(
        self,
        forms: Mapping[str, ModelForm],
        models: RequestModels,
        *,
        max_events: int = 100_000,
        max_depth: int = 16,
    ) -> None:
        self._forms = forms
        self._models = models
        self._max_events = max_events
        self._max_depth = max_depth

    def matches(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:  # noqa: ARG002 - protocol
        return path == PATH and method == "POST"

    def read(self, arrival: Arrival) -> ParsedRequest:
        events = read_events(
            arrival.headers, arrival.body, max_events=self._max_events, max_depth=self._max_depth
        )
        reading = ParsedRequest()
        for index, event in enumerate(events):
            if isinstance(event, FieldError):
                reading.rejected.add(index, event.field, event.reason)
                continue
            try:
                self._add(reading, event, index, arrival.query.get("model"))
            except FieldError as fault:
                reading.rejected.add(index, fault.field, fault.reason, id_=event.id[:256])
        return reading

    def answer(self, arrival: Arrival, decoded: Decoded) -> SenderReply:  # noqa: ARG002 - protocol
        return accepted(decoded)

    def _add(self, reading: ParsedRequest, event: Event, index: int, asked: str | None) -> None:
        side = _side(event.type)
        model = self._model(event, asked)
        form = self._forms[model]
        if side == "response" and not form.is_joined:
            raise FieldError(
                "type",
                f'a response of {model}, whose intake says answers = "replica"; log requests only, or'
                ' set answers = "joined"',
            )
        part = self._part(event, side, model, form, index)
        if form.is_joined:
            reading.halves.append(HalfPart(event.source, side, part))
        else:
            reading.parts.append(part)

    def _model(self, event: Event, asked: str | None) -> str:
        if asked is not None:
            if asked in self._forms:
                return asked
            raise FieldError("model", f"unknown model {asked[:256]!r} in ?model=; known: {self._known()}")
        names = [event.extensions.get(name, "") for name in ("modelid", "inferenceservicename")]
        names = [name for name in names if name not in _UNSET]
        for name in names:
            # Seldon Core 2 appends the number of the version: iris_1.
            base, _, number = name.rpartition("_")
            for candidate in (name, base if number.isdigit() else ""):
                if candidate and (found := self._models.find(candidate)) is not None:
                    return found
        said = " or ".join(repr(name[:256]) for name in names) or "none"
        raise FieldError(
            "model",
            f"the event names {said}, none of {self._known()}; name the model in the address"
            " (/v1/cloudevents?model=NAME), or that name in models.NAME.intake.request_models",
        )

    def _known(self) -> str:
        return ", ".join(list(self._forms)[:20])

    def _part(self, event: Event, side: Side, model: str, form: ModelForm, index: int) -> RequestPart:
        message: Message = "request" if side == "request" else "response"
        attrs = {
            name: event.extensions[name] for name in _ABOUT if event.extensions.get(name, "") not in _UNSET
        }
        passed = _passed_on(event)
        headers = _headers(event, passed)
        entity = passed.get(form.entity_header or "") or event.extensions.get("entity") or None
        try:
            check_short("entity", entity)
            if _has_tensors(event.data):
                found = form.v2.read(event.data, message)
                part = found.part(model, id_=request_id(headers, found.id), ts=event.time, entity=entity)
                part.columns.update({f"attrs.{name}": [value] * found.rows for name, value in attrs.items()})
                return msgspec.structs.replace(part, indices=[index] * found.rows)
            streamed = assembled(event.data) if side == "response" else None
            parsed = parse_json(event.data, self._max_depth) if streamed is None else streamed
            body = read_plain(parsed, message, form.plain)
        except ProblemError as error:
            raise FieldError("data", error.problem.detail) from None
        except RecursionError:
            raise FieldError("data", f"nested deeper than {self._max_depth} levels (limits.depth)") from None
        part = _plain_part(model, side, body.rows, attrs | body.attrs, index)
        rows = len(body.rows)
        part.system.update({"ts": [event.time] * rows, "entity": [entity] * rows})
        if (ids := row_ids(request_id(headers, body.id), rows)) is not None:
            part.system["id"] = ids
        return msgspec.structs.replace(part, has_own_names="messages" in parsed)


def _plain_part(
    model: str, side: Side, rows: Sequence[dict[str, Any]], attrs: dict[str, Any], index: int
) -> RequestPart:
    count = len(rows)
    nothing: list[dict[str, Any] | None] = [None] * count
    fields: dict[str, list[dict[str, Any] | None]] = {
        "inputs": list(rows) if side == "request" else nothing,
        "outputs": list(rows) if side == "response" else nothing,
        "attrs": [attrs or None] * count,
    }
    return RequestPart(model, [index] * count, {}, fields)


def _side(kind: str) -> Side:
    family = next((family for family in _FAMILIES if kind.startswith(family)), None)
    side = _SIDES.get(kind.removeprefix(family)) if family else None
    if side is None:
        raise FieldError(
            "type",
            f"expected {' or '.join(f'{f}inference.request|response' for f in _FAMILIES)}, got {kind!r:.200}",
        )
    return side


def _passed_on(event: Event) -> dict[str, str]:
    """Headers of the call that KServe passes on as JSON; names in lower case."""
    try:
        metadata = msgspec.json.decode(event.extensions.get("metadata", "{}"))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    found = {}
    for name, values in metadata.items() if isinstance(metadata, dict) else ():
        value = values[0] if isinstance(values, list) and values else values
        if isinstance(value, str):
            found[name.lower()] = value
    return found


def _headers(event: Event, passed: Mapping[str, str]) -> dict[str, str]:
    """Names of the call, not of the event's own delivery.

    Both events of Seldon's executor have one ``requestid``, and ids of their own.
    """
    said = {"ce-id": event.extensions.get("requestid") or event.id}
    if "traceparent" in event.extensions:
        said["traceparent"] = event.extensions["traceparent"]
    return said | {name: passed[name] for name in ("x-request-id", "traceparent") if name in passed}


def _has_tensors(body: bytes) -> bool:
    """True for a body of the Open Inference Protocol: a list of tensors, perhaps with bytes after it."""
    try:
        top = _TOP.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return body[:1] == b"{" and b'"datatype"' in body[:65_536]
    if _NO_TENSORS & top.keys():
        return False
    return (
        any(b'"datatype"' in bytes(top[name]) for name in ("inputs", "outputs") if name in top)
        or "error" in top
    )
