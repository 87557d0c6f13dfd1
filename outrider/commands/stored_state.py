"""Database of a data folder, read beside a service or without."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from outrider.monitor.settings.config import Settings


def read_state(
    config: Path, read: "Callable[[Settings, Connection], dict[str, str]]", *, other: dict[str, str]
) -> dict[str, str]:
    """Facts that ``read`` finds; none without a configuration or a database.

    Parameters
    ----------
    other
        Facts where another layout wrote the database.
    """
    from outrider.dataops.state.database import open_database
    from outrider.dataops.state.migrations import is_current
    from outrider.monitor.settings.config import load_settings

    try:
        settings = load_settings(config)
    except ConfigError:
        return {}  # said with the data
    try:
        if not is_current(settings.database_url):
            return {}
    except ConfigError:
        return other
    engine = open_database(settings.database_url)
    try:
        with engine.connect() as connection:
            return read(settings, connection)
    finally:
        engine.dispose()
