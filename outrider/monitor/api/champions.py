"""API of champions: pointer, promotion, rollback, history."""

import asyncio
import time
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool
from typing_extensions import TypedDict

from outrider.dataops.improvement import watches
from outrider.dataops.improvement.promotion import promote_for
from outrider.dataops.improvement.retirement import retire
from outrider.dataops.models import registry as models
from outrider.dataops.models.champion_history import ChangeRow, list_changes
from outrider.dataops.state.database import DatabaseChanges, now_us, write
from outrider.errors import NotFound
from outrider.monitor.http.champion_actions import roll_back
from outrider.monitor.http.common import RequestBody, targets_of
from outrider.monitor.http.declared import Declared, FieldsOf
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.settings.config import Settings

from .models import ModelFacts, model_facts

MOST_LETTERS = 2_000
"""Of a reason: the history keeps it for good, and pages show it."""
_LOOK_S = 0.1
"""Between looks for a commit while somebody waits."""

CHANGE = FieldsOf(ChangeRow, "ChampionChange", times=True)
ChampionChange: TypeAlias = Annotated[dict[str, Any], CHANGE]


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

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changes = DatabaseChanges.of(engine)
        self._commits = 0
        self._known: dict[str, tuple[int, models.Model]] = {}

    async def get(self, model: str) -> models.Model:
        """The champion, as of the newest commit.

        Raises
        ------
        NotFound
            If there is none.
        """
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


def add_champions(router: APIRouter, engine: Engine, settings: Settings) -> None:
    """Add the routes; the pointer stands before the route of any version."""
    _add_pointer(router, ChampionPointer(engine))
    _add_history(router, engine)
    targets = targets_of(settings)

    @router.post("/models/{model}/promote", tags=["models"])
    def promote(model: str, body: PromoteRequest, request: Request) -> Declared[ModelFacts]:
        """Make a version champion: one that passed the gate, was champion before, or is forced."""
        with write(engine) as connection:
            before, now = models.champion(connection, model), now_us()
            found = promote_for(
                connection,
                model,
                body.version,
                by=visitor_of(request).name,
                reason=body.reason,
                is_forced=body.force,
                now_us=now,
                targets=targets,
            )
            records = settings.models[model].watch.records if model in settings.models else 0
            watches.follow_promotion(connection, before, found, records=records, now_us=now)
            return model_facts(found)

    @router.post("/models/{model}/rollback", tags=["models"])
    def rollback(model: str, request: Request, body: RollbackRequest | None = None) -> Declared[ModelFacts]:
        """Make the version that the champion replaced champion again, or another former champion."""
        asked = body or RollbackRequest()
        by = visitor_of(request).name
        return model_facts(roll_back(engine, model, to=asked.to, reason=asked.reason, by=by, targets=targets))

    @router.post("/models/{model}/versions/{version}/retire", tags=["models"])
    def retire_version(
        model: str, version: str, request: Request, body: RetireRequest | None = None
    ) -> Declared[ModelFacts]:
        """Take a hanging or unwanted version out of the shadow; never the champion."""
        reason = "" if body is None else body.reason.strip()
        why = f"retired by {visitor_of(request).name}" + (f": {reason}" if reason else "")
        with write(engine) as connection:
            return model_facts(retire(connection, model, version, why=why, now_us=now_us()))


def _add_pointer(router: APIRouter, pointer: ChampionPointer) -> None:
    @router.get(
        "/models/{model}/versions/champion",
        tags=["models"],
        response_model=Declared[ModelFacts],
        responses={304: {"description": "Still the champion that `If-None-Match` names."}},
    )
    async def get_champion(
        model: str,
        request: Request,
        response: Response,
        if_none_match: Annotated[str | None, Header()] = None,
        wait: Annotated[float, Query(ge=0, le=60)] = 0.0,
    ) -> Any:
        """The champion. With ``If-None-Match``, 304 while it is that one; ``wait`` seconds for another."""
        until = time.monotonic() + wait
        known = _tags(if_none_match)
        while (tag := _tag(found := await pointer.get(model))) in known or "*" in known:
            if time.monotonic() >= until or request.app.is_ending():
                return Response(status_code=304, headers={"etag": tag})
            await asyncio.sleep(_LOOK_S)
        response.headers["etag"] = tag
        return model_facts(found)


def _add_history(router: APIRouter, engine: Engine) -> None:
    @router.get("/models/{model}/history", tags=["models"])
    def get_history(
        model: str,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    ) -> Declared[ChampionHistory]:
        """Changes of the champion with actor and reason, newest first."""
        with engine.connect() as connection:
            found = list_changes(connection, model, limit=limit + 1, before=before)
            if not found and not models.all_versions(connection, model):
                raise NotFound(f"no model {model!r} has a version")
        shown = found[:limit]
        more = shown[-1].seq if len(found) > limit else None
        return {"model": model, "changes": [CHANGE.body(row) for row in shown], "next": more}


def _tag(found: models.Model) -> str:
    """ETag of a champion: which version, and since when."""
    return f'"{found.digest[:16]}-{found.changed_us}"'


def _tags(header: str | None) -> list[str]:
    return [tag.strip().removeprefix("W/") for tag in (header or "").split(",")]
