"""API of kept comparisons: keep, follow, list, read, remove."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from typing_extensions import TypedDict

from outrider.dataops.comparisons import ComparisonFound, Comparisons, Verdict, read_report
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.http.common import iso
from outrider.monitor.http.declared import Declared, Time
from outrider.monitor.http.visitors import GOES_ON, visitor_of

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


class ComparisonList(TypedDict):
    """Newest kept comparisons."""

    comparisons: list[ComparisonLine]


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


def comparison_routes(comparisons: Comparisons) -> APIRouter:
    """Routes about kept comparisons."""
    router = APIRouter(prefix="/v1/comparisons", tags=["comparisons"])

    @router.get("")
    def comparison_list(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Declared[ComparisonList]:
        """Newest comparisons, with the sentence on each candidate."""
        return {
            "comparisons": [
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
                for found in comparisons.newest(limit)
            ]
        }

    @router.get("/{comparison}")
    def comparison(comparison: str) -> Declared[ComparisonBody]:
        """Report of a comparison, with the labels so far."""
        found = comparisons.read(comparison)
        if found is None:
            raise NotFound(f"there is no comparison {comparison!r}")
        return {"id": found.id, "kept": iso(found.kept_us), "report": found.report}

    @router.put("/{comparison}", openapi_extra=_DECLARED)
    def follow(
        request: Request, comparison: str, body: Annotated[bytes, Depends(_body)]
    ) -> Declared[ComparisonKept]:
        """Keep the newest report of a comparison that runs, under an id of its own, until it has ended."""
        sender = visitor_of(request).name
        goes_on = comparisons.follow(comparison, read_report(body), now_us=now_us(), sender=sender)
        setattr(request.state, GOES_ON, goes_on)
        return {"id": comparison, "page": f"/compare/{comparison}"}

    @router.delete("/{comparison}")
    def remove(comparison: str, labels: bool = False) -> Declared[ComparisonRemoved]:
        """Remove a comparison; one with labels only where `labels` is true."""
        if not comparisons.remove(comparison, has_labels=labels):
            raise NotFound(f"there is no comparison {comparison!r}")
        return {"id": comparison}

    @router.post("", status_code=201, openapi_extra=_DECLARED)
    def keep(body: Annotated[bytes, Depends(_body)]) -> Declared[ComparisonKept]:
        """Keep a report as `outrider compare --json` prints it; the same one again has the same id."""
        id_ = comparisons.keep(read_report(body), now_us=now_us())
        return {"id": id_, "page": f"/compare/{id_}"}

    return router
