"""Sources of registered versions."""

from outrider.dataops.model_kinds.source import Source
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sources import source_of

FUNCTION = Source("function", "model.py:predict").to_json()


def section_source(settings: Settings, model: str) -> str:
    """Source of a model's section."""
    source = source_of(settings, model)
    assert source is not None
    return source.to_json()
