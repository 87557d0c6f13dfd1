"""API as one FastAPI application, its parts put together here."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NotRequired

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from msgspec.json import schema_components
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route
from typing_extensions import TypedDict

from outrider.errors import (
    Erased,
    GateRefused,
    JournalFull,
    NotFound,
    OutriderError,
    SchemaMismatch,
    ValidationRefused,
)
from outrider.monitor.http.declared import Time
from outrider.monitor.http.error_page import HEADERS, error_page, wants_page
from outrider.monitor.http.problem import CONTENT_TYPE, Problem, ProblemError, problem
from outrider.monitor.http.query_names import check_names
from outrider.monitor.http.routes import ScopedRoute
from outrider.monitor.intake.decode import LabelEnvelope, RecordEnvelope
from outrider.monitor.metrics.exposition import MetricsApp
from outrider.monitor.settings.reload import ConfigState

_STATUS: dict[type[OutriderError], int] = {
    NotFound: 404,
    Erased: 410,
    SchemaMismatch: 422,
    ValidationRefused: 422,
    GateRefused: 409,
    JournalFull: 507,
}
_PROBLEM = {
    "type": "object",
    "title": "Problem",
    "description": "What was wrong, where, and what to do (RFC 9457); members beside these say more.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": True,
}
_ENVELOPES = schema_components((RecordEnvelope, LabelEnvelope), ref_template="#/components/schemas/{name}")
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Problem details",
        "content": {CONTENT_TYPE.decode(): {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
_DOCUMENT = "/openapi.json"
FIRST = (
    ScopedRoute.of("GET /healthz", ""),
    ScopedRoute.of("GET /readyz", ""),
    ScopedRoute.of("GET /metrics", "read"),
    ScopedRoute.of("POST /v1/records", "ingest", place="records"),
    ScopedRoute.of("POST /v1/labels", "ingest label", place="records"),
)
"""Routes of the application itself."""
DOCUMENT = ScopedRoute.of(f"GET {_DOCUMENT}", "read", place="none")
"""Route that answers once all others are there."""
_UNREADY = _PROBLEMS["default"] | {"description": "Records would be refused"}


class Liveness(TypedDict):
    """The process answers."""

    status: Literal["ok"]


class ConfigTimes(TypedDict):
    """Times of the accepted and of a refused configuration."""

    loaded: Time | None
    refused: Time | None


class Readiness(TypedDict):
    """A record sent now would be taken."""

    status: Literal["ready"]
    config: ConfigTimes


class Rejected(TypedDict):
    """One record that was not taken, and why."""

    index: int
    id: str | None
    field: str
    reason: str


class Taken(TypedDict):
    """Durable records or labels, and the first thousand refused ones."""

    accepted: int
    rejected: list[Rejected]
    rejected_count: NotRequired[int]


def build_app(
    *,
    fault: Callable[[], str | None],
    collector: Collector | None = None,
    config: Callable[[], ConfigState] = ConfigState,
    routers: Sequence[APIRouter] = (),
) -> "_Api":
    """Application behind the hot routes.

    ``fault`` says why the service is not ready; ``config`` gives the times in ``/readyz``; ``collector``
    is shown by ``/metrics``. Pages get ``request.state.csrf_token``.
    """
    app = _Api(
        title="Outrider",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        responses=_PROBLEMS,
        dependencies=[Depends(_check_query)],
    )

    @app.get(_DOCUMENT, include_in_schema=False)
    def document() -> Response:  # in a thread: the first one is worked out, records go on meanwhile
        return JSONResponse(app.openapi())

    @app.get("/healthz", tags=["service"])
    async def healthz() -> Liveness:
        """Liveness of the process."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["service"], response_model=Readiness, responses={503: _UNREADY})
    async def readyz() -> Response:
        """Readiness to take a record; 503 with the reason otherwise."""
        reason = fault()
        if reason is None:
            return JSONResponse({"status": "ready", "config": _told(config())})
        return _problem(problem(503, reason, headers={"retry-after": "5"}))

    _document_hot_routes(app)
    if collector is not None:
        app.router.routes.append(Route("/metrics", MetricsApp(collector), include_in_schema=False))
    for router in routers:
        app.include_router(router)
    _install_problems(app)
    return app


