"""Shared trunk facts for ``outrider doctor``.

Weights that versions have in common with their base.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ConfigError

if TYPE_CHECKING:
    from outrider.dataops.models.registry import Model
    from outrider.monitor.settings.config import Settings

IN_USE = ("champion", "challenger")


def trunk_facts(path: Path) -> dict[str, str]:
    """Line of facts per champion and challenger with a base version.

    Weights are compared by the digest of every tensor, as they lie on disk; nothing is loaded.
    """
    from sqlalchemy.exc import OperationalError

    from outrider.dataops.models import registry as models
    from outrider.dataops.state.database import open_database
    from outrider.monitor.settings.config import load_settings

    try:
        settings = load_settings(path)
    except ConfigError:
        return {}  # said with the data
    if not (settings.data_folder / "state.db").exists():
        return {}
    engine = open_database(settings.database_url)
    try:
        with engine.connect() as connection:
            return dict(_facts(settings, models.all_versions(connection)))
    except OperationalError:
        return {}  # of an earlier release, which is said with the latency
    finally:
        engine.dispose()


def _facts(settings: "Settings", versions: "list[Model]") -> Iterator[tuple[str, str]]:
    from outrider.dataops.model_kinds.shares import shared_bytes
    from outrider.dataops.model_kinds.source import Source

    known = {found.id: found for found in versions}
    for found in versions:
        base = Source.from_json(found.source).adapted_from if found.source else None
        if found.status not in IN_USE or base is None:
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
    """Weights of a version, kept or in its folder; None where it has none here."""
    from outrider.dataops.model_kinds.source import Source

    if found.weights is not None:
        path = settings.data_folder / "objects" / found.weights[:2] / found.weights
    elif found.source is not None and (source := Source.from_json(found.source)).kind == "hf":
        path = settings.path(source.reference)
    else:
        return None
    return path if path.exists() else None
