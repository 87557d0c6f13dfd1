"""The API of suite files: flagged records become cases."""

from typing import Any

from fastapi import APIRouter, Response
from typing_extensions import TypedDict

from outrider.monitor.http.declared import Declared
from outrider.monitor.queries.suite_cases import AddedCase, CaseWanted, CaseWriter, as_json


class DraftCase(TypedDict):
    """Test as a draft for the suite file. Nothing was written."""

    test: dict[str, Any]


def suite_routes(writer: CaseWriter) -> APIRouter:
    """Router of the suite files."""
    router = APIRouter(prefix="/v1", tags=["suites"])

    @router.post(
        "/suites/{model}/cases",
        status_code=201,
        response_model=Declared[AddedCase],
        responses={200: {"model": AddedCase | DraftCase, "description": "Nothing was written"}},
    )
    def add_case(model: str, body: CaseWanted, response: Response) -> AddedCase | DraftCase:
        """Write a flagged record into the model's suite file (`incident_suite`).

        `mft` with its right answer (`label`, else the label that came, else what assertions propose); `inv`
        with the changed copy of the live test that failed, or the given `variants`. 201 when that changed the
        file, 200 when it was there; with `"write": false` the case alone. 409 when no right answer or no
        changed copy is known.
        """
        test = writer.make(model, body)
        if not body.write:
            response.status_code = 200
            return {"test": as_json(test)}
        added = writer.add(model, test)
        if added.state == "present":
            response.status_code = 200
        return added

    return router
