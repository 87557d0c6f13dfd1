"""Routes of behavioral tests: outcomes by version, live ones, published ones, new cases."""

from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Query, Request
from starlette.responses import Response
from typing_extensions import TypedDict

from outrider.behavioral_tests import Outcome
from outrider.behavioral_tests.outcome import Example, Measure
from outrider.dataops.flags.live_rates import LiveRateView, list_rates
from outrider.dataops.improvement import suite_outcomes
from outrider.dataops.state.database import now_us, write
from outrider.errors import NotFound
from outrider.monitor.http.common import iso
from outrider.monitor.http.declared import FieldsOf, Listed, Time, declared
from outrider.monitor.http.limits import BodyBounds, ClientGone, read_body
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.responses import encoded
from outrider.monitor.http.routes import change, source_of, view
from outrider.monitor.views.assertions.routes import LiveRateFacts
from outrider.monitor.views.overview.facts import LIVE_TEST, LiveTestFacts
from outrider.monitor.views.overview.reader import read_overview
from outrider.monitor.views.service import Service

from .changes import Change
from .matrix import COLUMNS, Column, Matrix, VersionCell, VersionsRow, read_detail, read_matrix
from .published import OutcomesGiven, read_outcomes
from .written_cases import AddedCase, CaseWanted, CaseWriter, as_json

_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"title": OutcomesGiven.__name__, "type": "object"}}},
    }
}

_NAMED = ("version", "suite", "test", "kind", "capability", "description")
MeasureFacts: TypeAlias = Annotated[
    dict[str, Any], FieldsOf(Measure, "MeasuredFigure", more={"value": float | None})
]
CellOutcome: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        suite_outcomes.OutcomeRow,
        "CellOutcome",
        times=True,
        without=_NAMED,
        more={"measures": list[MeasureFacts]},
    ),
]
OutcomeFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        Outcome,
        "StoredOutcome",
        without=("ran",),
        more={
            "examples": list[Example],
            "measures": list[MeasureFacts],
            "status": str,
            "passed": bool,
            "source": str,
            "at": Time,
        },
    ),
]
VERSION = FieldsOf(Column, "MatrixVersion", times=True)
VersionFacts: TypeAlias = Annotated[dict[str, Any], VERSION]
CELL = FieldsOf(
    VersionCell,
    "MatrixCell",
    about="One test for one version: outcome, change, rate on live traffic.",
    more={"outcome": CellOutcome | None, "change": Change | None, "live": LiveRateFacts | None},
)
_ROW = FieldsOf(
    VersionsRow,
    "MatrixRow",
    about="One test over the versions.",
    more={"cells": dict[str, Annotated[dict[str, Any], CELL]]},
)
MATRIX = FieldsOf(
    Matrix,
    "BehaviorMatrix",
    about="Tests by capability with model versions as columns.",
    without=("columns",),
    more={"versions": list[VersionFacts], "rows": list[Annotated[dict[str, Any], _ROW]]},
)
BehaviorMatrix: TypeAlias = Annotated[dict[str, Any], MATRIX]


class OutcomeReport(TypedDict):
    """Outcome with its failing cases and its changes."""

    version: VersionFacts
    outcome: OutcomeFacts
    change: Change | None
    live: LiveRateFacts | None


class Published(TypedDict):
    """Number of stored outcomes of a version."""

    model: str
    version: str
    kept: int


@view("/v1/suites/{model}/matrix", scope="read", tag="suites", response_model=declared(BehaviorMatrix))
def matrix(
    service: Service,
    model: str,
    capability: str | None = None,
    status: Literal["passed", "failed", "error", "skipped", "regression", "alarm"] | None = None,
    skip: Annotated[int, Query(ge=0)] = 0,
    columns: Annotated[int, Query(ge=1, le=50)] = COLUMNS,
) -> Response:
    """Tests by capability with model versions as columns: rates, changes, live rates."""
    service.known(model)
    found = read_matrix(
        service.engine, model, capability=capability, status=status, skip=skip, columns=columns
    )
    return encoded(MATRIX.body(found, versions=found.columns))


