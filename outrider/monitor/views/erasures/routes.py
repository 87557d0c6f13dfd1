"""API of erasures: ask, count and follow."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Request, Response
from pydantic import Field
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.dataops.erasure.compaction import check_room
from outrider.dataops.erasure.erasing import preview
from outrider.dataops.erasure.pending import DoneErasure, PendingErasure, ask, done, pending
from outrider.dataops.erasure.target import MOST_NAMED, ErasureTarget
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound, OutriderError
from outrider.monitor.http.common import RequestBody, iso
from outrider.monitor.http.declared import Listed, Time
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import change, view
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.settings.erasure_place import place_of
from outrider.monitor.views.service import Service


class ErasureWanted(RequestBody):
    """Subjects (entities) and records to erase, of one model or all."""

    subjects: list[str] = Field(default_factory=list, max_length=MOST_NAMED)
    records: list[str] = Field(default_factory=list, max_length=MOST_NAMED)
    model: str | None = None
    dry_run: bool = False


class ErasureAsked(TypedDict):
    """Numbers of an erasure with its id; null at a dry run."""

    erasure: str | None
    would_go: dict[str, int]


class ErasureState(TypedDict):
    """State of an erasure, without the names of subjects."""

    erasure: str
    state: Literal["pending", "failed", "done"]
    """``failed``: not all has gone; the next erasure, or the next start, tries again."""
    asked: Time
    who: str
    done: Time | None
    problem: str
    counts: dict[str, int]
    unreadable_blocks: list[int]
    """Damaged blocks of the journal: nobody knows of whom they are."""
    backups: list[str]
    """Known backups from before it, which hold its records still."""
    models: list[str]
    """``model@version`` of models that were trained on rows of its records."""


Erasures: TypeAlias = Annotated[
    list[ErasureState], Listed("erasures", "Erasures", "Erasures, pending ones first, then the newest.")
]


@change("POST /v1/erasures", scope="admin", tag="erasure", status_code=202)
def erase(service: Service, body: ErasureWanted, request: Request, response: Response) -> ErasureAsked:
    """Erase subjects and records from everything that is stored.

    The processes of the service stop for it within seconds and start again behind it; requests are
    answered 503 meanwhile. 404, and nothing changes, where there is no trace of them. With ``dry_run``
    it is only counted what would go (status 200).
    """
    try:
        wanted = ErasureTarget(tuple(body.subjects), tuple(body.records), body.model)
    except ValueError as error:
        raise ProblemError(problem(422, str(error))) from None
    counts = preview(place_of(service.settings), wanted)
    if body.dry_run:
        response.status_code = 200
        return {"erasure": None, "would_go": counts}
    try:
        check_room([service.settings.journal_path, service.settings.data_folder / "state.db"])
        id_ = ask(service.settings.data_folder, wanted, who=visitor_of(request).name, now_us=now_us())
    except OutriderError as error:
        raise ProblemError(problem(507, str(error))) from None
    return {"erasure": id_, "would_go": counts}


@view("/v1/erasures", scope="admin", tag="erasure")
def list_erasures(service: Service) -> Erasures:
    """Erasures that are pending or done, without what they erase."""
    return _states(service.engine, service.settings.data_folder)


@view("/v1/erasures/{erasure}", scope="admin", tag="erasure")
def read_erasure(service: Service, erasure: str) -> ErasureState:
    """One erasure; ``pending`` until all has gone."""
    found = next(
        (one for one in _states(service.engine, service.settings.data_folder) if one["erasure"] == erasure),
        None,
    )
    if found is None:
        raise NotFound(f"no erasure {erasure!r}; GET /v1/erasures lists them")
    return found


def _states(engine: Engine, folder: Path) -> list[ErasureState]:
    waiting = pending(folder)
    with engine.connect() as connection:
        behind = done(connection)
    names = {one.id for one in waiting}
    return [_state(one, None, one.problem) for one in waiting] + [
        _state(one, one.done_us, "", one.found) for one in behind if one.id not in names
    ]


def _state(
    one: PendingErasure | DoneErasure,
    done_us: int | None,
    problem: str,
    found: Mapping[str, Any] = MappingProxyType({}),
) -> ErasureState:
    return {
        "erasure": one.id,
        "state": "failed" if problem else "pending" if done_us is None else "done",
        "asked": str(iso(one.asked_us)),
        "who": one.who,
        "done": iso(done_us),
        "problem": problem,
        "counts": found.get("counts", {}),
        "unreadable_blocks": found.get("unreadable_blocks", []),
        "models": found.get("models", []),
        "backups": found.get("backups", []),
    }
