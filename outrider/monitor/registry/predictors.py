"""From a model version of the registry to something that answers."""

from dataclasses import replace

from sqlalchemy import Connection

from outrider.assertions import Predictor
from outrider.dataops.model_kinds.loading import Weights, as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.monitor.engine.client import Making
from outrider.monitor.engine.memory_bound import bound_bytes
from outrider.monitor.engine.single_version import ROWS, SingleVersion
from outrider.monitor.engine.trunk_groups import opening_uploads
from outrider.monitor.engine.version_launch import launch_of
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sources import loadable_source


def version_predictors(
    settings: Settings, connection: Connection, model: str, *versions: str
) -> tuple[Predictor, ...]:
    """Predictors of registered versions of a model.

    An upload is opened only by a confined engine; versions beside it answer from engines too, so that
    times compare. ConfigError where one cannot be loaded.
    """
    opening = opening_uploads(connection)
    if opening.isdisjoint((model, version) for version in versions):
        return tuple(_loaded(settings, models.get(connection, model, version)) for version in versions)
    made: list[SingleVersion] = []
    for version in versions:
        found = models.get(connection, model, version)
        made.append(
            single_version(
                settings, found, opens_upload=(model, version) in opening, beside=made[0] if made else None
            )
        )
    return tuple(one.loaded() for one in made)


def single_version(
    settings: Settings, found: models.Model, *, opens_upload: bool, beside: SingleVersion | None = None
) -> SingleVersion:
    """Registered version, loading in an engine of its own; ``beside`` bounds an upload's memory."""
    source = loadable_source(settings, found)
    objects = LocalObjects(settings.data_folder / "objects")
    weights = None if found.weights is None else objects.path(found.weights)
    shadow, is_bounded = settings.models[found.model].shadow, opens_upload and found.status != "champion"

    def bound() -> int | None:
        peak = None if beside is None else beside.peak_bytes()
        return bound_bytes(shadow.memory_mb, peak) if is_bounded else None

    launch = launch_of(settings, found.model, source, weights, opens_upload=opens_upload)
    return SingleVersion(
        (found.model, found.version),
        Making(source, weights),
        replace(launch, batch_rows=launch.batch_rows or ROWS),  # it answers once: measuring does not pay
        deadline_s=shadow.deadline_s,
        bound=bound,
    )


def load_predictor(settings: Settings, source: Source, weights: Weights | None) -> Predictor:
    """Predictor of one version in this process, with torch only where needed; ConfigError where it
    cannot be loaded."""
    return as_predictor(
        load_model(source, folder=settings.base, weights=weights, device=settings.worker.device)
    )


def _loaded(settings: Settings, found: models.Model) -> Predictor:
    objects = LocalObjects(settings.data_folder / "objects")
    weights = None if found.weights is None else objects.get(found.weights)
    return load_predictor(settings, loadable_source(settings, found), weights)
