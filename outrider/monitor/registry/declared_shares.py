"""Check of configured ``shares`` against the named weights."""

from collections.abc import Callable, Iterator
from pathlib import Path

from outrider.dataops.model_kinds.shares import check_shares, tensor_digests
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import SourceSettings
from outrider.monitor.settings.sources import challenger_source, source_of

Weights = Path | bytes
Stored = Callable[[tuple[str, str]], Weights | None]


def refuse_wrong_shares(
    settings: Settings, model: str, version: str, source: Source, stored: Stored = lambda _: None
) -> None:
    """Refuse a part wrongly declared to be the base's, by stored or configured weights; ConfigError
    names the tensor. Without weights on this machine nothing is refused."""
    if not source.shares or source.adapted_from is None:
        return
    base_model, _, base_version = source.adapted_from.rpartition("@")
    own = stored((model, version)) or configured_weights(settings, model, version)
    base = stored((base_model, base_version)) or configured_weights(settings, base_model, base_version)
    if own is not None and base is not None:
        check_shares(
            source.shares,
            tensor_digests(own),
            tensor_digests(base),
            name=f"{model}@{version}",
            base_name=source.adapted_from,
        )


def wrong_shares(settings: Settings) -> Iterator[str]:
    for name, own in settings.models.items():
        sources = [(own.version, source_of(settings, name))]
        known = [v for v, given in own.challengers.items() if given.kind or own.kind]
        sources += [(version, challenger_source(settings, name, version)) for version in known]
        for version, source in sources:
            try:
                if source is not None:
                    refuse_wrong_shares(settings, name, version, source)
            except ConfigError as error:
                yield str(error)


def configured_weights(settings: Settings, model: str, version: str) -> Path | None:
    own = settings.models.get(model)
    if own is None:
        return None
    section: SourceSettings | None = own if version == own.version else own.challengers.get(version)
    named = None if section is None else section.weights or section.folder
    path = None if named is None else settings.path(named)
    return path if path is not None and path.exists() else None
