"""One sample, built once."""

from collections.abc import Iterator

import pytest
from fastapi import APIRouter, FastAPI
from outrider.monitor.views.pages import web_routes
from outrider.monitor.views.read import read_routes
from starlette.requests import Request
from starlette.responses import Response

from outrider.errors import NotFound
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.views.proposals.reader import Learner
from outrider.monitor.views.suites.routes import add_outcomes
from outrider.monitor.views.suites.written_cases import CaseWriter

from .sample import MODEL, Sample, build


def make_app(sample: Sample, *, learner: Learner | None = None, cases: CaseWriter | None = None) -> FastAPI:
    """The page and the read API over a sample."""
    app = FastAPI(docs_url=None)

    async def show(_request: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        body = error.problem.body()
        return Response(body, error.problem.status, media_type="application/problem+json")

    async def missing(_request: Request, error: Exception) -> Response:
        return Response(str(error), 404)

    app.add_exception_handler(ProblemError, show)
    app.add_exception_handler(NotFound, missing)
    models = MODEL, "churn"
    suites = APIRouter(prefix="/v1")
    add_outcomes(
        suites, sample.engine, Settings(models=dict.fromkeys(models, ModelSettings(predictor="m.py:f")))
    )
    for router in (
        web_routes(
            sample.engine, sample.journal, models=models, health=_health, learner=learner, cases=cases
        ),
        read_routes(sample.engine, sample.journal, models=models, health=_health),
        suites,
    ):
        app.include_router(router)
    return app


def _health() -> dict[str, bool]:
    return {"intake": True, "worker": True, "host": True, "trainer": False}


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    """A filled journal and database."""
    made = build(tmp_path_factory.mktemp("web"))
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture(scope="session")
def app(sample: Sample) -> FastAPI:
    """The page and the read API."""
    return make_app(sample)
