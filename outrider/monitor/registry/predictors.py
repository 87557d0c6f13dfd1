"""From a model version of the registry to something that answers."""

from collections.abc import Callable

from sqlalchemy import Engine

from outrider.assertions import Predictor
from outrider.dataops.model_kinds.loading import Weights, as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import ObjectStore
from outrider.errors import ConfigError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sources import loadable_source

PredictorFactory = Callable[[str, str], Predictor]
"""(model, version) -> what answers for that version."""


def predictor_factory(settings: Settings, engine: Engine, objects: ObjectStore) -> PredictorFactory:
    """Loader of any registered version."""

    def load(model: str, version: str) -> Predictor:
        with engine.connect() as connection:
            found = models.get(connection, model, version)
        weights = None if found.weights is None else objects.get(found.weights)
        return load_predictor(settings, loadable_source(settings, found), weights)

    return load


def load_predictor(settings: Settings, source: Source | None, weights: Weights | None) -> Predictor:
    """Predictor of one version, with torch only where needed.

    Raises
    ------
    ConfigError
        If it cannot be loaded, or nothing says what it is.
    """
    if source is None:
        raise ConfigError("the model is of none of the kinds that can answer in the shadow")
    model = load_model(source, folder=settings.base, weights=weights, device=settings.worker.device)
    return as_predictor(model)
