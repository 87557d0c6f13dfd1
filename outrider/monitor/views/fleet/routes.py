"""Routes of the fleet."""

from typing import Annotated, TypeAlias

from fastapi import Request
from starlette.responses import Response

from outrider.dataops.state.database import now_us
from outrider.monitor.http.declared import Listed
from outrider.monitor.http.routes import page, view
from outrider.monitor.views.service import Service

from .reader import ORDER, FleetFacts, fleet_json, read_fleet

VERDICTS = {name: name for name in ORDER} | {"waiting": "no records"}
Fleet: TypeAlias = Annotated[list[FleetFacts], Listed("models", "Fleet", "A line per model, worst first.")]


@page("/", scope="read")
def home_page(service: Service, request: Request) -> Response:
    models = service.frame.models()
    if models:
        with service.engine.connect() as connection:
            lines = read_fleet(connection, models, service.alarm_rule, now_us=now_us())
        return service.frame.plain(request, "fleet.html", "/", {"lines": lines, "verdicts": VERDICTS})
    text = "No model is configured: add a [models.<name>] section to outrider.toml."
    return service.frame.message("No model yet", text, status=200)


@view("/v1/fleet", scope="read")
def fleet(service: Service) -> Fleet:
    """Verdict on each model, with onset, slice and next step."""
    names = service.frame.models()
    with service.engine.connect() as connection:
        lines = read_fleet(connection, names, service.alarm_rule, now_us=now_us())
    return fleet_json(lines)
