"""Routes of the overview."""

from typing import Annotated

from fastapi import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from outrider.dataops.alarms import stored_incidents
from outrider.dataops.state.database import now_us
from outrider.monitor.http.common import RateFigures
from outrider.monitor.http.declared import FieldsOf, declared
from outrider.monitor.http.responses import encoded
from outrider.monitor.http.routes import page, view
from outrider.monitor.queries import improvement
from outrider.monitor.views.profiles.reader import ColumnReport, column_report
from outrider.monitor.views.series.page import COMPARED, RANGES, read_series_view
from outrider.monitor.views.service import Service
from outrider.monitor.views.triggers.reader import triggers_of

from .facts import AssertionFacts, LiveTestFacts
from .reader import Overview, read_overview

OVERVIEW = FieldsOf(
    Overview,
    "ModelOverview",
    more={
        "assertions": list[AssertionFacts],
        "live_tests": list[LiveTestFacts],
        "accuracy": dict[str, dict[str, RateFigures]],
        "accuracy_of_all": RateFigures,
        "columns": list[ColumnReport],
    },
    without=("profile",),
)


class Overviews(TypedDict):
    """Overview of each model, and which processes run."""

    models: list[Annotated[Overview, OVERVIEW]]
    processes: dict[str, bool]


@page("/m/{model}", scope="read")
def overview_page(service: Service, request: Request, model: str) -> Response:
    last = service.blocks.last_work_seq()
    view = read_overview(service.engine, model, now_us=now_us(), last_seq=last, rule=service.rule)
    with service.engine.connect() as connection:
        current = stored_incidents.list_incidents(
            connection, now_us=view.now_us, model=model, status="current", limit=20
        )
    champion = next((version for version in view.versions if version.status == "champion"), None)
    challengers = [version.version for version in view.versions if version.status == "challenger"]
    version, accuracy = view.accuracy_beside(champion.version if champion else None)
    known = view.accuracy.get("", {})
    shown = sorted(known, key=lambda one: (one != version, -known[one].trials))[:4]
    trends = read_series_view(service.engine, model, request.query_params, now_us=view.now_us)
    context = {
        "o": view,
        "champion": champion,
        "challengers": challengers,
        "watch": next(iter(improvement.list_watches(service.engine, model, limit=1)), None),
        "triggers": triggers_of(service, model),
        "accuracy_all": accuracy,
        "accuracy_version": version,
        "trends": trends,
        "last_record_us": view.last_record_us,
        "ranges": RANGES,
        "compared": COMPARED,
        "slices": view.slices,
        "incidents": current,
        "accuracy_versions": shown,
        "accuracy": {part: by for part, by in view.accuracy.items() if not by.keys().isdisjoint(shown)},
        "health": service.health(),
        "rejected": service.rejected(model),
        "most": max([row.per_1000.get("champion", 0.0) for row in view.assertions], default=0.0) or 1.0,
    }
    return service.frame.page(request, "overview.html", model, "", context, refresh=True)


@view("/v1/overview", scope="read", models="closed", response_model=declared(Overviews))
def overview(service: Service, model: str | None = None) -> Response:
    """Overview page's data, for one model or for all."""
    names = service.frame.models() if model is None else [model]
    if model is not None:
        service.known(model)
    last = service.blocks.last_work_seq()
    views = [
        read_overview(service.engine, name, now_us=now_us(), last_seq=last, rule=service.rule)
        for name in names
    ]
    bodies = [
        OVERVIEW.body(found, columns=[column_report(column) for column in found.profile.columns])
        for found in views
    ]
    return encoded({"models": bodies, "processes": service.health()})
