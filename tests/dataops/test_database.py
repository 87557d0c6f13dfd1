import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text

from outrider.dataops.state.database import open_database, write
from outrider.errors import ConfigError


def test_commits_are_durable_and_readers_are_not_blocked(engine: Engine) -> None:
    with engine.connect() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
        assert connection.scalar(text("PRAGMA synchronous")) == 2  # FULL
        assert connection.scalar(text("PRAGMA foreign_keys")) == 1


def test_an_error_inside_write_leaves_nothing_behind(engine: Engine) -> None:
    def fail() -> None:
        with write(engine) as connection:
            connection.execute(text("INSERT INTO meta VALUES ('a', 'b')"))
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError):
        fail()
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM meta")) == 0


def test_writers_that_read_first_wait_for_each_other(engine: Engine) -> None:
    """Each adds one to a number that it read in the same transaction: none may be lost or refused."""
    with write(engine) as connection:
        connection.execute(text("INSERT INTO counter VALUES ('m', 's', 'n', 0)"))

    def add() -> None:
        for _ in range(10):
            with write(engine) as connection:
                value = connection.scalar(text("SELECT value FROM counter")) or 0
                connection.execute(text("UPDATE counter SET value = :value"), {"value": value + 1})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT value FROM counter")) == 40


def test_another_journal_is_refused(engine: Engine) -> None:
    url = str(engine.url)
    open_database(url, journal_uuid="one").dispose()
    open_database(url, journal_uuid="one").dispose()
    with pytest.raises(ConfigError, match="belongs to journal one, but the journal here is two"):
        open_database(url, journal_uuid="two")


def test_a_cursor_beyond_the_end_of_the_journal_is_refused(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(text("INSERT INTO cursor VALUES ('m', 'champion', 7)"))
    open_database(str(engine.url), journal_uuid="one", journal_last_seq=lambda: 7).dispose()
    with pytest.raises(ConfigError, match="up to block 7, but the journal ends at 6"):
        open_database(str(engine.url), journal_uuid="one", journal_last_seq=lambda: 6)


def test_journal_is_read_after_the_cursors_of_a_service_that_runs(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(text("INSERT INTO cursor VALUES ('m', 'champion', 7)"))
    read = []

    def last_seq() -> int:
        read.append("journal")
        return 7

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if "FROM cursor" in statement:
            read.append("cursors")

    event.listen(Engine, "before_cursor_execute", note)
    try:
        open_database(str(engine.url), journal_uuid="one", journal_last_seq=last_seq).dispose()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert read == ["cursors", "journal"]


def test_a_database_without_tables_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"outrider\.monitor\.migrate"):
        open_database(f"sqlite:///{tmp_path / 'empty.db'}", journal_uuid="one")
