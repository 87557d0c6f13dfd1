"""Dataset versions by name, and their rows, for commands."""

from typing import TYPE_CHECKING, Any

from outrider.errors import ConfigError

from .api import Api

if TYPE_CHECKING:
    from outrider.assertions import Batch


def is_digest(text: str) -> bool:
    """True for a SHA-256 in hex."""
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def version_of(api: Api, name: str) -> dict[str, Any]:
    """Dataset version that ``dataset`` or ``dataset@version`` names."""
    dataset, _, number = name.partition("@")
    if number and not number.isdigit() and number != "newest" and not is_digest(number):
        raise ConfigError(f"{name!r}: dataset@version expected, for example churn-flagged@3, or a digest")
    found: dict[str, Any] = api.get(f"/v1/datasets/{dataset}/versions/{number or 'newest'}")
    return found


def rows_of(api: Api, version: dict[str, Any], part: str | None = None) -> "Batch":
    """Rows of a dataset version, or of one part."""
    from outrider.assertions import Batch
    from outrider.commands.tables import from_ipc

    path = f"/v1/datasets/{version['dataset']}/versions/{version['number']}/rows"
    return Batch.from_arrow(from_ipc(api.get_bytes(path, part=part)))
