"""API of model versions: list, download, promote, roll back, lineage."""

import dataclasses
import json
from typing import Annotated, Any, NotRequired, TypeAlias

from fastapi import APIRouter, Response
from sqlalchemy import Connection, Engine
from typing_extensions import TypedDict

from outrider.dataops.datasets.references import open_version
from outrider.dataops.improvement.verdicts import newest_verdict
from outrider.dataops.models import lineage
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.database import now_us, write
from outrider.errors import GateRefused, NotFound
from outrider.monitor.http.common import RequestBody, targets_of, timed
from outrider.monitor.http.declared import Declared, FieldsOf
from outrider.monitor.http.responses import binary
from outrider.monitor.settings.config import Settings

SAFETENSORS = "application/octet-stream"


ModelFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        models.Model,
        "ModelVersion",
        times=True,
        without=("weights",),
        more={"has_weights": bool, "source": dict[str, Any] | None},
    ),
]


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


class PromoteRequest(RequestBody):
    """Request to promote a version. ``force`` for one that the gate did not pass."""

    version: str
    force: bool = False
    reason: str = "asked for"


class RollbackRequest(RequestBody):
    """Request to roll back the champion, with the reason."""

    reason: str = "asked for"


def add_models(router: APIRouter, engine: Engine, settings: Settings, objects: ObjectStore) -> None:
    """Add the routes."""
    targets = targets_of(settings)

    @router.get("/models", tags=["models"])
    def list_models(model: str | None = None) -> Declared[ModelVersions]:
        """Every version and what became of it."""
        with engine.connect() as connection:
            return {"models": [_model(found) for found in models.all_versions(connection, model)]}

    @router.get("/models/{model}/versions/{version}", tags=["models"])
    def get_model(model: str, version: str) -> Declared[ModelFacts]:
        """Model version; ``champion`` names the current one."""
        with engine.connect() as connection:
            return _model(_version(connection, model, version))

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

    @router.post("/models/{model}/promote", tags=["models"])
    def promote(model: str, body: PromoteRequest) -> Declared[ModelFacts]:
        """Make a version champion: one that passed the gate, was champion before, or is forced."""
        with write(engine) as connection:
            if not body.force:
                _check_gate(connection, model, body.version)
            reason = f"{body.reason} (forced past the gate)" if body.force else body.reason
            found = models.promote(
                connection, model, body.version, now_us=now_us(), reason=reason, targets=targets
            )
            return _model(found)

    @router.post("/models/{model}/rollback", tags=["models"])
    def rollback(model: str, body: RollbackRequest | None = None) -> Declared[ModelFacts]:
        """Make the version that the champion replaced champion again."""
        reason = (body or RollbackRequest()).reason
        with write(engine) as connection:
            return _model(models.rollback(connection, model, now_us=now_us(), reason=reason, targets=targets))

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


def _check_gate(connection: Connection, model: str, version: str) -> None:
    """Refuse a version that never was champion and that the gate refused or has not judged."""
    found = models.get(connection, model, version)
    if found.status == "champion" or models.was_champion(connection, found):
        return
    verdict = newest_verdict(connection, model, version)
    if verdict is None:
        raise GateRefused(
            f"{found.id} was not judged by the promotion gate yet; force = true promotes it anyway"
        )
    if not verdict.evidence.get("passed"):
        word = "has not decided on" if verdict.evidence.get("undecided") else "refused"
        raise GateRefused(
            f"the promotion gate {word} {found.id}: {verdict.reasons[0]}; force = true promotes it anyway"
        )


def _model(found: models.Model) -> dict[str, Any]:
    row = dataclasses.asdict(found)
    row["has_weights"] = row.pop("weights") is not None
    row["source"] = None if found.source is None else json.loads(found.source)
    return timed(row)
