"""Database of a data folder, read beside a service or without."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from outrider.monitor.settings.config import Settings


def read_state(
    config: Path, read: "Callable[[Settings, Connection], dict[str, str]]", *, earlier: dict[str, str]
) -> dict[str, str]:
    """Facts that ``read`` finds; none without a configuration or a database.

    Parameters
    ----------
    earlier
        Facts where the database is of an earlier release.
    """
    from sqlalchemy.exc import OperationalError

    from outrider.dataops.state.database import open_database
    from outrider.monitor.settings.config import load_settings

    try:
        settings = load_settings(config)
    except ConfigError:
        return {}  # said with the data
    if not (settings.data_folder / "state.db").exists():
        return {}
    engine = open_database(settings.database_url)
    try:
        with engine.connect() as connection:
            return read(settings, connection)
    except OperationalError:
        return earlier
    finally:
        engine.dispose()
