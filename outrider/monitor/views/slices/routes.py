"""Routes of weak slices."""

from typing import Annotated

from fastapi import Query, Request
from pydantic import AwareDatetime
from starlette.responses import Response

from outrider.monitor.http.problem import ProblemError
from outrider.monitor.http.routes import page, view
from outrider.monitor.views.service import Service

from .reader import FLAGGED, WRONG, SliceSearch, WeakSliceFacts, flagging_assertions


class WeakSliceReport(WeakSliceFacts):
    """Weak slices of a model's newest records."""

    model: str


@view("/v1/models/{model}/slices", scope="read")
def weak_slices(
    service: Service,
    model: str,
    outcome: Annotated[str, Query(max_length=200)] = "",
    column: Annotated[list[str] | None, Query(max_length=200)] = None,
    since: AwareDatetime | None = None,
) -> WeakSliceReport:
    """Slices on which answers are ``wrong``, or records ``flagged`` (or by one assertion), more often.

    Searched on half of the entities of the newest records, and proven on the other half.
    """
    service.model(model)
    since_us = None if since is None else int(since.timestamp() * 1e6)
    found = service.one(SliceSearch).find(model, outcome=outcome, columns=column or (), since_us=since_us)
    return {"model": model, **found}


@page("/m/{model}/slices", scope="read")
def show_page(service: Service, request: Request, model: str, outcome: str = "") -> Response:
    """Outcomes to choose from, and the slices of the chosen one."""
    with service.engine.connect() as connection:
        outcomes = [WRONG, FLAGGED, *flagging_assertions(connection, model)]
    found, problem = None, ""
    if outcome:
        try:
            found = service.one(SliceSearch).find(model, outcome=outcome)
        except ProblemError as error:
            problem = str(error)
    context = {"s": found, "outcomes": outcomes, "outcome": outcome, "problem": problem}
    return service.frame.page(request, "slices.html", model, "/slices", context)
