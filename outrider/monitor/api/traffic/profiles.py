"""``GET /v1/models/{model}/profile``: columns of stored records over a range."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime
from sqlalchemy import Engine

from outrider.dataops.ledger.stored_profiles import ProfileRange
from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.queries.profiles import ProfileReport, slots_of, stored_report
from outrider.monitor.settings.config import Settings

NAMES = 255


class ModelProfile(ProfileReport):
    """Profile of a model's records."""

    model: str


def profile_routes(engine: Engine, settings: Settings) -> APIRouter:
    """Routes about profiles."""

    def profile(
        model: str,
        since: AwareDatetime | None = None,
        until: AwareDatetime | None = None,
        version: Annotated[str | None, Query(max_length=NAMES)] = None,
        slot: Annotated[str | None, Query(max_length=NAMES)] = None,
        slice: Annotated[str | None, Query(max_length=NAMES)] = None,
    ) -> ModelProfile:
        """Columns over whole windows that touch the range; by default all that are kept.

        ``slot`` is a challenger's version; without it the champion's answers are profiled.
        """
        known_model(settings, model)
        begin, end = ProfileRange().since_us, ProfileRange().until_us
        if since is not None:
            begin = int(since.timestamp() * 1e6)
        if until is not None:
            end = int(until.timestamp() * 1e6)
        if begin >= end:
            raise ProblemError(
                problem(422, f"since must be before until, got {since} and {until}", field="since")
            )
        wanted = ProfileRange(slots_of(slot), begin, end, version, slice)
        with engine.connect() as connection:
            return {"model": model, **stored_report(connection, model, wanted)}

    router = APIRouter(prefix="/v1", tags=["read"])
    router.add_api_route(
        "/models/{model}/profile", profile, methods=["GET"], response_model=Declared[ModelProfile]
    )
    return router
