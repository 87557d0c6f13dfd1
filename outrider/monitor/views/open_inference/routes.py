"""Health and metadata for clients of the Open Inference Protocol.

Clients ask before they send.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from starlette.responses import JSONResponse
from typing_extensions import TypedDict

from outrider.assertions.batch.columns import is_tensor
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import view
from outrider.monitor.intake.column_types import parse_type
from outrider.monitor.intake.protocols.request_models import RequestModels
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings

_DATATYPES = {pa.int64(): "INT64", pa.float64(): "FP64", pa.bool_(): "BOOL"}


TAG = "shadow targets"


class Live(TypedDict):
    """The process answers."""

    live: bool


class Ready(TypedDict):
    """A mirrored request would be taken."""

    ready: bool


class ServerMetadata(TypedDict):
    """Name, version of the protocol, and extensions."""

    name: str
    version: str
    extensions: list[str]


class ModelReady(TypedDict):
    """A model under watch."""

    name: str
    ready: bool


class TensorSignature(TypedDict):
    """Type and shape of a tensor; -1 stands for any length."""

    datatype: str
    shape: list[int]


class TensorMetadata(TensorSignature):
    """A declared input or output."""

    name: str


class ModelMetadata(TypedDict):
    """Columns that are declared, as tensors."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


@dataclass(frozen=True, slots=True)
class ShadowTarget:
    """Settings, names of requests to models, and why records would be refused."""

    settings: Settings
    models: RequestModels
    fault: Callable[[], str | None]


@view("/v2/health/live", scope="", tag=TAG)
async def live(_target: ShadowTarget) -> Live:
    """Liveness of the process."""
    return {"live": True}


@view("/v2/health/ready", scope="", tag=TAG, response_model=Ready, responses={503: {"model": Ready}})
async def ready(target: ShadowTarget) -> JSONResponse:
    """Readiness to take a mirrored request."""
    reason = target.fault()
    return JSONResponse({"ready": reason is None}, 200 if reason is None else 503)


@view("/v2", scope="ingest read", models="none", tag=TAG)
async def server(_target: ShadowTarget) -> ServerMetadata:
    """Metadata of the server."""
    return {
        "name": "outrider",
        "version": "2",
        "extensions": ["binary_tensor_data", "parameters", "sequence"],
    }


@view("/v2/models/{name:path}/ready", scope="ingest read", tag=TAG)
async def model_ready(target: ShadowTarget, name: str) -> ModelReady:
    """Readiness of a model: under watch."""
    return {"name": _named(target.models, name), "ready": True}


@view("/v2/models/{name:path}", scope="ingest read", tag=TAG)
async def model(target: ShadowTarget, name: str) -> ModelMetadata:
    """Metadata of a model: the columns that are declared."""
    found = _named(target.models, name)
    return _metadata(found, target.settings.models[found])


def _named(models: RequestModels, name: str) -> str:
    found = models.find(name.partition("/versions/")[0])
    if found is None:
        detail = f"no model under watch is called {name!r}"
        raise ProblemError(problem(404, detail, error=detail))
    return found


def _metadata(name: str, model: ModelSettings) -> ModelMetadata:
    tensors: dict[str, list[TensorMetadata]] = {"inputs": [], "outputs": []}
    for column, text in model.columns.items():
        side, _, field = column.partition(".")
        if side in tensors:
            tensors[side].append({"name": field, **_tensor(parse_type(text))})
    return {
        "name": name,
        "versions": [model.version],
        "platform": "outrider_shadow",
        "inputs": tensors["inputs"],
        "outputs": tensors["outputs"],
    }


def _tensor(kind: pa.DataType) -> TensorSignature:
    if is_tensor(kind):
        return {"datatype": "FP32", "shape": [-1, *kind.shape]}
    if pa.types.is_list(kind):
        return {"datatype": _DATATYPES.get(kind.value_type, "BYTES"), "shape": [-1, -1]}
    return {"datatype": _DATATYPES.get(kind, "BYTES"), "shape": [-1]}
