"""``GET /v1/models/{model}/slices``: weak slices of newest records."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared
from outrider.monitor.queries.weak_slices import SliceSearch, WeakSliceFacts
from outrider.monitor.settings.config import Settings


class WeakSliceReport(WeakSliceFacts):
    """Weak slices of a model's newest records."""

    model: str


def weak_slice_routes(settings: Settings, search: SliceSearch) -> APIRouter:
    """Routes about weak slices."""

    def weak_slices(
        model: str,
        outcome: Annotated[str, Query(max_length=200)] = "",
        column: Annotated[list[str] | None, Query(max_length=200)] = None,
        since: AwareDatetime | None = None,
    ) -> WeakSliceReport:
        """Slices on which answers are ``wrong``, or records ``flagged`` (or by one assertion), more often.

        Searched on half of the entities of the newest records, and proven on the other half.
        """
        known_model(settings, model)
        since_us = None if since is None else int(since.timestamp() * 1e6)
        found = search.find(model, outcome=outcome, columns=column or (), since_us=since_us)
        return {"model": model, **found}

    router = APIRouter(prefix="/v1", tags=["read"])
    router.add_api_route(
        "/models/{model}/slices", weak_slices, methods=["GET"], response_model=Declared[WeakSliceReport]
    )
    return router