@view(
    "/v1/suites/{model}/outcomes/{version}/{suite}/{test:path}",
    scope="read",
    tag="suites",
    response_model=declared(OutcomeReport),
)
def outcome(service: Service, model: str, version: str, suite: str, test: str) -> Response:
    """Outcome with its failing cases, and its change against the version before."""
    service.known(model)
    found = read_detail(service.engine, model, version, suite, test)
    if found is None:
        raise NotFound(f"no outcome of {suite}/{test} is stored for {model}@{version}")
    cell, stored = CELL.body(found.cell), dict(found.outcome)
    body: OutcomeReport = {
        "version": VERSION.body(found.column),
        "outcome": stored | {"at": iso(stored.pop("at_us"))},
        "change": cell["change"],
        "live": cell["live"],
    }
    return encoded(body)


async def _body_of(request: Request) -> bytes:
    limits = source_of(request, Service).settings.limits
    try:
        bounds = BodyBounds(limits.body_bytes, limits.ratio)
        return await read_body(request.receive, dict(request.scope["headers"]), bounds)
    except ClientGone:
        raise ProblemError(problem(400, "the connection closed before the body was complete")) from None


@change(
    "POST /v1/suites/{model}/outcomes", scope="promote", tag="suites", status_code=201, openapi_extra=_BODY
)
def publish(service: Service, model: str, body: Annotated[bytes, Depends(_body_of)]) -> Published:
    """Keep outcomes of a run elsewhere, such as in CI."""
    service.model(model)
    given = read_outcomes(body)
    found = [each.outcome() for each in given.outcomes]
    with write(service.engine) as connection:
        suite_outcomes.keep(connection, model, given.version, found, source=given.source, now_us=now_us())
    return {"model": model, "version": given.version, "kept": len(found)}


class LiveSuite(TypedDict):
    """A live behavioral test: outcomes by slot, rates by revision and version."""

    name: str
    description: str
    level: str
    live: list[LiveTestFacts]
    rates: list[LiveRateView]


LiveSuites: TypeAlias = Annotated[
    list[LiveSuite], Listed("suites", "LiveSuites", "Live behavioral tests of a model.")
]


@view("/v1/suites", scope="read", response_model=declared(LiveSuites))
def suites(service: Service, model: str) -> Response:
    """Live behavioral tests. Outcomes of their questions by slot, rates by revision and version."""
    service.known(model)
    view = read_overview(service.engine, model, now_us=now_us())
    with service.engine.connect() as connection:
        rates = list_rates(connection, model)
    kinds = {row.name: row for row in view.assertions if row.kind == "live_test"}
    return encoded(
        {
            "suites": [
                {
                    "name": row.name,
                    "description": row.description,
                    "level": row.level,
                    "live": [LIVE_TEST.body(test) for test in view.live_tests if test.name == row.name],
                    "rates": [asdict(rate) for rate in rates if rate.test == row.name],
                }
                for row in kinds.values()
            ]
        }
    )


class DraftCase(TypedDict):
    """Test as a draft for the suite file. Nothing was written."""

    test: dict[str, Any]


@change(
    "POST /v1/suites/{model}/cases",
    scope="review",
    models="closed",
    tag="suites",
    status_code=201,
    responses={200: {"model": AddedCase | DraftCase, "description": "Nothing was written"}},
    response_model=declared(AddedCase),
)
def add_case(service: Service, model: str, body: CaseWanted, response: Response) -> AddedCase | DraftCase:
    """Write a flagged record into the model's suite file (`incident_suite`).

    `mft` with its right answer (`label`, else the label that came, else what assertions propose); `inv`
    with the changed copy of the live test that failed, or the given `variants`. 201 when that changed the
    file, 200 when it was there; with `"write": false` the case alone. 409 when no right answer or no
    changed copy is known.
    """
    test = service.one(CaseWriter).make(model, body)
    if not body.write:
        response.status_code = 200
        return {"test": as_json(test)}
    added = service.one(CaseWriter).add(model, test)
    if added.state == "present":
        response.status_code = 200
    return added
