"""``GET /v1/models/{model}/profile``: columns of stored records over a range."""

from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime

from outrider.dataops.ledger.stored_profiles import ProfileRange
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import view
from outrider.monitor.views.service import Service

from .reader import ProfileReport, slots_of, stored_report

NAMES = 255


class ModelProfile(ProfileReport):
    """Profile of a model's records."""

    model: str


@view("/v1/models/{model}/profile", scope="read")
def profile(
    service: Service,
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
    service.model(model)
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
    with service.engine.connect() as connection:
        return {"model": model, **stored_report(connection, model, wanted)}
