"""API of proposals: learn assertions from stored traffic, accept them."""

from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.assertions.learn import Proposal
from outrider.dataops.flags.quality import active_revisions
from outrider.dataops.learned.proposals import State
from outrider.monitor.http.common import RequestBody, iso, known_model
from outrider.monitor.http.declared import Declared, FieldsOf, Time
from outrider.monitor.queries.learning import Learner, Status
from outrider.monitor.settings.config import Settings

ProposalFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        Proposal,
        "ProposedAssertion",
        more={
            "drift": dict[str, float],
            "expected_fire_rate": float,
            "interval": list[float],
            "python": str,
            "state": State,
        },
    ),
]


class Proposals(TypedDict):
    """Newest proposals for a model, and the accepted ones."""

    model: str
    status: Status
    detail: str
    file: str | None
    advice: str
    learned: Time | None
    records: int
    seconds: float | None
    proposals: list[ProposalFacts]


class Accepted(TypedDict):
    """File of accepted proposals, its change, and its pickup."""

    file: str
    changed: bool
    note: str


class LearningWanted(RequestBody):
    """Request to learn for a model."""

    model: str


class ProposalsAccepted(RequestBody):
    """Request to accept proposals; without names all free ones.

    A name is free where no assertion has it.
    """

    model: str
    names: list[str] | None = Field(default=None, max_length=10_000)


def proposal_routes(engine: Engine, settings: Settings, learner: Learner) -> APIRouter:
    """Router of the proposals."""
    router = APIRouter(prefix="/v1", tags=["assertions"])

    @router.get("/proposals")
    def proposals(model: str) -> Declared[Proposals]:
        """Latest proposals for a model, and the accepted ones."""
        known_model(settings, model)
        return _body(model)

    @router.post("/proposals", status_code=202)
    def learn(body: LearningWanted) -> Declared[Proposals]:
        """Learn from the newest stored records; `GET` tells when it is done."""
        known_model(settings, body.model)
        learner.start(body.model)
        return _body(body.model)

    @router.post("/proposals/accept")
    def accept(body: ProposalsAccepted) -> Declared[Accepted]:
        """Write proposals into the model's file of learned assertions; doing it again changes nothing."""
        known_model(settings, body.model)
        file, changed, note = learner.accept(body.model, body.names, active_revisions(engine, body.model))
        return {"file": str(file), "changed": changed, "note": note}

    def _body(model: str) -> Proposals:
        now = learner.read(model, active_revisions(engine, model))
        found = now.found
        return {
            "model": model,
            "status": now.status,
            "detail": now.detail,
            "file": str(now.file) if now.file else None,
            "advice": now.advice,
            "learned": iso(found.learned_us) if found else None,
            "records": found.records if found else 0,
            "seconds": found.seconds if found else None,
            "proposals": [
                one.as_dict() | {"python": one.to_python(), "state": now.states[one.name]}
                for one in (found.proposals if found else ())
            ],
        }

    return router
