"""Pages of incidents of every kind, and of a model's watched streams."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from sqlalchemy import Engine
from starlette.responses import RedirectResponse, Response

from outrider.dataops.alarms.stored_incidents import list_incidents
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.queries.alarms import AlarmReader
from outrider.monitor.queries.incident_page import read_incident
from outrider.monitor.queries.overview import list_descriptions

from .flag_cards import CardMaker
from .frame import PageFrame
from .incident_chart import incident_charts

MOST_STREAMS, MOST_TOLD, MOST_FOUND = 200, 50, 1_000
_TOLD = frozenset({
    "onset", "before", "now", "explained_by", "event", "records", "action", "page", "runbook", "guarantee",
    "history", "sentence", "ended_by", "version", "subject_page", "stream", "also", "confused", "silent",
    "severity", "reads", "share",
})  # fmt: skip
"""Details that have a place of their own on the page; the others are listed as they are."""


@dataclass(frozen=True, slots=True)
class IncidentPages:
    """Permalinks of incidents, and the alarms of a model."""

    _engine: Engine
    _cards: CardMaker
    _frame: PageFrame
    _alarms: AlarmReader | None

    def alarms(self, request: Request, model: str) -> Response:
        """Standing incidents and watched streams of a model."""
        with self._engine.connect() as connection:
            told = list_incidents(connection, now_us=now_us(), model=model, limit=MOST_TOLD)
        is_known = self._alarms is not None and model in self._frame.models()
        context = {
            "r": self._alarms.read(model, now_us=now_us(), limit=MOST_STREAMS)
            if self._alarms and is_known
            else None,
            "current": [row for row in told if row.status != "resolved"],
            "over": [row for row in told if row.status == "resolved"],
        }
        return self._frame.page(request, "alarms.html", model, "/alarms", context, refresh=True)

    def find(self, model: str = "", kind: str = "", assertion: str = "") -> Response:
        """Redirect an alert to the oldest of its standing incidents."""
        with self._engine.connect() as connection:
            current = list_incidents(
                connection, now_us=now_us(), model=model or None, status="current", limit=MOST_FOUND
            )
        own = [
            row
            for row in reversed(current)
            if kind in ("", row.kind) and assertion in ("", row.assertion) and model in ("", row.model)
        ]
        near = f"/m/{quote(model, safe='')}/alarms" if model else "/"
        address = f"/incidents/{quote(own[0].id, safe='')}" if own and (kind or assertion) else near
        return RedirectResponse(address, status_code=303, headers=HEADERS)

    def show(self, request: Request, incident: str) -> Response:
        """Page of one incident."""
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
            "more": {
                name: value for name, value in row.details.items() if name not in _TOLD and value is not None
            },
        }
        if row.model in self._frame.models():
            return self._frame.page(request, "incident.html", row.model, "/alarms", context)
        return self._frame.plain(request, "incident.html", "", context)


def incident_pages(
    engine: Engine, cards: CardMaker, frame: PageFrame, alarms: AlarmReader | None
) -> APIRouter:
    """Routes of the pages."""
    router = APIRouter()
    pages = IncidentPages(engine, cards, frame, alarms)
    router.add_api_route("/m/{model}/alarms", pages.alarms, methods=["GET"])
    router.add_api_route("/incidents", pages.find, methods=["GET"])
    router.add_api_route("/incidents/{incident}", pages.show, methods=["GET"])
    return router
