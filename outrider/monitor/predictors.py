"""From a model version of the registry to something that answers."""

from sqlalchemy import Engine

from outrider.assertions import Predictor
from outrider.dataops import models
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.objects import ObjectStore
from outrider.dataops.predictors import load_predictor_function
from outrider.errors import ConfigError

from .config import Settings
from .shadow import PredictorFactory
from .sources import stored_source


def predictor_factory(settings: Settings, engine: Engine, objects: ObjectStore) -> PredictorFactory:
    """Loader of any registered version."""

    def load(model: str, version: str) -> Predictor:
        with engine.connect() as connection:
            found = models.get(connection, model, version)
        weights = None if found.weights is None else objects.get(found.weights)
        return load_predictor(settings, stored_source(settings, found), weights)

    return load


def load_predictor(settings: Settings, source: Source | None, weights: bytes | None) -> Predictor:
    """Predictor of one version; torch is imported only for models that need it.

    Raises
    ------
    ConfigError
        If the model's code cannot be loaded, or nothing says what it is.
    """
    if source is not None and source.kind == "function":
        return load_predictor_function(source.reference, settings.base)
    if source is None or weights is None:
        raise ConfigError("the model is of none of the kinds that can answer in the shadow")
    from outrider.dataops.torch_models import TorchPredictor, load_architecture, load_weights, pick_device

    module = load_weights(load_architecture(source.reference, settings.base)(), weights)
    return TorchPredictor(
        module,
        inputs=source.inputs,
        classes=source.classes,
        task=source.task,
        device=pick_device(settings.worker.device),
    )
