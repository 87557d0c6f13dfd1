"""Pages of kept comparisons: list, single ones, labels of pairs, removal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast, get_args
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from outrider.dataops.comparisons import RUNNING, ComparisonFound, Comparisons, labels_of
from outrider.errors import ValidationRefused
from outrider.monitor.compare.labelled import Right, relabelled
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.web.compare_view import views_of
from outrider.monitor.web.forms import Fields
from outrider.monitor.web.frame import PageFrame

MOST = 100
"""Comparisons of the list."""


@dataclass(frozen=True, slots=True)
class ComparisonPages:
    """Answers of the pages; one method per page or form."""

    _comparisons: Comparisons
    _frame: PageFrame

    def listed(self, request: Request) -> Response:
        """Newest comparisons with their sentences."""
        context = {"kept": self._comparisons.newest(MOST), "most": MOST}
        return self._frame.plain(request, "comparisons.html", "/compare", context)

    def shown(self, request: Request, comparison: str) -> Response:
        """Page of one comparison."""
        found = self._comparisons.read(comparison)
        if found is None:
            return self._unknown(comparison)
        is_running = found.report["ended"] == RUNNING
        context = {
            "r": found.report,
            "views": views_of(found.report, takes_labels=not is_running),
            "heard_us": found.kept_us if is_running else None,
            "here": f"/compare/{found.id}",
            "records": self._records(found.report),
            "labels": labels_of(found.report),
        }
        return self._frame.plain(request, "comparison.html", "/compare", context)

    def label(self, comparison: str, form: Fields) -> Response:
        """Label one pair, and show the verdict that follows."""
        right = form.get("right")
        if self._comparisons.read(comparison) is None:
            return self._unknown(comparison)
        if right not in get_args(Right) or not self._comparisons.change(
            comparison, lambda report: _labelled(report, form, cast("Right", right))
        ):
            sides = ", ".join(get_args(Right))
            text = f"A pair of this comparison and one of {sides} expected, got {right!r}."
            return self._frame.message("The label was not taken", text, status=422)
        return RedirectResponse(f"/compare/{comparison}", status_code=303, headers=HEADERS)

    def remove(self, comparison: str, form: Fields) -> Response:
        """Remove a comparison, with its labels where the form says so."""
        try:
            is_there = self._comparisons.remove(comparison, has_labels=form.get("labels") == "1")
        except ValidationRefused as error:
            text = f"{error}."
            return self._frame.message("Not removed", text, back=f"/compare/{comparison}", status=422)
        if not is_there:
            return self._unknown(comparison)
        return RedirectResponse("/compare", status_code=303, headers=HEADERS)

    def _records(self, report: ComparisonFound) -> str:
        """Address of the records that were asked about; empty where they are not of this service."""
        model = report.get("model", "")
        return f"/m/{quote(model, safe='')}/records" if model in self._frame.configured else ""

    def _unknown(self, comparison: str) -> Response:
        return self._frame.message("Not found", f"There is no comparison {comparison!r}.", back="/compare")


def _labelled(report: ComparisonFound, form: Mapping[str, str], right: Right) -> ComparisonFound | None:
    found = relabelled(report, form.get("candidate", ""), form.get("id", ""), right)
    return cast("ComparisonFound | None", found)


def comparison_pages(comparisons: Comparisons, frame: PageFrame) -> APIRouter:
    """Routes of these pages."""
    pages = ComparisonPages(comparisons, frame)
    router = APIRouter()
    router.add_api_route("/compare", pages.listed, methods=["GET"])
    router.add_api_route("/compare/{comparison}", pages.shown, methods=["GET"])
    router.add_api_route("/compare/{comparison}/labels", pages.label, methods=["POST"])
    router.add_api_route("/compare/{comparison}/remove", pages.remove, methods=["POST"])
    return router
