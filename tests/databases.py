"""Databases of the newest schema: Alembic makes one in each process of pytest, everyone else gets a copy."""

import functools
import tempfile
from pathlib import Path

from sqlalchemy import Engine

from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database
from outrider.monitor.settings.config import Settings


@functools.cache
def migrated_bytes() -> bytes:
    """Content of a ``state.db`` as migrating an empty one makes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        engine = open_database(f"sqlite:///{path}")
        migrations.upgrade(engine)
        engine.dispose()  # the last connection: its log goes into the file
        return path.read_bytes()


def place_database(path: Path) -> None:
    """Write a migrated database where there is none."""
    if not path.exists():
        path.write_bytes(migrated_bytes())


def migrated(path: Path) -> Engine:
    """Open a migrated database, made where there is none."""
    place_database(path)
    return open_database(f"sqlite:///{path}")


def migrated_for(settings: Settings) -> Engine:
    """Open the migrated database of a configuration, made with its folder where there is none."""
    settings.data_folder.mkdir(parents=True, exist_ok=True)
    return migrated(settings.data_folder / "state.db")
