"""Bytes of versions' weights."""

import logging
from collections.abc import Sequence

from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.models.registry import Model
from outrider.errors import OutriderError
from outrider.monitor.engine.trunk_groups import opening_uploads
from outrider.monitor.registry.predictors import single_version
from outrider.monitor.settings.sources import loadable_source

from .context import JobContext

log = logging.getLogger(__name__)


def bytes_share(context: JobContext, model: str, version: str, champion: str) -> float | None:
    one, other = weight_bytes(context, model, (version, champion))
    return one / other if one is not None and other else None


def weight_bytes(context: JobContext, model: str, versions: Sequence[str]) -> list[int | None]:
    """Bytes of versions' weights, None where unknown: files where comparable, else parameters and
    buffers once loaded."""
    try:
        with context.engine.connect() as connection:
            found = [models.get(connection, model, each) for each in versions]
        sources = [Source.from_json(each.source) for each in found]
        if any(source.recipe or source.kind == "hf" for source in sources):
            return [_held(context, each) for each in found]
        return [None if each.weights is None else context.objects.size(each.weights) for each in found]
    except (OutriderError, OSError, RuntimeError) as error:
        log.warning("bytes of %s's versions %s are not known: %s", model, ", ".join(versions), error)
        return [None] * len(versions)


def _held(context: JobContext, found: Model) -> int | None:
    source = loadable_source(context.settings, found)
    if source.kind not in ("torch", "hf"):
        return None
    from outrider.dataops.compression.timing import held_bytes
    from outrider.dataops.model_kinds.loading import is_runner, load_model

    with context.engine.connect() as connection:
        opens_upload = (found.model, found.version) in opening_uploads(connection)
    if opens_upload:
        settings = context.settings
        on_cpu = settings.model_copy(update={"worker": settings.worker.model_copy(update={"device": "cpu"})})
        return single_version(on_cpu, found, opens_upload=True).loaded().held_bytes()
    weights = None if found.weights is None else context.objects.get(found.weights)
    made = load_model(source, folder=context.settings.base, weights=weights, device="cpu")
    return held_bytes(made.module) if is_runner(made) else None
