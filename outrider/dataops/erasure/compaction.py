"""SQLite files written anew, without freed pages and without a log."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from outrider.errors import OutriderError

PART = ".compacted"


def check_room(paths: list[Path]) -> None:
    """Raise OutriderError where the largest file has no room beside itself."""
    largest = max((_size(path) for path in paths), default=0)
    for path in paths:
        free = shutil.disk_usage(path.parent).free
        if free < largest:
            raise OutriderError(
                f"{path.parent}: {largest} bytes of free disk expected, to write a database anew without its "
                f"freed pages, got {free}; nothing is erased before there is room"
            )


def compact(path: Path) -> None:
    """Replace a SQLite file by a copy without freed pages and log.

    Nobody else may have it open. Killed at any moment, the old file or the new one stands there.
    """
    part = path.with_name(path.name + PART)
    for left in (part, *_logs(part)):
        left.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        mode = str(db.execute("PRAGMA journal_mode").fetchone()[0])
        busy = int(db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        if busy:
            raise OutriderError(f"{path} is in use by another process: stop it, then erase again")
        db.execute("VACUUM INTO ?", (str(part),))
    with closing(sqlite3.connect(part, isolation_level=None)) as made:
        made.execute(f"PRAGMA journal_mode = {mode}")
    for log in _logs(path):
        log.unlink(missing_ok=True)
    shutil.copymode(path, part)
    _sync(part)
    os.replace(part, path)
    _sync(path.parent)


def _logs(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}-{end}") for end in ("wal", "shm", "journal")]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
