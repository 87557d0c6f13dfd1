"""Tables of ``state.db`` (Alembic).

Applied once, by the supervisor, before any process opens it.
"""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Engine

HEAD = "265b9b63aa1f8b0a"
"""Digest of the tables, which ``state.db`` carries: of another layout it is refused, not changed."""
FOLDER = Path(__file__).parent
SQLITE = "sqlite:///"


def is_current(url: str) -> bool:
    """True where the database has this layout; False without one.

    Found out with SQLite alone: neither SQLAlchemy nor Alembic is loaded.

    Raises
    ------
    ConfigError
        If another layout wrote it.
    """
    path = Path(url.removeprefix(SQLITE))
    if not url.startswith(SQLITE) or not path.is_file():
        return False
    connection = sqlite3.connect(path)
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.Error:
        return False
    finally:
        connection.close()
    if found != [(HEAD,)]:
        raise ConfigError(
            f"{path} has tables of another layout, which no release wrote: name an empty storage.folder, or "
            f"move {path.parent} away"
        )
    return True


def upgrade(engine: "Engine") -> None:
    """Make the tables in one transaction. Nothing changes if that fails."""
    from alembic import command
    from alembic.config import Config

    from outrider.dataops.state.database import write

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    with write(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)
