"""Routes of proposals: learn assertions from stored traffic, accept them."""

from typing import Annotated, Any, TypeAlias

from fastapi import Request
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from outrider.assertions.learn import Proposal
from outrider.dataops.flags.quality import active_revisions
from outrider.dataops.learned.proposals import State
from outrider.monitor.http.common import RequestBody, iso
from outrider.monitor.http.declared import FieldsOf, Time
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import change, form, page, view
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import Fields, back

from .reader import MOST_RECORDS, Learner, Status, learner_of

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


@view("/v1/proposals", scope="read", tag="assertions")
def proposals(service: Service, model: str) -> Proposals:
    """Latest proposals for a model, and the accepted ones."""
    service.model(model)
    return _body(service, model)


@change("POST /v1/proposals", scope="promote", models="body", tag="assertions", status_code=202)
def learn(service: Service, body: LearningWanted) -> Proposals:
    """Learn from the newest stored records; `GET` tells when it is done."""
    service.model(body.model)
    service.one(learner_of).start(body.model)
    return _body(service, body.model)


@change("POST /v1/proposals/accept", scope="promote", models="body", tag="assertions")
def accept(service: Service, body: ProposalsAccepted) -> Accepted:
    """Write proposals into the model's file of learned assertions; doing it again changes nothing."""
    service.model(body.model)
    file, changed, note = service.one(learner_of).accept(
        body.model, body.names, active_revisions(service.engine, body.model)
    )
    return {"file": str(file), "changed": changed, "note": note}


def _body(service: Service, model: str) -> Proposals:
    now = service.one(learner_of).read(model, active_revisions(service.engine, model))
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


@page("/m/{model}/proposals", scope="read")
def proposals_page(service: Service, request: Request, model: str) -> Response:
    """Assertions that stored traffic speaks for."""
    now = service.one(learner_of).read(model, active_revisions(service.engine, model))
    context = {
        "l": now,
        "file": now.file.name if now.file else None,
        "free": sum(state in ("proposed", "changed") for state in now.states.values()),
        "waiting": any(state == "accepted" for state in now.states.values()),
        "most": MOST_RECORDS,
    }
    is_running = now.status == "learning"
    return service.frame.page(request, "proposals.html", model, "/proposals", context, refresh=is_running)


@form("POST /m/{model}/proposals/learn", scope="promote")
def learn_form(service: Service, model: str, form: Fields) -> Response:
    """Learn from the newest stored records."""
    _learning(service, model).start(model)
    return back(form)


@form("POST /m/{model}/proposals/accept", scope="promote")
def accept_form(service: Service, model: str, form: Fields) -> Response:
    """Write one proposal, or all, into the model's file of learned assertions."""
    names = [form["name"]] if "name" in form else None
    seen = form.get("learned", "")
    active = active_revisions(service.engine, model)
    learned_us = int(seen) if seen.isdecimal() else None
    _learning(service, model).accept(model, names, active, learned_us=learned_us)
    return back(form)


def _learning(service: Service, model: str) -> Learner:
    if model not in service.frame.models():
        raise ProblemError(problem(404, f"there is no model {model!r}", field="model"))
    return service.one(learner_of)
