"""API of kept comparisons: keep, follow, list, read, remove."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias, cast, get_args
from urllib.parse import quote

from fastapi import Depends, Query, Request
from starlette.responses import RedirectResponse, Response
from typing_extensions import TypedDict

from outrider.dataops.comparisons import (
    RUNNING,
    ComparisonFound,
    Comparisons,
    Verdict,
    labels_of,
    read_report,
)
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound, ValidationRefused
from outrider.monitor.compare.labelled import Right, relabelled
from outrider.monitor.http.common import iso
from outrider.monitor.http.declared import Listed, Time
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.routes import change, form, page, view
from outrider.monitor.http.visitors import GOES_ON, visitor_of
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import Fields

from .report_view import views_of

TAG = "comparisons"
MOST = 100
"""Comparisons of the list."""
_DECLARED = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"title": ComparisonFound.__name__, "type": "object"}}},
    }
}


async def _body(request: Request) -> bytes:
    """Body, whose bounds were looked at before."""
    return await request.body()


class VerdictLine(TypedDict):
    """Verdict on one candidate."""

    candidate: str
    verdict: Verdict
    sentence: str
    records: int


class ComparisonLine(TypedDict):
    """Kept comparison, in short."""

    id: str
    kept: Time | None
    model: str | None
    production: str
    margin: float
    ended: str
    candidates: list[VerdictLine]


ComparisonList: TypeAlias = Annotated[
    list[ComparisonLine], Listed("comparisons", "ComparisonList", "Newest kept comparisons.")
]


class ComparisonBody(TypedDict):
    """Kept comparison with its report."""

    id: str
    kept: Time | None
    report: ComparisonFound


class ComparisonKept(TypedDict):
    """Id of a kept comparison, and the path of its page."""

    id: str
    page: str


class ComparisonRemoved(TypedDict):
    """Id of a comparison that is gone."""

    id: str


def kept_in(service: Service) -> Comparisons:
    """Comparisons of a service."""
    return Comparisons(service.settings.data_folder, most=service.settings.storage.keep_comparisons)


@view("/v1/comparisons", scope="read", tag=TAG)
def comparison_list(service: Service, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> ComparisonList:
    """Newest comparisons, with the sentence on each candidate."""
    return [
        {
            "id": found.id,
            "kept": iso(found.kept_us),
            "model": found.report.get("model"),
            "production": found.report["production"]["name"],
            "margin": found.report["margin"],
            "ended": found.report["ended"],
            "candidates": [
                {
                    "candidate": each["name"],
                    "verdict": each["verdict"],
                    "sentence": each["sentence"],
                    "records": each["records"],
                }
                for each in found.report["candidates"]
            ],
        }
        for found in service.one(kept_in).newest(limit)
    ]


@view("/v1/comparisons/{comparison}", scope="read", tag=TAG)
def comparison(service: Service, comparison: str) -> ComparisonBody:
    """Report of a comparison, with the labels so far."""
    found = service.one(kept_in).read(comparison)
    if found is None:
        raise NotFound(f"there is no comparison {comparison!r}")
    return {"id": found.id, "kept": iso(found.kept_us), "report": found.report}


@change("PUT /v1/comparisons/{comparison}", scope="promote", tag=TAG, openapi_extra=_DECLARED)
def follow(
    service: Service, request: Request, comparison: str, body: Annotated[bytes, Depends(_body)]
) -> ComparisonKept:
    """Keep the newest report of a comparison that runs, under an id of its own, until it has ended."""
    sender = visitor_of(request).name
    goes_on = service.one(kept_in).follow(comparison, read_report(body), now_us=now_us(), sender=sender)
    setattr(request.state, GOES_ON, goes_on)
    return {"id": comparison, "page": f"/compare/{comparison}"}


@change("DELETE /v1/comparisons/{comparison}", scope="promote", tag=TAG)
def remove(service: Service, comparison: str, labels: bool = False) -> ComparisonRemoved:
    """Remove a comparison; one with labels only where `labels` is true."""
    if not service.one(kept_in).remove(comparison, has_labels=labels):
        raise NotFound(f"there is no comparison {comparison!r}")
    return {"id": comparison}


@change("POST /v1/comparisons", scope="promote", tag=TAG, status_code=201, openapi_extra=_DECLARED)
def keep(service: Service, body: Annotated[bytes, Depends(_body)]) -> ComparisonKept:
    """Keep a report as `outrider compare --json` prints it; the same one again has the same id."""
    id_ = service.one(kept_in).keep(read_report(body), now_us=now_us())
    return {"id": id_, "page": f"/compare/{id_}"}


@page("/compare", scope="read")
def list_page(service: Service, request: Request) -> Response:
    """Newest comparisons with their sentences."""
    context = {"kept": service.one(kept_in).newest(MOST), "most": MOST}
    return service.frame.plain(request, "comparisons.html", "/compare", context)


@page("/compare/{comparison}", scope="read")
def comparison_page(service: Service, request: Request, comparison: str) -> Response:
    """Page of one comparison."""
    found = service.one(kept_in).read(comparison)
    if found is None:
        return _unknown(service, comparison)
    is_running = found.report["ended"] == RUNNING
    context = {
        "r": found.report,
        "views": views_of(found.report, takes_labels=not is_running),
        "heard_us": found.kept_us if is_running else None,
        "here": f"/compare/{found.id}",
        "records": _records(service, found.report),
        "labels": labels_of(found.report),
    }
    return service.frame.plain(request, "comparison.html", "/compare", context)


@form("POST /compare/{comparison}/labels", scope="label")
def label_form(service: Service, comparison: str, form: Fields) -> Response:
    """Label one pair, and show the verdict that follows."""
    right = form.get("right")
    if service.one(kept_in).read(comparison) is None:
        return _unknown(service, comparison)
    if right not in get_args(Right) or not service.one(kept_in).change(
        comparison, lambda report: _labelled(report, form, cast("Right", right))
    ):
        sides = ", ".join(get_args(Right))
        text = f"A pair of this comparison and one of {sides} expected, got {right!r}."
        return service.frame.message("The label was not taken", text, status=422)
    return RedirectResponse(f"/compare/{comparison}", status_code=303, headers=HEADERS)


@form("POST /compare/{comparison}/remove", scope="promote")
def remove_form(service: Service, comparison: str, form: Fields) -> Response:
    """Remove a comparison, with its labels where the form says so."""
    try:
        is_there = service.one(kept_in).remove(comparison, has_labels=form.get("labels") == "1")
    except ValidationRefused as error:
        text = f"{error}."
        return service.frame.message("Not removed", text, back=f"/compare/{comparison}", status=422)
    if not is_there:
        return _unknown(service, comparison)
    return RedirectResponse("/compare", status_code=303, headers=HEADERS)


def _records(service: Service, report: ComparisonFound) -> str:
    """Address of the records that were asked about; empty where they are not of this service."""
    model = report.get("model", "")
    return f"/m/{quote(model, safe='')}/records" if model in service.frame.configured else ""


def _unknown(service: Service, comparison: str) -> Response:
    return service.frame.message("Not found", f"There is no comparison {comparison!r}.", back="/compare")


def _labelled(report: ComparisonFound, form: Mapping[str, str], right: Right) -> ComparisonFound | None:
    found = relabelled(report, form.get("candidate", ""), form.get("id", ""), right)
    return cast("ComparisonFound | None", found)
