"""Routes of model versions: list, download, lineage, champions, watches."""

import asyncio
import json
import time
from typing import Annotated, Any, NotRequired, TypeAlias

from fastapi import Header, Query, Request
from pydantic import Field
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from typing_extensions import TypedDict

from outrider.dataops.datasets.references import open_version
from outrider.dataops.improvement import watches
from outrider.dataops.improvement.promotion import promote_for
from outrider.dataops.improvement.retirement import retire
from outrider.dataops.models import lineage
from outrider.dataops.models import registry as models
from outrider.dataops.models.champion_history import ChangeRow, list_changes
from outrider.dataops.state.database import DatabaseChanges, now_us, write
from outrider.errors import NotFound
from outrider.monitor.http.champion_actions import roll_back
from outrider.monitor.http.common import RequestBody, targets_of
from outrider.monitor.http.declared import FieldsOf, Listed, declared
from outrider.monitor.http.responses import binary
from outrider.monitor.http.routes import change, form, page, view
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.queries import improvement
from outrider.monitor.queries.watches import WatchFigures, watch_json
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import NOTE_LETTERS, Fields, back

SAFETENSORS = "application/octet-stream"


MODEL = FieldsOf(
    models.Model,
    "ModelVersion",
    times=True,
    without=("weights",),
    more={"has_weights": bool, "source": dict[str, Any]},
)
ModelFacts: TypeAlias = Annotated[dict[str, Any], MODEL]
ModelVersions: TypeAlias = Annotated[
    list[ModelFacts], Listed("models", "ModelVersions", "Versions of models with their status.")
]


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


@view("/v1/models", scope="read", tag="models")
def list_models(service: Service, model: str | None = None) -> ModelVersions:
    """Every version and what became of it."""
    with service.engine.connect() as connection:
        return [model_facts(found) for found in models.all_versions(connection, model)]


@view("/v1/models/{model}/versions/{version}", scope="read", tag="models")
def get_model(service: Service, model: str, version: str) -> ModelFacts:
    """Model version; ``champion`` names the current one."""
    with service.engine.connect() as connection:
        return model_facts(_version(connection, model, version))


@view(
    "/v1/models/{model}/versions/{version}/weights",
    scope="read",
    tag="models",
    response_class=Response,
    responses=binary(SAFETENSORS),
)
def get_weights(service: Service, model: str, version: str) -> Response:
    """Safetensors of a version; ``champion`` names the current one, whose number is in a header."""
    with service.engine.connect() as connection:
        found = _version(connection, model, version)
        data = models.weights_bytes(connection, service.objects, model, found.version)
    headers = {"etag": f'"{found.digest}"', "x-outrider-version": found.version}
    return Response(data, media_type=SAFETENSORS, headers=headers)


@view(
    "/v1/lineage/{model}", scope="read", models="closed", tag="models", response_model=declared(LineageNode)
)
def get_lineage(
    service: Service, model: str, version: str | None = None, start: str | None = None
) -> dict[str, Any]:
    """The nearest ancestors of a version (the champion by default), as a tree.

    ``start`` is another node to begin at, such as ``dataset:digits-flagged@7``, by tag or time too: where
    the parents of one are not shown (``cut``), the tree goes on from there.
    """
    kind, _, reference = (start or "").partition(":")
    with service.engine.connect() as connection:
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
    return MODEL.body(found, has_weights=found.weights is not None, source=json.loads(found.source))


@page("/m/{model}/lineage", scope="read")
def lineage_page(service: Service, request: Request, model: str, start: str = "") -> Response:
    context = {
        "root": improvement.read_lineage(service.engine, model, start=start or None),
        "start": start,
    }
    return service.frame.page(request, "lineage.html", model, "/lineage", context)


@form("POST /m/{model}/rollback", scope="promote")
def rollback_form(service: Service, request: Request, model: str, form: Fields) -> Response:
    reason, by = form.get("reason", "")[:NOTE_LETTERS], visitor_of(request).name
    to = form.get("to") or None  # the one that the page named, whoever was faster
    roll_back(service.engine, model, to=to, reason=reason, by=by, targets=targets_of(service.settings))
    return back(form)


class WatchList(TypedDict):
    """Newest watches of a model, with its settings."""

    model: str
    settings: dict[str, float | bool]
    watches: list[WatchFigures]


@view("/v1/models/{model}/watch", scope="read", tag="models")
def get_watch(service: Service, model: str, limit: Annotated[int, Query(ge=1, le=100)] = 5) -> WatchList:
    """The newest watches over champions: evidence, bounds over time, and what became of them."""
    own = service.model(model).watch
    with service.engine.connect() as connection:
        found = watches.newest(connection, model, limit=limit)
    return {"model": model, "settings": own.model_dump(), "watches": [watch_json(one) for one in found]}


MOST_LETTERS = 2_000
"""Letters of a reason, which is kept for good."""
_LOOK_S = 0.1
"""Polling interval while a request waits for a commit."""

ChampionChange: TypeAlias = Annotated[ChangeRow, FieldsOf(ChangeRow, "ChampionChange", times=True)]


