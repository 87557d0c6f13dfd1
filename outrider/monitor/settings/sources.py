"""Sources of model versions (kind and location), from the configuration."""

from dataclasses import replace
from pathlib import Path

from outrider.dataops.model_kinds.content import opened_source
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models.registry import Model
from outrider.dataops.payloads.folders import FOLDER
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.training.methods import why_untrained
from outrider.errors import ConfigError

from .config import Settings
from .model_sections import ChallengerSettings, RetrainSettings


def source_of(settings: Settings, name: str) -> Source | None:
    """Configured source of a model; None if it has none."""
    own = settings.models[name]
    kind, reference = own.kind, own.reference
    if kind is None or reference is None:
        return None
    return Source(
        kind,
        reference,
        task=own.task,
        inputs=own.inputs,
        classes=own.classes,
        adapter=own.adapter,
        adapted_from=_full(settings, own.adapted_from, name),
        shares=own.shares,
        recipe=own.recipe,
        options=own.options,
    )


def challenger_source(settings: Settings, name: str, version: str) -> Source:
    """Configured source of a challenger: its own, or the model's with other weights; raises
    ConfigError without either."""
    own = settings.models[name]
    given: ChallengerSettings = own.challengers[version]
    kind, reference = given.kind or own.kind, given.reference or own.reference
    if kind is None or reference is None:
        raise ConfigError(
            f"models.{name}.challengers.{version}: architecture, folder, onnx, predictor or endpoint "
            "expected; the model has none that it could take over"
        )
    is_own = given.kind is not None
    base = given.adapted_from if is_own else given.adapted_from or f"{name}@{own.version}"
    return Source(
        kind,
        reference,
        task=own.task,
        inputs=own.inputs if given.inputs is None else given.inputs,
        classes=own.classes if given.classes is None else given.classes,
        adapter=given.adapter,
        adapted_from=_full(settings, base, name),
        shares=given.shares,
        recipe=given.recipe,
        options=given.options if is_own else own.options | given.options,
    )


def challenger_weights(settings: Settings, name: str, version: str) -> Path | None:
    """Weights file of a challenger; None if it uses the weights of its base."""
    given = settings.models[name].challengers[version].weights
    return None if given is None else settings.path(given)


def loadable_source(settings: Settings, found: Model) -> Source:
    """Source of a registered version, ready to load; raises NotFound or CorruptObject if a stored file
    is lost or damaged."""
    return opened(settings, found.model, Source.from_json(found.source))


def opened(settings: Settings, model: str, source: Source) -> Source:
    """Source ready to load: with stored folders on this disk, or the options of an uploaded endpoint
    (without them if it is not allowed, so that loading raises)."""
    if source.is_uploaded and source.kind == "endpoint":
        own = settings.models.get(model)
        options = None if own is None else own.uploads.source_options(source.reference)
        return source if options is None else replace(source, options=options)
    if not source.kept:
        return source
    data = settings.data_folder
    return opened_source(source, LocalObjects(data / "objects"), data / FOLDER)


def why_trained_elsewhere(source: Source | None, options: RetrainSettings) -> str:
    """Reason why this service cannot train a version; empty if it can."""
    return why_untrained(source, options.model_dump(include={"method", "trainer"}))


def _full(settings: Settings, reference: str | None, model: str) -> str | None:
    """``MODEL@VERSION`` of a reference, which may also be a model, or a version of ``model``."""
    if reference is None or "@" in reference:
        return reference
    if reference in settings.models:
        return f"{reference}@{settings.models[reference].version}"
    return f"{model}@{reference}"
