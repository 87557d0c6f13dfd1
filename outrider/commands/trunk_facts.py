"""Facts for ``outrider doctor``: weights that versions share with their bases."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ConfigError

from .stored_state import read_state

if TYPE_CHECKING:
    from outrider.dataops.models.registry import Model
    from outrider.monitor.settings.config import Settings


def trunk_facts(path: Path) -> dict[str, str]:
    """Facts per version with a base. Weights are compared by tensor digests on disk, without loading."""
    from outrider.dataops.models import registry as models

    return read_state(
        path,
        lambda settings, connection: dict(_facts(settings, models.all_versions(connection))),
        other={},  # reported with the latency
    )


def _facts(settings: "Settings", versions: "list[Model]") -> Iterator[tuple[str, str]]:
    from outrider.dataops.model_kinds.shares import shared_bytes
    from outrider.dataops.model_kinds.source import Source
    from outrider.dataops.models.registry import IN_SERVICE

    known = {found.id: found for found in versions}
    for found in versions:
        base = Source.from_json(found.source).adapted_from
        if found.status not in IN_SERVICE or base is None:
            continue
        own, others = _weights(settings, found), _weights(settings, known[base]) if base in known else None
        if own is None or others is None:
            continue
        try:
            shared, whole = shared_bytes(own, others)
        except ConfigError as error:
            yield found.id, str(error)
        else:
            yield found.id, f"{shared:,} of {whole:,} bytes of weights are those of {base}"


def _weights(settings: "Settings", found: "Model") -> Path | None:
    """Weights of a version, stored or in its folder; None if they are elsewhere."""
    from outrider.monitor.settings.sources import loadable_source

    if found.weights is not None:
        path = settings.data_folder / "objects" / found.weights[:2] / found.weights
    elif (source := loadable_source(settings, found)).kind == "hf":
        path = settings.path(source.reference)
    else:
        return None
    return path if path.exists() else None
