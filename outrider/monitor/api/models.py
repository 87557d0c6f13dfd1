"""API of model versions: list, download, lineage."""

import json
from typing import Annotated, Any, NotRequired, TypeAlias

from fastapi import APIRouter, Response
from sqlalchemy import Connection, Engine
from typing_extensions import TypedDict

from outrider.dataops.datasets.references import open_version
from outrider.dataops.models import lineage
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import ObjectStore
from outrider.errors import NotFound
from outrider.monitor.http.declared import Declared, FieldsOf
from outrider.monitor.http.responses import binary

SAFETENSORS = "application/octet-stream"


MODEL = FieldsOf(
    models.Model,
    "ModelVersion",
    times=True,
    without=("weights",),
    more={"has_weights": bool, "source": dict[str, Any]},
)
ModelFacts: TypeAlias = Annotated[dict[str, Any], MODEL]


class ModelVersions(TypedDict):
    """Versions of models with their status."""

    models: list[ModelFacts]


class GateFacts(TypedDict):
    """The gate's newest verdict on a version."""

    promoted: bool
    outcome: str
    reasons: list[str]


class LineageNode(TypedDict):
    """Model version, dataset version, job or records, with its origins.

    Facts depend on the kind; a node that is ``seen`` stands elsewhere in the tree, with its parents.
    """

    kind: str
    id: str
    role: str
    parents: list["LineageNode"]
    seen: NotRequired[bool]
    cut: NotRequired[bool]
    """Its parents are not shown: they are those of a tree that starts here."""
    more: NotRequired[int]
    """Of the root: ancestors that are not shown."""
    status: NotRequired[str]
    digest: NotRequired[str]
    created_us: NotRequired[int]
    note: NotRequired[str]
    gate: NotRequired[GateFacts]
    rows: NotRequired[int]
    parts: NotRequired[dict[str, int]]
    assertions: NotRequired[dict[str, int]]
    label_sources: NotRequired[dict[str, int]]
    params: NotRequired[dict[str, Any]]


def add_models(router: APIRouter, engine: Engine, objects: ObjectStore) -> None:
    """Add the routes."""

    @router.get("/models", tags=["models"])
    def list_models(model: str | None = None) -> Declared[ModelVersions]:
        """Every version and what became of it."""
        with engine.connect() as connection:
            return {"models": [model_facts(found) for found in models.all_versions(connection, model)]}

    @router.get("/models/{model}/versions/{version}", tags=["models"])
    def get_model(model: str, version: str) -> Declared[ModelFacts]:
        """Model version; ``champion`` names the current one."""
        with engine.connect() as connection:
            return model_facts(_version(connection, model, version))

    @router.get(
        "/models/{model}/versions/{version}/weights",
        tags=["models"],
        response_class=Response,
        responses=binary(SAFETENSORS),
    )
    def get_weights(model: str, version: str) -> Response:
        """Safetensors of a version; ``champion`` names the current one, whose number is in a header."""
        with engine.connect() as connection:
            found = _version(connection, model, version)
            data = models.weights_bytes(connection, objects, model, found.version)
        headers = {"etag": f'"{found.digest}"', "x-outrider-version": found.version}
        return Response(data, media_type=SAFETENSORS, headers=headers)

    @router.get("/lineage/{model}", tags=["models"], response_model=Declared[LineageNode])
    def get_lineage(model: str, version: str | None = None, start: str | None = None) -> dict[str, Any]:
        """The nearest ancestors of a version (the champion by default), as a tree.

        ``start`` is another node to begin at, such as ``dataset:digits-flagged@7``, by tag or time too: where
        the parents of one are not shown (``cut``), the tree goes on from there.
        """
        kind, _, reference = (start or "").partition(":")
        with engine.connect() as connection:
            if kind == "dataset":
                start = f"dataset:{open_version(connection, reference).id}"
            return lineage.trace(connection, model, version, start=start)


def _version(connection: Connection, model: str, version: str) -> models.Model:
    if version != "champion":
        return models.get(connection, model, version)
    found = models.champion(connection, model)
    if found is None:
        raise NotFound(f"model {model!r} has no champion")
    return found


def model_facts(found: models.Model) -> dict[str, Any]:
    """Facts of a version for an answer."""
    return MODEL.body(found, has_weights=found.weights is not None, source=json.loads(found.source))
