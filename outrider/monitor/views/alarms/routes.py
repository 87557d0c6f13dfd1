"""Routes of watched streams."""

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from outrider.dataops.alarms.stored_incidents import list_incidents
from outrider.dataops.state.database import now_us
from outrider.monitor.http.routes import page, view
from outrider.monitor.views.service import Service

from .reader import AlarmReader, AlarmReport

MOST_STREAMS, MOST_SHOWN, MOST_TOLD = 10_000, 200, 50


@view("/v1/models/{model}/alarms", scope="read")
def alarms(
    service: Service, model: str, limit: Annotated[int, Query(ge=1, le=MOST_STREAMS)] = 200
) -> AlarmReport:
    """Watched streams, the nearest to an alarm first: shares, evidence, and what could be found."""
    return service.one(AlarmReader).read(model, now_us=now_us(), limit=limit)


@page("/m/{model}/alarms", scope="read")
def alarms_page(service: Service, request: Request, model: str) -> Response:
    """Standing incidents and watched streams of a model."""
    with service.engine.connect() as connection:
        told = list_incidents(connection, now_us=now_us(), model=model, limit=MOST_TOLD)
    context = {
        "r": service.one(AlarmReader).read(model, now_us=now_us(), limit=MOST_SHOWN)
        if model in service.frame.models()
        else None,
        "current": [row for row in told if row.status != "resolved"],
        "over": [row for row in told if row.status == "resolved"],
    }
    return service.frame.page(request, "alarms.html", model, "/alarms", context, refresh=True)
