"""The matrix as it is read from the database."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert

from outrider.dataops.state.database import write
from outrider.dataops.state.tables import LiveRate, table_of
from outrider.monitor.views.suites.matrix import read_matrix
from tests.databases import migrated


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = migrated(tmp_path / "state.db")
    yield engine
    engine.dispose()


def test_versions_that_only_live_tests_know_are_ordered_by_their_last_answer(engine: Engine) -> None:
    with write(engine) as connection:
        for version, at_us in (("9", 1), ("10", 3), ("11", 2)):
            row = {"model": "m", "test": "t", "revision": "a", "version": version, "updated_us": at_us}
            rest = {
                "asked": 1,
                "failed": 0,
                "rate": 0.0,
                "low": 0.0,
                "high": 1.0,
                "tolerance": 0.1,
                "state": {},
            }
            connection.execute(insert(table_of(LiveRate)).values(row | rest))
    columns = read_matrix(engine, "m").columns
    assert [(column.version, column.at_us) for column in columns] == [("10", 3), ("11", 2), ("9", 1)]
