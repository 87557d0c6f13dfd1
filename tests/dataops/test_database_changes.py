"""Commits are noticed without a query, whoever made them."""

import sqlite3
import threading
import time
from pathlib import Path

from outrider.dataops.state.database import DatabaseChanges, open_database, write
from tests.databases import migrated
from tests.soak import PATIENCE_S


def test_commits_of_others_are_noticed_once(tmp_path: Path) -> None:
    engine = migrated(tmp_path / "state.db")
    changes = DatabaseChanges.of(engine)
    assert not changes.has_changed()
    with write(engine) as connection:
        connection.exec_driver_sql("INSERT INTO meta VALUES ('a', '1')")
        assert not changes.has_changed(), "not before it is committed"
    assert [changes.has_changed(), changes.has_changed()] == [True, False]
    with sqlite3.connect(tmp_path / "state.db") as other:
        other.execute("UPDATE meta SET value = '2' WHERE key = 'a'")
    assert changes.has_changed()
    changes.close()
    engine.dispose()


def test_a_wait_ends_with_a_commit_or_the_stop_or_its_time(tmp_path: Path) -> None:
    engine = migrated(tmp_path / "state.db")
    changes, stop = DatabaseChanges.of(engine), threading.Event()

    def change() -> None:
        with write(engine) as connection:
            connection.exec_driver_sql("INSERT INTO meta VALUES ('a', '1')")

    began = time.monotonic()
    threading.Timer(0.1, change).start()
    changes.wait(stop, every_s=0.01, at_most_s=2 * PATIENCE_S)
    threading.Timer(0.1, stop.set).start()
    changes.wait(stop, every_s=0.01, at_most_s=2 * PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    changes.wait(threading.Event(), every_s=0.01, at_most_s=0.05)
    changes.close()
    engine.dispose()


def test_what_is_no_file_has_always_changed(tmp_path: Path) -> None:
    changes = DatabaseChanges(None)
    assert [changes.has_changed(), changes.has_changed()] == [True, True]
    changes.close()
    engine = open_database(f"sqlite:///{tmp_path / 'new.db'}")
    assert not DatabaseChanges.of(engine).has_changed()
    engine.dispose()
