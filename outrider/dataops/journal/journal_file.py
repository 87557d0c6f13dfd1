"""SQLite file of the journal.

WAL mode with ``synchronous=FULL``: in simulated power cuts ``NORMAL`` loses acknowledged blocks, ``FULL``
none.
"""

import contextlib
import errno
import os
import sqlite3
import threading
import uuid as uuid_module
from collections.abc import Iterator
from pathlib import Path

from outrider.errors import JournalFull, JournalUnreadable

from . import block_rows, halves, notes

TYPE_OF_FILE = 0x4F555452  # "OUTR": SQLite's application_id, so that a foreign file is told apart
FORMAT_VERSION = 2
PAGE_BYTES = 16_384
"""Blocks of 100 kB cost half as much as with 4 or 8 KiB; a single record three pages."""
_LOG_BYTES = 16_777_216


class JournalFile:
    def __init__(self, path: Path, *, max_bytes: int | None, min_free_bytes: int, read_only: bool) -> None:
        self.path = path
        self._min_free_bytes = min_free_bytes
        self._read_only = read_only
        self.lock = threading.Lock()
        if read_only and not path.is_file():
            raise JournalUnreadable(
                f"{path} does not exist; intake makes it at its first start: is `outrider serve` running?"
            )
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.db = _connect(path, read_only=read_only)
        except sqlite3.Error as error:
            raise JournalUnreadable(f"{path} cannot be opened: {error}") from error
        try:
            self._prepare(max_bytes)
            self.uuid = self._read_uuid()
            self.schemas = block_rows.read_schemas(self.db)
        except sqlite3.DatabaseError as error:
            self.db.close()
            if is_full(error):
                raise JournalFull(f"{path} cannot be made: no room on the disk") from error
            raise JournalUnreadable(
                f"{path} is not a readable Outrider journal ({error}); restore it from a backup, or"
                " move it away to start an empty one"
            ) from error
        except JournalUnreadable:
            self.db.close()
            raise

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        with self.lock, self._full_is_journal_full(), self._transaction():
            yield

    def check_disk(self) -> None:
        free = self._disk_free()
        if free < self._min_free_bytes:
            raise JournalFull(
                f"{free} bytes free on the disk of {self.path}, storage.min_free_bytes is"
                f" {self._min_free_bytes}; free some space or move storage.folder"
            )

    def used_bytes(self) -> int:
        """Without the room of expired blocks."""
        with self.lock:
            pages, free = (self._pragma(name) for name in ("page_count", "freelist_count"))
        return (pages - free) * self._page_bytes

    def room_bytes(self) -> int:
        """Of the own bound or the free disk, the smaller."""
        with self.lock:
            used, free, most = (
                self._pragma(name) for name in ("page_count", "freelist_count", "max_page_count")
            )
        return min((most - used + free) * self._page_bytes, self._disk_free() - self._min_free_bytes)

    def close(self) -> None:
        with self.lock:
            self.db.close()

    def _pragma(self, name: str) -> int:
        return int(self.db.execute(f"PRAGMA {name}").fetchone()[0])

    def _prepare(self, max_bytes: int | None) -> None:
        found = self._pragma("application_id")
        objects = int(self.db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
        if found == 0 and objects == 0 and not self._read_only:
            self._create()
        elif found != TYPE_OF_FILE:
            raise JournalUnreadable(
                f"{self.path} is a SQLite file of another program; name another storage.folder, or move it"
                " away"
            )
        version = self._pragma("user_version")
        if version != FORMAT_VERSION:
            raise JournalUnreadable(
                f"{self.path} has journal format {version}, this release reads {FORMAT_VERSION}"
            )
        self._page_bytes = self._pragma("page_size")
        if not self._read_only:
            # FULL: fsync of the write-ahead log at every commit, before anything is acknowledged.
            self.db.execute("PRAGMA synchronous = FULL")
            self.db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // self._page_bytes}")
            self.db.execute("PRAGMA journal_size_limit = 67108864")
            if max_bytes is not None:
                self.db.execute(f"PRAGMA max_page_count = {max(1, max_bytes // self._page_bytes)}")

    def _create(self) -> None:
        self.db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            for statement in (block_rows.TABLE, *halves.TABLES, notes.TABLE, block_rows.SCHEMAS):
                self.db.execute(statement)
            self.db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self.db.execute("INSERT INTO meta VALUES ('uuid', ?)", (str(uuid_module.uuid4()),))
            # Last, in the same transaction: a half-made file is never taken for a journal.
            self.db.execute(f"PRAGMA application_id = {TYPE_OF_FILE}")
            self.db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _read_uuid(self) -> str:
        row = self.db.execute("SELECT value FROM meta WHERE key = 'uuid'").fetchone()
        if row is None:
            raise JournalUnreadable(
                f"{self.path} has lost its identity (meta.uuid); restore it from a backup"
            )
        return str(row[0])

    def _disk_free(self) -> int:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:  # SQLite itself rolls back on some errors
                self.db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _full_is_journal_full(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            raise JournalFull(
                f"{self.path} cannot grow: the disk or storage.journal_max_bytes is exhausted; it takes"
                " records again when old blocks expire or space is freed"
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise JournalFull(f"{self.path} cannot grow: {error.strerror}") from error


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    # A reader opens read-write and sets query_only: mode=ro cannot make the shared-memory file of the log
    # when it is the first to come after a crash.
    mode = "rw" if read_only else "rwc"
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)
    if read_only:
        db.execute("PRAGMA query_only = ON")
    return db


def is_full(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
