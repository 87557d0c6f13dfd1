"""The API of suite files: flagged records become cases."""

from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field, model_validator
from typing_extensions import TypedDict

from outrider.monitor.http.common import RequestBody
from outrider.monitor.http.declared import Declared
from outrider.monitor.queries.suite_cases import AddedCase, CaseWriter, Wanted, as_json


class CaseWanted(RequestBody):
    """Request to turn a record into a test case."""

    flag: str | None = None
    record_id: str | None = None
    mode: Literal["mft", "inv"] = "mft"
    label: Any = None
    variants: list[dict[str, Any]] | None = Field(default=None, min_length=1, max_length=100)
    test: str | None = Field(default=None, min_length=1, max_length=200)
    by: str = Field(default="human", max_length=200)
    write: bool = True

    @model_validator(mode="after")
    def _one(self) -> "CaseWanted":
        if (self.flag is None) == (self.record_id is None):
            raise ValueError("flag or record_id expected, and only one of them")
        if self.label is not None and self.mode == "inv":
            raise ValueError("label belongs to mode mft: an invariance needs no right answer")
        return self


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
        wanted = Wanted(body.flag, body.record_id, body.mode, body.label, body.variants, body.test, body.by)
        test = writer.make(model, wanted)
        if not body.write:
            response.status_code = 200
            return {"test": as_json(test)}
        added = writer.add(model, test)
        if added.state == "present":
            response.status_code = 200
        return added

    return router
