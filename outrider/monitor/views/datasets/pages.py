"""Pages of datasets."""

import gzip

from fastapi import Request
from starlette.responses import Response

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.collect import dataset_of
from outrider.dataops.datasets.data_docs import POLICY
from outrider.dataops.datasets.quarantine import Action, settle
from outrider.dataops.state.database import write
from outrider.errors import Erased, NotFound
from outrider.monitor.http.common import StoredNumber
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import form, page
from outrider.monitor.queries import improvement
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import Fields, back

from .chart import growth_chart
from .diff import PAGE_ROWS, read_dataset_diff
from .growth import read_dataset_page
from .version import read_dataset_version


@page("/m/{model}/datasets", scope="read")
def datasets_page(service: Service, request: Request, model: str) -> Response:
    """Dataset versions and refused rows."""
    context = {
        "datasets": improvement.list_datasets(service.engine, model),
        "refused": improvement.list_quarantine(service.engine, model),
        "rejected": service.rejected(model),
    }
    return service.frame.page(request, "datasets.html", model, "/datasets", context)


@page("/m/{model}/datasets/{name}", scope="read")
def dataset_growth_page(
    service: Service, request: Request, model: str, name: str, upto: StoredNumber | None = None
) -> Response:
    """Dataset: growth, provenance of its labels, quarantine, versions."""
    found = read_dataset_page(service.engine, model, name, upto=upto)
    context = {"v": found, "chart": growth_chart(found.growth)}
    return service.frame.page(request, "dataset_growth.html", model, "/datasets", context)


@page("/m/{model}/datasets/{name}/diff", scope="read")
def dataset_diff_page(
    service: Service,
    request: Request,
    model: str,
    name: str,
    old: StoredNumber,
    new: StoredNumber,
    first: StoredNumber = 0,
) -> Response:
    """Difference of two dataset versions: rows, reasons, columns."""
    if service.objects is None:
        return service.frame.message("Not found", "Rows of datasets are not shown here.", model=model)
    found = read_dataset_diff(service.engine, service.objects, model, name, old, new, first=first)
    context = {"v": found, "page_rows": PAGE_ROWS}
    return service.frame.page(request, "dataset_diff.html", model, "/datasets", context)


@page("/m/{model}/datasets/{name}/{number}", scope="read")
def dataset_page(service: Service, request: Request, model: str, name: str, number: StoredNumber) -> Response:
    """Dataset version: facts, class mix, sample rows, difference from its parent."""
    if service.objects is None:
        return service.frame.message("Not found", "Rows of datasets are not shown here.", model=model)
    found = read_dataset_version(service.engine, service.objects, model, name, number)
    return service.frame.page(request, "dataset.html", model, "/datasets", {"v": found, "d": found.version})


@form("POST /m/{model}/quarantine", scope="promote")
def quarantine_form(service: Service, model: str, form: Fields) -> Response:
    """Retry or drop a quarantined record. Without one, all of a dataset are retried."""
    action = form.get("action", "")
    records = [form["record"]] if "record" in form else []
    if action not in ("retry", "drop") or (action == "drop" and not records):
        detail = f"retry, or drop of a record, expected, got {action[:20]!r}"
        raise ProblemError(problem(422, detail, field="action"))
    asked: Action = "drop" if action == "drop" else "retry"
    with write(service.engine) as connection:
        settle(connection, asked, dataset=form.get("dataset", dataset_of(model)), records=records)
    return back(form)


_HEADERS = HEADERS | {"content-security-policy": f"{POLICY}; frame-ancestors 'none'"}
"""The page holds its styles and nothing that runs or loads: it may neither."""


@page("/m/{model}/datasets/{name}/{number}/data-docs", scope="read")
def data_docs(service: Service, model: str, name: str, number: StoredNumber) -> Response:
    """Data Docs of a version."""
    with service.engine.connect() as connection:
        found = datasets.get(connection, name, number)
    kept = found.manifest["validation"].get("data_docs")
    if found.model == model and kept is None and found.manifest.get("erased"):
        raise Erased(f"{found.id} has no Data Docs any more: they told figures of rows that were erased")
    if found.model != model or kept is None:
        raise NotFound(f"{found.id} has no Data Docs: it was validated before they were kept")
    return Response(gzip.decompress(service.objects.get(kept)), media_type="text/html", headers=_HEADERS)
