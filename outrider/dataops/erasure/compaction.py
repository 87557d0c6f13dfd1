"""SQLite files written anew, without freed pages and without a log."""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from outrider.dataops.whole_file import sync
from outrider.errors import JournalFull, OutriderError

PART = ".compacted"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LEAST_BYTES = 131_072


def check_room(paths: list[Path]) -> None:
    largest = max((_size(path) for path in paths), default=0)
    for path in paths:
        free = shutil.disk_usage(path.parent).free
        if free < largest:
            raise OutriderError(
                f"{path.parent}: {largest} bytes of free disk expected, to write a database anew without its "
                f"freed pages, got {free}; nothing is erased before there is room"
            )


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error, SQLAlchemyError, JournalFull) as error:
        if not _is_full(error, folder):
            raise
        raise OutriderError(
            f"{folder}: the disk is full; what has gone is gone, the rest is noted: free some room, then the "
            "next start of the service, or the next erasure, goes on"
        ) from error


def _is_full(error: Exception, folder: Path) -> bool:
    if isinstance(error, JournalFull) or getattr(error, "errno", None) in _FULL:
        return True
    if "disk is full" in str(error):
        return True
    # What SQLite says where its index of the log finds no room.
    return "disk I/O error" in str(error) and shutil.disk_usage(folder).free < _LEAST_BYTES


def compact(path: Path) -> None:
    """Replace a SQLite file, open in no other process, by a copy without freed pages and log; killed
    at any moment, one whole file is there."""
    part = path.with_name(path.name + PART)
    try:
        _write(path, part)
    except BaseException:
        _remove(part)
        raise
    for log in _logs(path):
        log.unlink(missing_ok=True)
    os.replace(part, path)
    sync(path.parent)


def _write(path: Path, part: Path) -> None:
    _remove(part)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        mode = str(db.execute("PRAGMA journal_mode").fetchone()[0])
        busy = int(db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        if busy:
            raise OutriderError(f"{path} is in use by another process: stop it, then erase again")
        db.execute("VACUUM INTO ?", (str(part),))
    with closing(sqlite3.connect(part, isolation_level=None)) as made:
        made.execute(f"PRAGMA journal_mode = {mode}")
    shutil.copymode(path, part)
    sync(part)


def _remove(path: Path) -> None:
    for left in (path, *_logs(path)):
        left.unlink(missing_ok=True)


def _logs(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}-{end}") for end in ("wal", "shm", "journal")]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
