"""Shadow target of the Open Inference Protocol (V2): mirrored requests of Triton, KServe and others."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from outrider.assertions.batch.columns import is_tensor
from outrider.monitor.http.problem import Problem, ProblemError, problem
from outrider.monitor.intake.column_types import is_list, parse_type
from outrider.monitor.intake.decode import Decoded
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import LimitSettings

from .base import Arrival, HalfPart, ParsedRequest, SenderReply, id_header
from .ids import request_id
from .mirror import is_mirrored, require_mirror
from .quick_tensors import QuickTensors
from .request_models import RequestModels
from .unsupported import is_unsupported_v2, refuse_unsupported
from .v2 import HEADER, V2Form, V2Message, header_length

_PATH = re.compile(r"/v2/models/(?P<model>.+?)(?:/versions/(?P<version>[^/]+))?/infer")


@dataclass(frozen=True, slots=True)
class MirrorTarget:
    """Options for mirrored requests of one model."""

    form: V2Form
    waits: bool = False
    entity_header: str | None = None
    only: tuple[str, pa.DataType | None] | None = None
    """Name and declared type of the only input, for raw bodies; None with several."""
    keeps_request: bool = False
    """Whether the whole body of a request of completions is kept."""

    @classmethod
    def of(cls, model: ModelSettings, limits: LimitSettings) -> "MirrorTarget":
        declared = {name: parse_type(text) for name, text in model.columns.items()}
        inputs = {name: kind for name, kind in declared.items() if name.startswith("inputs.")}
        names = model.declared_inputs or tuple(inputs)
        return cls(
            form=V2Form(
                batched=model.intake.batched,
                tensors=model.intake.tensors_of("inputs"),
                output_tensors=model.intake.tensors_of("outputs"),
                needed=model.needed_inputs,
                typed=() if model.inputs or model.intake.missing_inputs == "flag" else tuple(inputs),
                shaped=frozenset(name for name, kind in declared.items() if is_list(kind) or is_tensor(kind)),
                max_rows=limits.records,
                max_depth=limits.depth,
            ),
            waits=model.waits_for_answers,
            entity_header=model.intake.entity_header,
            only=(names[0].removeprefix("inputs."), inputs.get(names[0])) if len(names) == 1 else None,
            keeps_request=model.intake.keep_request,
        )

    def entity(self, headers: Mapping[str, str]) -> str | None:
        return headers.get(self.entity_header) or None if self.entity_header else None


class OpenInference:
    """``POST …/v2/models/{model}[/versions/{version}]/infer``; the answer has no outputs."""

    name = "infer"

    def __init__(
        self,
        targets: Mapping[str, MirrorTarget],
        models: RequestModels,
        *,
        schema: Callable[[str], tuple[pa.Schema, str]],
    ) -> None:
        self._targets = targets
        self._models = models
        self._tensors = QuickTensors(schema)

    def matches(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:  # noqa: ARG002 - protocol
        if path.endswith("/infer") and method == "POST" and _PATH.search(path) is not None:
            return True
        # A model may be called "stats".
        return is_unsupported_v2(path) and self._models.find(path.removeprefix("/v2/models/")) is None

    def quick(self, arrival: Arrival) -> ParsedRequest | None:
        headers = arrival.headers
        length = headers.get(HEADER, "")
        place = _PATH.search(arrival.path)
        if place is None or not (length.isascii() and length.isdigit()) or not is_mirrored(headers):
            return None
        model = self._models.find(place["model"])
        target = None if model is None else self._targets[model]
        if model is None or target is None or target.waits:
            return None
        part = self._tensors.read(
            arrival.body,
            int(length[:18]),
            model=model,
            form=target.form,
            id_of=lambda body_id: request_id(headers, body_id),
            entity=target.entity(headers),
            received_us=arrival.received_us,
        )
        return None if part is None else ParsedRequest([part])

    def read(self, arrival: Arrival) -> ParsedRequest:
        refuse_unsupported(arrival.path)
        require_mirror(arrival.headers)
        place = _place(arrival.path)
        model = self._models.find(place["model"])
        if model is None:
            id_ = request_id(arrival.headers)
            return ParsedRequest(rejected=self._models.unknown(place["model"], id_=id_))
        target = self._targets[model]
        message = _message(arrival, target)
        id_ = request_id(arrival.headers, message.id)
        # Without a response the replica answers, which is of its own version.
        version = place["version"] if target.waits else None
        part = message.part(model, id_=id_, version=version, entity=target.entity(arrival.headers))
        if not target.waits:
            return ParsedRequest([part])
        if id_ is None:
            # Nothing can ever be joined to it.
            part.system["partial"] = [True] * message.rows
            return ParsedRequest([part])
        return ParsedRequest(halves=[HalfPart("", "request", part)])

    def answer(self, arrival: Arrival, decoded: Decoded) -> SenderReply:
        """Response without outputs; ``parameters`` say how many rows were refused."""
        place = _place(arrival.path)
        members: dict[str, object] = {"model_name": place["model"], "outputs": []}
        if place["version"]:
            members["model_version"] = place["version"]
        headers = id_header(decoded)
        id_ = headers.get("x-outrider-id") or request_id(arrival.headers)
        if id_ is not None:
            members["id"] = id_
        if decoded.rejected:
            first = decoded.rejected.listed[0]
            members["parameters"] = {
                "rejected": decoded.rejected.count,
                "reason": f"record {first.index}: {first.field}: {first.reason}",
            }
        return SenderReply(200, msgspec.json.encode(members), headers=headers)

    def error(self, problem: Problem) -> str:
        return problem.detail


def _message(arrival: Arrival, target: MirrorTarget) -> V2Message:
    length = header_length(arrival.headers)
    if length != 0:
        return target.form.read(arrival.body, "request", header_length=length)
    if target.only is None:
        detail = "a raw body is the only input of a model: declare it alone in inputs or columns of the model"
        raise ProblemError(problem(422, detail))
    return target.form.raw(arrival.body, *target.only)


def _place(path: str) -> dict[str, str]:
    match = _PATH.search(path)
    return match.groupdict("") if match else {"model": "", "version": ""}
