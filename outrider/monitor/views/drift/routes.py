"""Routes of drift."""

from typing import Annotated

from fastapi import Query, Request
from pydantic import AwareDatetime
from starlette.responses import Response

from outrider.dataops.ledger.stored_profiles import newest_end, profiled_slices
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.http.routes import page, view
from outrider.monitor.views.series.span import step_us
from outrider.monitor.views.service import Service

from .chart import charts_of
from .reader import DATASET, DEFAULT, DriftFacts, DriftReader, DriftRequest, time_us

NAMES = 255
SPANS = (("15m", "last 15 minutes"), ("1h", "last hour"), ("6h", "last 6 hours"), ("24h", "last day"))
REFERENCES = (
    ("1h", "hour before"),
    ("24h", "24 hours before"),
    ("7d", "7 days before"),
    (DATASET, "training data"),
)


class ModelDrift(DriftFacts):
    """Drift of a model's columns."""

    model: str


@view("/v1/models/{model}/drift", scope="read")
def drift(
    service: Service,
    model: str,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
    reference: Annotated[str, Query(max_length=NAMES)] = DEFAULT,
    version: Annotated[str | None, Query(max_length=NAMES)] = None,
    slice: Annotated[str | None, Query(max_length=NAMES)] = None,
) -> ModelDrift:
    """Columns that are distributed otherwise than in the reference, worst first.

    By default the last hour against the 24 hours before. ``reference``: ``dataset``, ``7d``, or
    ``SINCE..UNTIL``.
    """
    service.model(model)
    begin, end = (None if one is None else int(one.timestamp() * 1e6) for one in (since, until))
    found = service.one(DriftReader).read(DriftRequest(model, begin, end, reference, version, slice))
    return {"model": model, **found}


@page("/m/{model}/drift", scope="read")
def show(
    service: Service,
    request: Request,
    model: str,
    last: str = "1h",
    reference: str = DEFAULT,
    slice: str = "",
    since: str = "",
    until: str = "",
) -> Response:
    """Show small multiples of the columns, worst first."""
    with service.engine.connect() as connection:
        end, slices = newest_end(connection, model), profiled_slices(connection, model)
    found, fault = None, "" if end is not None else "No profile is stored yet."
    try:
        if end is not None:
            begin = max(0, end - step_us(last))
            if since and until:
                begin, end = time_us(since), time_us(until)
            found = service.one(DriftReader).read(
                DriftRequest(model, begin, end, reference, slice=slice or None)
            )
    except (ProblemError, ValueError) as error:
        fault = str(error)
    context = {
        "r": found,
        "charts": {} if found is None else charts_of(found),
        "spans": list(({last: last} | dict(SPANS)).items()),
        "references": list(({reference: reference} | dict(REFERENCES)).items()),
        "last": last,
        "reference": reference,
        "slices": slices,
        "slice": slice,
        "problem": fault,
    }
    return service.frame.page(request, "model_drift.html", model, "/drift", context)
