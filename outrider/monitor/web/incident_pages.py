"""Page of one incident, whichever kind it is of."""

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from sqlalchemy import Engine
from starlette.responses import Response

from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.queries.incident_page import read_incident
from outrider.monitor.queries.overview import list_descriptions

from .flag_cards import CardMaker
from .frame import PageFrame
from .incident_chart import incident_charts

_TOLD = frozenset({
    "onset", "before", "now", "explained_by", "event", "records", "action", "page", "runbook", "guarantee",
    "history", "sentence", "ended_by", "version",
})  # fmt: skip
"""Details that have a place of their own on the page; the others are listed as they are."""


@dataclass(frozen=True, slots=True)
class IncidentPages:
    """Permalinks of incidents."""

    _engine: Engine
    _cards: CardMaker
    _frame: PageFrame

    def show(self, request: Request, incident: str) -> Response:
        """What, since when, for whom, how sure, and what to do."""
        try:
            view = read_incident(self._engine, incident, now_us=now_us())
        except NotFound as error:
            return self._frame.message("Not found", f"{error}.")
        row = view.row
        about = list_descriptions(self._engine, row.model)
        context: dict[str, Any] = {
            "i": row,
            "d": dict.fromkeys(_TOLD) | row.details,
            "v": view,
            "charts": incident_charts(view),
            "cards": [self._cards.record(record, about) for record in view.records],
            "widest": max([max(c.before or 0.0, c.now or 0.0) for c in view.causes], default=0.0) or 1.0,
            "more": {name: value for name, value in row.details.items() if name not in _TOLD},
        }
        if row.model in self._frame.models():
            return self._frame.page(request, "incident.html", row.model, "/alarms", context)
        return self._frame.plain(request, "incident.html", "", context)


def incident_pages(engine: Engine, cards: CardMaker, frame: PageFrame) -> APIRouter:
    """Route of the page."""
    router = APIRouter()
    pages = IncidentPages(engine, cards, frame)
    router.add_api_route("/incidents/{incident}", pages.show, methods=["GET"])
    return router
