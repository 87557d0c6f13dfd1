from collections.abc import Mapping

from sqlalchemy import Connection

from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.uploads.store import uploaded_versions

from .asks import Name


def trunk_of(name: Name, sources: Mapping[Name, Source]) -> Name:
    """Root of a version's adaptations, or the unadapted version itself.

    The root alone decides, so a version that comes later never moves one that is loaded.

    Parameters
    ----------
    sources
        Of all registered versions; the base may be one of another model, and need not be loaded.

    Examples
    --------
    >>> of = lambda base: Source("torch", "m.py:build", adapted_from=base)
    >>> sources = {("m", "1"): of(None), ("m", "2"): of("m@1"), ("m", "3"): of("m@2"), ("n", "1"): of("m@1")}
    >>> [trunk_of(name, sources) for name in sources]
    [('m', '1'), ('m', '1'), ('m', '1'), ('m', '1')]
    """
    seen = {name}
    while (source := sources.get(name)) is not None and source.adapted_from:
        model, _, version = source.adapted_from.rpartition("@")
        base = (model, version)
        if base in seen:
            return min(seen)  # a ring: all of them agree on one
        seen.add(base)
        name = base
    return name


def opening_uploads(connection: Connection) -> set[Name]:
    """Uploaded versions, and those made from an uploaded model folder."""
    uploaded, sources = uploaded_versions(connection), stored_sources(connection)
    folders = {name for name, source in sources.items() if source.kind == "hf"}
    return uploaded | {name for name in folders if trunk_of(name, sources) in uploaded}


def stored_sources(connection: Connection) -> dict[Name, Source]:
    found = models.all_versions(connection)
    return {(one.model, one.version): Source.from_json(one.source) for one in found}
