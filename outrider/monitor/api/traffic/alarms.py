"""``GET /v1/models/{model}/alarms``: watched streams and how far each is from an alarm."""

from typing import Annotated

from fastapi import APIRouter, Query

from outrider.dataops.state.database import now_us
from outrider.monitor.http.declared import Declared
from outrider.monitor.queries.alarms import AlarmReader, AlarmReport

MOST_STREAMS = 10_000


def alarm_routes(reader: AlarmReader) -> APIRouter:
    """Routes about alarms."""

    def alarms(model: str, limit: Annotated[int, Query(ge=1, le=MOST_STREAMS)] = 200) -> AlarmReport:
        """Watched streams, the nearest to an alarm first: shares, evidence, and what could be found."""
        return reader.read(model, now_us=now_us(), limit=limit)

    router = APIRouter(prefix="/v1", tags=["read"])
    router.add_api_route(
        "/models/{model}/alarms", alarms, methods=["GET"], response_model=Declared[AlarmReport]
    )
    return router
