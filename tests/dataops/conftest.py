"""A migrated database and an object store in a temporary folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    migrations.upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "objects")
