"""Data Docs of dataset versions."""

import gzip

from fastapi import APIRouter, Response
from sqlalchemy import Engine

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.data_docs import POLICY
from outrider.dataops.payloads.objects import ObjectStore
from outrider.errors import Erased, NotFound
from outrider.monitor.http.common import StoredNumber
from outrider.monitor.http.error_page import HEADERS

_HEADERS = HEADERS | {"content-security-policy": f"{POLICY}; frame-ancestors 'none'"}
"""The page holds its styles and nothing that runs or loads: it may neither."""


def data_docs_routes(engine: Engine, objects: ObjectStore) -> APIRouter:
    """Route of the pages, behind the application's gate."""
    router = APIRouter(include_in_schema=False)

    @router.get("/m/{model}/datasets/{name}/{number}/data-docs")
    def data_docs(model: str, name: str, number: StoredNumber) -> Response:
        """Data Docs of a version."""
        with engine.connect() as connection:
            found = datasets.get(connection, name, number)
        kept = found.manifest["validation"].get("data_docs")
        if found.model == model and kept is None and found.manifest.get("erased"):
            raise Erased(f"{found.id} has no Data Docs any more: they told figures of rows that were erased")
        if found.model != model or kept is None:
            raise NotFound(f"{found.id} has no Data Docs: it was validated before they were kept")
        return Response(gzip.decompress(objects.get(kept)), media_type="text/html", headers=_HEADERS)

    return router
