"""Routes of incidents of every kind."""

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import quote

from fastapi import Request
from pydantic import AwareDatetime, Field
from starlette.responses import RedirectResponse, Response

from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.http.common import MOST_S, Limit, RequestBody, end_us, targets_of
from outrider.monitor.http.declared import FieldsOf, Listed, Time
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.incident_actions import act
from outrider.monitor.http.routes import change, form, page, view
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.queries.queries import list_descriptions
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import NOTE_LETTERS, Fields, back, until_us

from .chart import incident_charts
from .reader import read_incident

INCIDENT = FieldsOf(
    IncidentRow,
    "AssertionIncident",
    times=True,
    more={"muted_until": Time | None, "sentence": str, "next_step": str},
)
IncidentFacts: TypeAlias = Annotated[dict[str, Any], INCIDENT]
Incidents: TypeAlias = Annotated[
    list[IncidentFacts], Listed("incidents", "Incidents", "Incidents, newest first.")
]


class IncidentAction(RequestBody):
    """Request to act on an incident; ``mute`` needs an end. ``until`` or ``for_s``."""

    action: Literal["acknowledge", "mute", "resolve"]
    until: AwareDatetime | None = None
    for_s: float | None = Field(default=None, gt=0, le=MOST_S)
    note: str = Field(default="", max_length=500)


@view("/v1/incidents", scope="read", tag="assertions")
def list_incidents(
    service: Service,
    model: str | None = None,
    status: Literal["current", "open", "acknowledged", "muted", "resolved", "all"] = "current",
    assertion: str | None = None,
    limit: Limit = 50,
) -> Incidents:
    """Incidents, newest first; ``current`` are those that are not resolved."""
    wanted = None if status == "all" else status
    with service.engine.connect() as connection:
        found = stored_incidents.list_incidents(
            connection, now_us=now_us(), model=model, status=wanted, assertion=assertion, limit=limit
        )
    return [_incident(row) for row in found]


@change("POST /v1/incidents/{incident}", scope="review", tag="assertions")
def change_incident(service: Service, incident: str, body: IncidentAction, request: Request) -> IncidentFacts:
    """Acknowledge, mute or resolve an incident."""
    until, who = end_us(body.until, body.for_s), visitor_of(request).name
    return _incident(
        act(
            service.engine,
            incident,
            body.action,
            until_us=until,
            note=body.note,
            who=who,
            targets=targets_of(service.settings),
        )
    )


def _incident(row: IncidentRow) -> dict[str, Any]:
    return INCIDENT.body(row, muted_until=row.muted_until_us or None)


MOST_FOUND = 1_000
_TOLD = frozenset({
    "onset", "before", "now", "explained_by", "event", "records", "action", "page", "runbook", "guarantee",
    "history", "sentence", "ended_by", "version", "subject_page", "stream", "also", "confused", "silent",
    "severity", "reads", "share",
})  # fmt: skip
"""Details with a place of their own on the page."""


@page("/incidents", scope="read")
def find_page(service: Service, model: str = "", kind: str = "", assertion: str = "") -> Response:
    with service.engine.connect() as connection:
        current = stored_incidents.list_incidents(
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


@page("/incidents/{incident}", scope="read")
def show_page(service: Service, request: Request, incident: str) -> Response:
    try:
        view = read_incident(service.engine, incident, now_us=now_us())
    except NotFound as error:
        return service.frame.message("Not found", f"{error}.")
    row = view.row
    about = list_descriptions(service.engine, row.model)
    context: dict[str, Any] = {
        "i": row,
        "d": dict.fromkeys(_TOLD) | row.details,
        "v": view,
        "charts": incident_charts(view),
        "cards": [service.cards.record(record, about) for record in view.records],
        "widest": max([max(c.before or 0.0, c.now or 0.0) for c in view.causes], default=0.0) or 1.0,
        "more": {
            name: value for name, value in row.details.items() if name not in _TOLD and value is not None
        },
    }
    if row.model in service.frame.models():
        return service.frame.page(request, "incident.html", row.model, "/alarms", context)
    return service.frame.plain(request, "incident.html", "", context)


@form("POST /incidents/{incident}", scope="review")
def incident_form(service: Service, request: Request, incident: str, form: Fields) -> Response:
    action, note = form.get("action", ""), form.get("note", "").strip()[:NOTE_LETTERS]
    act(
        service.engine,
        incident,
        action,
        until_us=until_us(form),
        note=note,
        who=visitor_of(request).name,
        targets=targets_of(service.settings),
    )
    return back(form)
