"""From a model version of the registry to something that answers."""

from sqlalchemy import Engine, select

from outrider.assertions import Predictor
from outrider.dataops.objects import ObjectStore
from outrider.dataops.predictors import load_predictor_function
from outrider.dataops.tables import ModelVersion, table_of
from outrider.errors import ConfigError, NotFound

from .config import ModelSettings, Settings
from .shadow import PredictorFactory


def predictor_factory(settings: Settings, engine: Engine, objects: ObjectStore) -> PredictorFactory:
    """Loader of any registered version: a torch module with its weights, or the predictor function."""

    def load(model: str, version: str) -> Predictor:
        table = table_of(ModelVersion)
        query = select(table.c.weights).where(table.c.model == model, table.c.version == version)
        with engine.connect() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise NotFound(f"model {model!r} has no version {version!r}")
        weights = None if row.weights is None else objects.get(row.weights)
        return load_predictor(settings, settings.models[model], weights)

    return load


def load_predictor(settings: Settings, model: ModelSettings, weights: bytes | None) -> Predictor:
    """Predictor of one version; torch is imported only for models that need it.

    Raises
    ------
    ConfigError
        If the model's code cannot be loaded, or it has neither an architecture nor a predictor.
    """
    if model.predictor is not None:
        return load_predictor_function(model.predictor, settings.base)
    if model.architecture is None or weights is None:
        raise ConfigError(
            "the model has neither predictor nor architecture: nothing can answer in the shadow"
        )
    from outrider.dataops.torch_models import TorchPredictor, load_architecture, load_weights, pick_device

    module = load_weights(load_architecture(model.architecture, settings.base)(), weights)
    return TorchPredictor(
        module,
        inputs=model.inputs,
        classes=model.classes,
        task=model.task,
        device=pick_device(settings.worker.device),
    )
