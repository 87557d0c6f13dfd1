"""``GET /v1/agreement`` of challengers and champion; ``GET /v1/report`` of a model."""

from typing_extensions import TypedDict

from outrider.dataops.improvement import shadow_tests
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.http.routes import view
from outrider.monitor.views.service import Service

from .reader import ModelReport, TrialFigures, report_json, trial_json


class ShadowTestList(TypedDict):
    """The newest shadow test of every challenger, or of one version."""

    model: str
    champion: str | None
    tests: list[TrialFigures]


@view("/v1/agreement", scope="read")
def agreement(service: Service, model: str, version: str | None = None) -> ShadowTestList:
    """The newest shadow test of every challenger, or of one version: agreement per slice and reasons."""
    service.model(model)
    with service.engine.connect() as connection:
        found = shadow_tests.newest(connection, model, version)
        champion = models.champion(connection, model)
    if version is not None and not found:
        raise NotFound(f"model {model!r} has no shadow test of version {version!r}")
    return {
        "model": model,
        "champion": None if champion is None else champion.version,
        "tests": [trial_json(trial) for trial in found],
    }


@view("/v1/report", scope="read")
def report(service: Service, model: str) -> ModelReport:
    """Versions, agreement, flags, suites and shadow tests of a model in one place."""
    service.model(model)
    return report_json(service.engine, model, now_us=now_us())
