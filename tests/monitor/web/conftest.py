"""One sample, built once."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from outrider.errors import NotFound
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.views.every import every_router
from outrider.monitor.views.proposals.reader import Learner, learner_of
from outrider.monitor.views.suites.written_cases import CaseWriter
from tests.monitor.services import service_over

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
    settings = Settings(models=dict.fromkeys((MODEL, "churn"), ModelSettings(predictor="m.py:f")))
    readers = {learner_of: learner, CaseWriter: cases}
    given = {kind: reader for kind, reader in readers.items() if reader is not None}
    service = service_over(
        sample.engine,
        sample.journal,
        settings,
        health={"intake": True, "worker": True, "host": True, "trainer": False},
        readers=given,
    )
    app.include_router(every_router(service))
    return app


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
