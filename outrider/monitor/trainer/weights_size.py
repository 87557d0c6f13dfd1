"""Bytes of a version's weights, beside another's."""

import logging

from outrider.dataops.models import registry as models
from outrider.dataops.models.registry import Model
from outrider.errors import OutriderError
from outrider.monitor.settings.sources import stored_source

from .context import JobContext

log = logging.getLogger(__name__)


def bytes_share(context: JobContext, model: str, version: str, champion: str) -> float | None:
    """Ratio of a version's weight bytes to the champion's, or None.

    Files are compared; where a recipe changes weights once they are loaded, or they lie in a model folder,
    both are loaded and what their parameters and buffers take is compared.
    """
    try:
        with context.engine.connect() as connection:
            both = [models.get(connection, model, each) for each in (version, champion)]
        sources = [stored_source(context.settings, each) for each in both]
        if any(source is not None and (source.recipe or source.kind == "hf") for source in sources):
            sizes = [_held(context, each) for each in both]
        else:
            sizes = [None if each.weights is None else context.objects.size(each.weights) for each in both]
    except (OutriderError, OSError, RuntimeError) as error:
        log.warning("bytes of %s@%s are not known: %s", model, version, error)
        return None
    one, other = sizes
    return one / other if one is not None and other else None


def _held(context: JobContext, found: Model) -> int | None:
    """Parameters and buffers as they are held in memory; None for what is no module."""
    source = stored_source(context.settings, found)
    if source is None or source.kind not in ("torch", "hf"):
        return None
    from outrider.dataops.compression.timing import held_bytes
    from outrider.dataops.model_kinds.loading import is_runner, load_model

    weights = None if found.weights is None else context.objects.get(found.weights)
    made = load_model(source, folder=context.settings.base, weights=weights, device="cpu")
    return held_bytes(made.module) if is_runner(made) else None