class _Api(FastAPI):
    """Its document has the types of problems, which every route may answer with, and of what is taken."""

    is_ending: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the process ends: waiting requests are answered then."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        types = document.setdefault("components", {}).setdefault("schemas", {})
        types |= {"Problem": _PROBLEM} | _ENVELOPES[1]
        return document


async def _check_query(request: Request) -> None:
    """Refuse unknown query parameters under ``/v1``; pages ignore them."""
    route = request.scope.get("route")
    if request.query_params and isinstance(route, APIRoute) and route.path.startswith("/v1/"):
        check_names(request.query_params, _query_names(route.dependant))


def _query_names(dependant: Dependant) -> set[str]:
    below = [_query_names(one) for one in dependant.dependencies]
    return {field.alias for field in dependant.query_params}.union(*below)


def _told(state: ConfigState) -> ConfigTimes:
    """Times alone: strangers do not learn why a configuration was refused."""
    return {
        "loaded": _second(state.loaded_s),
        "refused": _second(state.refused_s if state.problem else 0.0),
    }


def _second(at: float) -> str | None:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") if at else None


def _document_hot_routes(app: FastAPI) -> None:
    octets = {"schema": {"type": "string", "format": "binary"}}
    raw = dict.fromkeys(("application/x-ndjson", "application/vnd.apache.arrow.stream"), octets)
    for path, what, envelope in zip(
        ("/v1/records", "/v1/labels"), ("records", "labels"), _ENVELOPES[0], strict=True
    ):
        one_or_more = {"anyOf": [envelope, {"type": "array", "items": envelope}]}
        content = {"application/json": {"schema": one_or_more}} | raw

        async def taken() -> Response:
            return _problem(problem(503, "the intake routes are not in front of this application"))

        app.post(
            path,
            status_code=202,
            response_model=Taken,
            tags=["intake"],
            summary=f"Take {what}: durable once answered; bad ones are named and the rest is taken",
            operation_id=f"post_{what}",
            openapi_extra={"requestBody": {"required": True, "content": content}},
        )(taken)


def _install_problems(app: FastAPI) -> None:
    @app.exception_handler(ProblemError)
    async def on_problem(request: Request, error: ProblemError) -> Response:
        return _response(request, error.problem)

    @app.exception_handler(OutriderError)
    async def on_ours(request: Request, error: OutriderError) -> Response:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        return _response(request, problem(status, str(error)))

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        faults = [
            {"field": ".".join(str(part) for part in fault["loc"]), "reason": fault["msg"]}
            for fault in error.errors()
        ]
        detail = "; ".join(f"{fault['field']}: {fault['reason']}" for fault in faults)
        return _response(request, problem(422, detail, errors=faults))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        detail = error.detail if error.status_code != 404 else f"no route or object at {request.url.path}"
        return _response(request, problem(error.status_code, str(detail), headers=error.headers))

    @app.exception_handler(Exception)
    async def on_anything(request: Request, error: Exception) -> Response:
        # Told by its text: importing SQLAlchemy here would double the time until intake takes records.
        if "database is locked" in str(error):
            detail = "the database is busy: nothing was changed; send again"
            return _response(request, problem(503, detail, headers={"retry-after": "1"}))
        # Starlette logs the traceback; strangers only learn that it was our fault.
        return _response(
            request, problem(500, f"internal error ({type(error).__name__}); the log has its traceback")
        )


def _response(request: Request, answer: Problem) -> Response:
    if wants_page(request.scope):
        return HTMLResponse(error_page(answer), answer.status, HEADERS | dict(answer.headers))
    return _problem(answer)


def _problem(answer: Problem) -> Response:
    return Response(
        answer.body(), answer.status, dict(answer.headers), media_type=CONTENT_TYPE.decode("latin-1")
    )
