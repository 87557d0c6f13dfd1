"""``GET /v1/agreement`` of challengers and champion; ``GET /v1/report`` of a model."""

from fastapi import APIRouter
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.dataops.improvement import shadow_tests
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared
from outrider.monitor.queries.model_report import ModelReport, TrialFigures, report_json, trial_json
from outrider.monitor.settings.config import Settings


class ShadowTestList(TypedDict):
    """The newest shadow test of every challenger, or of one version."""

    model: str
    champion: str | None
    tests: list[TrialFigures]


def agreement_routes(engine: Engine, settings: Settings) -> APIRouter:
    """Routes about shadow tests."""

    def agreement(model: str, version: str | None = None) -> ShadowTestList:
        """The newest shadow test of every challenger, or of one version: agreement per slice and reasons."""
        known_model(settings, model)
        with engine.connect() as connection:
            found = shadow_tests.newest(connection, model, version)
            champion = models.champion(connection, model)
        if version is not None and not found:
            raise NotFound(f"model {model!r} has no shadow test of version {version!r}")
        return {
            "model": model,
            "champion": None if champion is None else champion.version,
            "tests": [trial_json(trial) for trial in found],
        }

    def report(model: str) -> ModelReport:
        """Versions, agreement, flags, suites and shadow tests of a model in one place."""
        known_model(settings, model)
        return report_json(engine, model, now_us=now_us())

    router = APIRouter(prefix="/v1", tags=["read"])
    router.add_api_route("/agreement", agreement, methods=["GET"], response_model=Declared[ShadowTestList])
    router.add_api_route("/report", report, methods=["GET"], response_model=Declared[ModelReport])
    return router
