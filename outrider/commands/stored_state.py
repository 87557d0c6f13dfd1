"""Database of a data folder, readable with or without a running service."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from outrider.monitor.settings.config import Settings


@contextmanager
def opened_state(settings: "Settings") -> "Iterator[Engine | None]":
    """Database of a configuration, None if missing. Raises ConfigError for another schema version."""
    from outrider.dataops.state.database import open_database
    from outrider.dataops.state.migrations import is_current

    if not is_current(settings.database_url):
        yield None
        return
    engine = open_database(settings.database_url)
    try:
        yield engine
    finally:
        engine.dispose()


def read_state(
    config: Path, read: "Callable[[Settings, Connection], dict[str, str]]", *, other: dict[str, str]
) -> dict[str, str]:
    """Facts from ``read``; empty without a database. ``other`` for another schema version."""
    from outrider.monitor.settings.config import load_settings

    try:
        settings = load_settings(config)
    except ConfigError:
        return {}  # reported with the data
    try:
        with opened_state(settings) as engine:
            if engine is None:
                return {}
            with engine.connect() as connection:
                return read(settings, connection)
    except ConfigError:
        return other
