"""Schema versions of ``state.db`` (Alembic).

Applied once, by the supervisor, before any process opens it.
"""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine

HEAD = "0038"
FOLDER = Path(__file__).parent
SQLITE = "sqlite:///"


def revisions() -> list[str]:
    """Every schema version that this release knows, oldest first."""
    return sorted(path.name.partition("_")[0] for path in (FOLDER / "versions").glob("[0-9]*.py"))


def is_current(url: str) -> bool:
    """True where the database is at :data:`HEAD`; False when unknown.

    Found out with SQLite alone: neither SQLAlchemy nor Alembic is loaded.
    """
    path = Path(url.removeprefix(SQLITE))
    if not url.startswith(SQLITE) or not path.is_file():
        return False
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]
    except sqlite3.Error:
        return False
    finally:
        connection.close()


def upgrade(engine: "Engine", revision: str = HEAD) -> None:
    """Bring the database to a revision in one transaction. Nothing changes if that fails."""
    from alembic import command
    from alembic.config import Config

    from outrider.dataops.state.database import write

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    with write(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
