"""API of behavioral outcomes: matrix over versions, one outcome, and outside ones."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.behavioral_tests import Outcome
from outrider.behavioral_tests.outcome import Example, Measure
from outrider.dataops.improvement import suite_outcomes
from outrider.dataops.state.database import now_us, write
from outrider.errors import NotFound
from outrider.monitor.http.common import iso, known_model
from outrider.monitor.http.declared import Declared, FieldsOf, Time
from outrider.monitor.http.limits import BodyBounds, ClientGone, read_body
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.queries.behavior import (
    COLUMNS,
    Column,
    Matrix,
    VersionCell,
    VersionsRow,
    read_detail,
    read_matrix,
)
from outrider.monitor.queries.changes import Change
from outrider.monitor.queries.overview import list_models
from outrider.monitor.queries.published_outcomes import OutcomesGiven, read_outcomes
from outrider.monitor.settings.config import Settings

from .quality import LiveRateFacts

_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"title": OutcomesGiven.__name__, "type": "object"}}},
    }
}

_NAMED = ("version", "suite", "test", "kind", "capability", "description")
"""Fields of an outcome that its row and column say already."""
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


def add_outcomes(router: APIRouter, engine: Engine, settings: Settings) -> None:
    """Add the routes."""
    configured = tuple(settings.models)

    def check(model: str) -> None:
        known = list_models(engine, configured)
        if model not in known:
            raise NotFound(f"there is no model {model!r}; there is {', '.join(known) or 'none'}")

    @router.get("/suites/{model}/matrix", tags=["suites"], response_model=Declared[BehaviorMatrix])
    def matrix(
        model: str,
        capability: str | None = None,
        status: Literal["passed", "failed", "error", "skipped", "regression", "alarm"] | None = None,
        skip: Annotated[int, Query(ge=0)] = 0,
        columns: Annotated[int, Query(ge=1, le=50)] = COLUMNS,
    ) -> Response:
        """Tests by capability with model versions as columns: rates, changes, live rates."""
        check(model)
        found = read_matrix(engine, model, capability=capability, status=status, skip=skip, columns=columns)
        return _json(MATRIX.body(found, versions=found.columns))

    @router.get(
        "/suites/{model}/outcomes/{version}/{suite}/{test:path}",
        tags=["suites"],
        response_model=Declared[OutcomeReport],
    )
    def outcome(model: str, version: str, suite: str, test: str) -> Response:
        """Outcome with its failing cases, and its change against the version before."""
        check(model)
        found = read_detail(engine, model, version, suite, test)
        if found is None:
            raise NotFound(f"no outcome of {suite}/{test} is stored for {model}@{version}")
        cell, stored = CELL.body(found.cell), dict(found.outcome)
        body: OutcomeReport = {
            "version": VERSION.body(found.column),
            "outcome": stored | {"at": iso(stored.pop("at_us"))},
            "change": cell["change"],
            "live": cell["live"],
        }
        return _json(body)

    async def body_of(request: Request) -> bytes:
        try:
            bounds = BodyBounds(settings.limits.body_bytes, settings.limits.ratio)
            return await read_body(request.receive, dict(request.scope["headers"]), bounds)
        except ClientGone:
            raise ProblemError(problem(400, "the connection closed before the body was complete")) from None

    @router.post("/suites/{model}/outcomes", tags=["suites"], status_code=201, openapi_extra=_BODY)
    def publish(model: str, body: Annotated[bytes, Depends(body_of)]) -> Declared[Published]:
        """Keep outcomes of a run elsewhere, such as in CI."""
        known_model(settings, model)
        given = read_outcomes(body)
        found = [each.outcome() for each in given.outcomes]
        with write(engine) as connection:
            suite_outcomes.keep(connection, model, given.version, found, source=given.source, now_us=now_us())
        return {"model": model, "version": given.version, "kept": len(found)}


def _json(body: BehaviorMatrix | OutcomeReport) -> Response:
    return Response(
        msgspec.json.encode(body), media_type="application/json", headers={"cache-control": "no-store"}
    )