class ChampionHistory(TypedDict):
    """Changes of a model's champion, newest first."""

    model: str
    changes: list[ChampionChange]
    next: int | None
    """``before`` of the page that follows; null on the last one."""


Reason: TypeAlias = Annotated[str, Field(max_length=MOST_LETTERS)]


class PromoteRequest(RequestBody):
    """Request to promote a version. ``force``, with a reason, overrides the gate."""

    version: str
    force: bool = False
    reason: Reason = ""


class RollbackRequest(RequestBody):
    """Request to roll back, to the replaced version or another former champion."""

    reason: Reason = ""
    to: str | None = None


class RetireRequest(RequestBody):
    """Request to take a version out of the shadow."""

    reason: Reason = ""


class ChampionPointer:
    """Champions of all models, read once for all waiting requests."""

    def __init__(self, service: Service) -> None:
        self._engine = service.engine
        self._changes = DatabaseChanges.of(service.engine)
        self._commits = 0
        self._known: dict[str, tuple[int, models.Model]] = {}

    async def get(self, model: str) -> models.Model:
        self._commits += self._changes.has_changed()
        commits, found = self._known.get(model, (-1, None))
        if found is None or commits != self._commits:
            commits, found = self._commits, await run_in_threadpool(self._read, model)
            self._known[model] = commits, found
        return found

    def _read(self, model: str) -> models.Model:
        with self._engine.connect() as connection:
            found = models.champion(connection, model)
        if found is None:
            raise NotFound(f"model {model!r} has no champion")
        return found


@change("POST /v1/models/{model}/promote", scope="promote", tag="models")
def promote(service: Service, model: str, body: PromoteRequest, request: Request) -> ModelFacts:
    """Make a version champion: one that passed the gate, was champion before, or is forced."""
    with write(service.engine) as connection:
        before, now = models.champion(connection, model), now_us()
        found = promote_for(
            connection,
            model,
            body.version,
            by=visitor_of(request).name,
            reason=body.reason,
            is_forced=body.force,
            now_us=now,
            targets=targets_of(service.settings),
        )
        records = service.settings.models[model].watch.records if model in service.settings.models else 0
        watches.follow_promotion(connection, before, found, records=records, now_us=now)
        return model_facts(found)


@change("POST /v1/models/{model}/rollback", scope="promote", tag="models")
def rollback(
    service: Service, model: str, request: Request, body: RollbackRequest | None = None
) -> ModelFacts:
    """Make the version that the champion replaced champion again, or another former champion."""
    asked = body or RollbackRequest()
    by = visitor_of(request).name
    return model_facts(
        roll_back(
            service.engine,
            model,
            to=asked.to,
            reason=asked.reason,
            by=by,
            targets=targets_of(service.settings),
        )
    )


@change("POST /v1/models/{model}/versions/{version}/retire", scope="promote", models="closed", tag="models")
def retire_version(
    service: Service, model: str, version: str, request: Request, body: RetireRequest | None = None
) -> ModelFacts:
    """Take a hanging or unwanted version out of the shadow; never the champion."""
    reason = "" if body is None else body.reason.strip()
    why = f"retired by {visitor_of(request).name}" + (f": {reason}" if reason else "")
    with write(service.engine) as connection:
        return model_facts(retire(connection, model, version, why=why, now_us=now_us()))


@view(
    "/v1/models/{model}/versions/champion",
    scope="read",
    tag="models",
    responses={304: {"description": "Still the champion that `If-None-Match` names."}},
    response_model=declared(ModelFacts),
)
async def get_champion(
    service: Service,
    model: str,
    request: Request,
    response: Response,
    if_none_match: Annotated[str | None, Header()] = None,
    wait: Annotated[float, Query(ge=0, le=60)] = 0.0,
) -> Any:
    """The champion. With ``If-None-Match``, 304 while it is that one; ``wait`` seconds for another."""
    until = time.monotonic() + wait
    known = _tags(if_none_match)
    while (tag := _tag(found := await service.one(ChampionPointer).get(model))) in known or "*" in known:
        if time.monotonic() >= until or request.app.is_ending():
            return Response(status_code=304, headers={"etag": tag})
        await asyncio.sleep(_LOOK_S)
    response.headers["etag"] = tag
    return model_facts(found)


@view("/v1/models/{model}/history", scope="read", tag="models")
def get_history(
    service: Service,
    model: str,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
) -> ChampionHistory:
    """Changes of the champion with actor and reason, newest first."""
    with service.engine.connect() as connection:
        found = list_changes(connection, model, limit=limit + 1, before=before)
        if not found and not models.all_versions(connection, model):
            raise NotFound(f"no model {model!r} has a version")
    shown = found[:limit]
    more = shown[-1].seq if len(found) > limit else None
    return {"model": model, "changes": shown, "next": more}


def _tag(found: models.Model) -> str:
    return f'"{found.digest[:16]}-{found.changed_us}"'


def _tags(header: str | None) -> list[str]:
    return [tag.strip().removeprefix("W/") for tag in (header or "").split(",")]
