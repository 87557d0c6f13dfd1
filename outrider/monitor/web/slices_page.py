"""Page of weak slices."""

from dataclasses import dataclass

from fastapi import APIRouter, Request
from sqlalchemy import Engine
from starlette.responses import Response

from outrider.monitor.http.problem import ProblemError
from outrider.monitor.queries.weak_slices import FLAGGED, WRONG, SliceSearch, flagging_assertions

from .frame import PageFrame


@dataclass(frozen=True, slots=True)
class SlicesPage:
    """Page that searches once an outcome is chosen."""

    _engine: Engine
    _search: SliceSearch
    _frame: PageFrame

    def show(self, request: Request, model: str, outcome: str = "") -> Response:
        """Outcomes to choose from, and the slices of the chosen one."""
        with self._engine.connect() as connection:
            outcomes = [WRONG, FLAGGED, *flagging_assertions(connection, model)]
        found, problem = None, ""
        if outcome:
            try:
                found = self._search.find(model, outcome=outcome)
            except ProblemError as error:
                problem = str(error)
        context = {"s": found, "outcomes": outcomes, "outcome": outcome, "problem": problem}
        return self._frame.page(request, "slices.html", model, "/slices", context)


def slices_pages(engine: Engine, search: SliceSearch, frame: PageFrame) -> APIRouter:
    """Route of the page."""
    router = APIRouter()
    router.add_api_route("/m/{model}/slices", SlicesPage(engine, search, frame).show, methods=["GET"])
    return router
