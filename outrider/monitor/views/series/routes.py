"""``GET /v1/models/{model}/series`` and ``performance``: a model over time."""

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar, get_args

from fastapi import Query
from pydantic import AwareDatetime

from outrider.dataops.state.database import now_us
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import view
from outrider.monitor.views.service import Service

from .answer import SeriesReport, SeriesRequest, performance_json, series_json
from .counts import SeriesCut
from .span import Versus, step_us

Measure = Literal[
    "records", "flags", "live_tests", "agreement", "label_delay", "latency", "first_token", "input_tokens",
    "output_tokens", "cost", "errors",
]  # fmt: skip
By = Literal["slice"]
T = TypeVar("T")


@view("/v1/models/{model}/series", scope="read")
def series(
    service: Service,
    model: str,
    measure: Annotated[list[Measure] | None, Query()] = None,
    name: str | None = None,
    version: str | None = None,
    slice: str | None = None,
    by: By | None = None,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
    step: str | None = None,
    versus: Versus | None = None,
) -> SeriesReport:
    """Records, flags, live tests, agreement, delays of labels and calls, by judged version."""
    service.model(model)
    wanted = SeriesCut(model, version, slice, by == "slice", name)
    asked = series_request(since, until, step, versus)
    measures = tuple(dict.fromkeys(measure or get_args(Measure)))
    with service.engine.connect() as connection:
        return _named(lambda: series_json(connection, wanted, asked, measures=measures))


@view("/v1/models/{model}/performance", scope="read")
def performance(
    service: Service,
    model: str,
    version: str | None = None,
    slice: str | None = None,
    by: By | None = None,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
    step: str | None = None,
    versus: Versus | None = None,
) -> SeriesReport:
    """Accuracy, F1, AUROC, Brier and calibration, or MAE and RMSE, and how many labels have come."""
    service.model(model)
    wanted = SeriesCut(model, version, slice, by == "slice")
    asked = series_request(since, until, step, versus)
    with service.engine.connect() as connection:
        return _named(lambda: performance_json(connection, wanted, asked))


def series_request(
    since: AwareDatetime | None, until: AwareDatetime | None, step: str | None, versus: Versus | None
) -> SeriesRequest:
    """Range, step and comparison of a query."""
    since_us, until_us = (None if one is None else int(one.timestamp() * 1e6) for one in (since, until))
    return SeriesRequest(
        since_us=since_us,
        until_us=until_us,
        step_us=None if step is None else _named(lambda: step_us(step)),
        versus=versus,
        now_us=now_us(),
    )


def _named(work: Callable[[], T]) -> T:
    """Result of work whose errors name the parameter first."""
    try:
        return work()
    except ValueError as error:
        field, _, reason = str(error).partition(": ")
        raise ProblemError(problem(422, reason, field=field)) from error
