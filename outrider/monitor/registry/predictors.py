"""From a model version of the registry to something that answers."""

from collections.abc import Sequence

from sqlalchemy import Connection

from outrider.assertions import Predictor
from outrider.dataops.model_kinds.loading import Weights, as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.uploads.store import uploaded_versions
from outrider.errors import ConfigError
from outrider.monitor.engine.client import Making
from outrider.monitor.engine.launch import launch_of
from outrider.monitor.engine.memory_bound import bound_bytes
from outrider.monitor.engine.single_version import SingleVersion
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sources import loadable_source


def version_predictors(
    settings: Settings, connection: Connection, model: str, *versions: str
) -> tuple[Predictor, ...]:
    """Predictors of registered versions of a model.

    An upload is opened by no process but a confined engine; versions beside it answer from engines, too, so
    that their times compare.

    Raises
    ------
    ConfigError
        If one cannot be loaded, or nothing says what it is.
    """
    uploaded = uploaded_versions(connection)
    if uploaded.isdisjoint((model, version) for version in versions):
        return tuple(_loaded(settings, models.get(connection, model, version)) for version in versions)
    made: list[SingleVersion] = []
    for version in versions:
        found = models.get(connection, model, version)
        made.append(
            single_version(settings, found, is_uploaded=(model, version) in uploaded, others=tuple(made))
        )
    return tuple(made)


def single_version(
    settings: Settings, found: models.Model, *, is_uploaded: bool, others: Sequence[SingleVersion] = ()
) -> SingleVersion:
    """Registered version in an engine of its own.

    Parameters
    ----------
    others
        Of the same model, whose memory bounds that of an uploaded challenger.

    Raises
    ------
    ConfigError
        If it cannot be loaded, or nothing says what it is.
    """
    source = _source(settings, found)
    objects = LocalObjects(settings.data_folder / "objects")
    weights = None if found.weights is None else objects.path(found.weights)
    shadow, is_bounded = settings.models[found.model].shadow, is_uploaded and found.status != "champion"

    def bound() -> int | None:
        peak = max((one.peak_bytes() for one in others), default=None)
        return bound_bytes(shadow.memory_mb, peak) if is_bounded else None

    return SingleVersion(
        (found.model, found.version),
        Making(source, weights),
        launch_of(settings, found.model, source, weights, is_uploaded=is_uploaded),
        deadline_s=shadow.deadline_s,
        bound=bound,
    )


def load_predictor(settings: Settings, source: Source, weights: Weights | None) -> Predictor:
    """Predictor of one version in this process, with torch only where needed.

    Raises
    ------
    ConfigError
        If it cannot be loaded.
    """
    return as_predictor(
        load_model(source, folder=settings.base, weights=weights, device=settings.worker.device)
    )


def _loaded(settings: Settings, found: models.Model) -> Predictor:
    objects = LocalObjects(settings.data_folder / "objects")
    weights = None if found.weights is None else objects.get(found.weights)
    return load_predictor(settings, _source(settings, found), weights)


def _source(settings: Settings, found: models.Model) -> Source:
    source = loadable_source(settings, found)
    if source is None:
        raise ConfigError("the model is of none of the kinds that can answer in the shadow")
    return source
