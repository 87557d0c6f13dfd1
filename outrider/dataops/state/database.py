"""Database ``state.db``: SQLite in WAL mode, durable commits, one writer."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text

from outrider.errors import ConfigError

BUSY_TIMEOUT_MS = 5_000
REST_S = 5.0
"""How often a process at rest looks although nothing was committed."""
_IMMEDIATE = "outrider_immediate"


def now_us() -> int:
    """Microseconds since the epoch, UTC: the unit of every ``_us`` column."""
    return time.time_ns() // 1_000


def open_database(
    url: str, *, journal_uuid: str | None = None, journal_last_seq: Callable[[], int] | None = None
) -> Engine:
    """Engine for a migrated ``state.db`` (or another database by its SQLAlchemy URL).

    Parameters
    ----------
    url
        For example ``sqlite:////data/state.db``.
    journal_uuid
        Identity of the journal in use. The first one given is remembered; without it nothing is checked.
    journal_last_seq
        Reads the last sequence number of that journal, after the cursors; none may lie beyond it.

    Raises
    ------
    ConfigError
        If the database belongs to another journal, or has seen blocks that the journal does not have.
    """
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
    if journal_uuid is not None:
        try:
            _check_journal(engine, journal_uuid, journal_last_seq)
        except BaseException:
            engine.dispose()
            raise
    return engine


@contextmanager
def write(engine: Engine) -> Iterator[Connection]:
    """Transaction write-locked from its start; commit, or rollback on error.

    A deferred transaction that reads first and then writes fails with "database is locked" when another
    writer commits in between, whatever the busy timeout; taking the lock first only waits.
    """
    with engine.connect().execution_options(**{_IMMEDIATE: True}) as connection, connection.begin():
        yield connection


class DatabaseChanges:
    """Test for commits to a SQLite file.

    It takes microseconds, where a query takes hundreds.

    Parameters
    ----------
    path
        Of ``state.db`` or ``journal.db``; None for another database, which has always changed.
    """

    def __init__(self, path: Path | str | None) -> None:
        self._db = None if path is None else sqlite3.connect(path, check_same_thread=False)
        self._seen = self._version()

    @classmethod
    def of(cls, engine: Engine) -> "DatabaseChanges":
        """Test for commits to an engine's database."""
        return cls(engine.url.database if engine.dialect.name == "sqlite" else None)

    def has_changed(self) -> bool:
        """Test for commits of other connections since the last call."""
        before, self._seen = self._seen, self._version()
        return self._db is None or self._seen != before

    def wait(self, stop: threading.Event, *, every_s: float, at_most_s: float) -> None:
        """Wait for a commit or ``stop``, looked for every so often."""
        until = time.monotonic() + at_most_s
        while not stop.wait(every_s) and not self.has_changed() and time.monotonic() < until:
            pass

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()

    def _version(self) -> int:
        return 0 if self._db is None else int(self._db.execute("PRAGMA data_version").fetchone()[0])


def _configure(raw: Any, _record: object) -> None:
    raw.isolation_level = None  # transactions are begun by _begin, not guessed by the driver
    cursor = raw.cursor()
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get(_IMMEDIATE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def _check_journal(engine: Engine, uuid: str, last_seq: Callable[[], int] | None) -> None:
    if not inspect(engine).has_table("meta"):
        raise ConfigError(
            f"{engine.url} has no tables yet; run `python -m outrider.monitor.migrate --config outrider.toml`"
        )
    with write(engine) as connection:
        known = connection.scalar(text("SELECT value FROM meta WHERE key = 'journal_uuid'"))
        if known is None:
            connection.execute(
                text("INSERT INTO meta (key, value) VALUES ('journal_uuid', :uuid)"), {"uuid": uuid}
            )
        elif known != uuid:
            raise ConfigError(
                f"{engine.url} belongs to journal {known}, but the journal here is {uuid}; restore both "
                "from one backup, or start both from scratch"
            )
        if last_seq is None:
            return
        furthest = connection.execute(
            text("SELECT model, slot, seq FROM cursor ORDER BY seq DESC LIMIT 1")
        ).first()
        # Read in this order: a service that runs may append and judge a block in between.
        if furthest is not None and furthest.seq > (last := last_seq()):
            raise ConfigError(
                f"{engine.url} has judged {furthest.model}/{furthest.slot} up to block {furthest.seq}, but "
                f"the journal ends at {last}: blocks are missing; restore the journal from a backup"
            )
