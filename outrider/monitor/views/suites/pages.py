"""Pages of behavioral tests."""

from itertools import groupby
from urllib.parse import quote

from fastapi import Request
from starlette.responses import Response

from outrider.dataops.datasets.incident_cases import Mode
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import form, page
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import Fields, after_form
from outrider.monitor.web.frame import address
from outrider.monitor.web.pictures import png

from .cases import cases_of, picture_of, plots_of
from .matrix import COLUMNS, STATUSES, read_detail, read_matrix
from .written_cases import CaseWanted, CaseWriter

SKIP_DIGITS = 6


@page("/m/{model}/behavior", scope="read")
def behavior_page(
    service: Service, request: Request, model: str, capability: str = "", status: str = "", skip: str = ""
) -> Response:
    """The matrix of behavioral tests over model versions."""
    first = int(skip) if skip.isdecimal() and len(skip) <= SKIP_DIGITS else 0
    matrix = read_matrix(service.engine, model, capability=capability, status=status, skip=first)
    path = f"/m/{quote(model, safe='')}/behavior"
    kept = {"capability": capability, "status": status}
    context = {
        "matrix": matrix,
        "groups": [(name, list(rows)) for name, rows in groupby(matrix.rows, key=lambda row: row.capability)],
        "chosen": kept,
        "statuses": STATUSES,
        "any_filter": any(kept.values()),
        "newer_link": address(path, kept | {"skip": str(max(0, first - COLUMNS) or "")}) if first else None,
        "older_link": address(path, kept | {"skip": str(first + COLUMNS)}) if matrix.older else None,
    }
    return service.frame.page(request, "behavior.html", model, "/behavior", context)


@page("/m/{model}/behavior/{version}/{suite}/{test:path}", scope="read")
def outcome_page(
    service: Service, request: Request, model: str, version: str, suite: str, test: str
) -> Response:
    """Page of one test's outcome for a version, with failing cases."""
    found = read_detail(service.engine, model, version, suite, test)
    if found is None:
        text = f"No outcome of {test} ({suite}) is stored for version {version}."
        return service.frame.message("Not found", text, model=model)
    before = found.before.measures if found.before else ()
    context = {
        "d": found,
        "o": found.outcome,
        "status": found.outcome["status"],
        "measured": bool(found.outcome["measures"]),
        "plots": plots_of(found.outcome["measures"], before),
        "cases": cases_of(found.outcome),
        "pictures": "/m/{}/images/behavior/{}/{}/{}".format(
            *(quote(part, safe="") for part in (model, version, suite, test))
        ),
    }
    return service.frame.page(request, "outcome.html", model, "/behavior", context)


@page("/m/{model}/images/behavior/{version}/{suite}/{test:path}", scope="read")
def case_image_page(
    service: Service, model: str, version: str, suite: str, test: str, case: int, name: str, part: str
) -> Response:
    """PNG of a failing case's input, before or after its change."""
    found = read_detail(service.engine, model, version, suite, test)
    return png(picture_of(found.outcome, case, name, part) if found else None)


@form("POST /m/{model}/cases", scope="review")
def add_case_form(service: Service, model: str, form: Fields) -> Response:
    """Write a flagged record as a case, and show its place. Into the model's suite file."""
    if service.one(CaseWriter) is None or model not in service.frame.models():
        raise ProblemError(problem(404, f"there is no model {model!r}", field="model"))
    mode: Mode = "inv" if form.get("mode") == "inv" else "mft"
    label = form.get("label", "").strip() or None
    back = after_form(form)
    try:
        wanted = CaseWanted(flag=form.get("flag", ""), mode=mode, label=label, by="page")
        made = service.one(CaseWriter).make(model, wanted)
        added = service.one(CaseWriter).add(model, made)
    except ProblemError as error:
        heading, text, asked = "No test case was written", error.problem.detail, None
        if error.problem.extra.get("field") == "label":
            heading = "What is the right answer?"
            text = f"No label of {error.problem.extra['record']} was sent, and no assertion proposes one."
            asked = form
        status = error.problem.status
        return service.frame.message(heading, text, status=status, model=model, back=back, asked=asked)
    told = {"added": "was written to", "changed": "was changed in", "present": "stood already in"}
    text = (
        f"Record {added.case} {told[added.state]} {added.file}, test {added.test}. pytest and the "
        "promotion gate ask it from now on; put the file under version control."
    )
    return service.frame.message("Test case", text, status=200, model=model, back=back)
