"""Cache of dataset versions as Arrow files, rebuilt when lost.

A name is a digest of version and part; readers keep a deleted file mapped.
"""

import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FOLDER = "arrow"
"""In the data folder, next to ``objects``."""
SUFFIX = ".arrow"
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Last bytes of a whole Arrow IPC stream."""


@dataclass(frozen=True, slots=True)
class CachedRows:
    dataset: str
    number: int
    digest: str
    part: str | None = None
    columns: Sequence[str] | None = None
    """None: all."""

    @property
    def name(self) -> str:
        columns = None if self.columns is None else list(self.columns)
        key = json.dumps([self.dataset, self.number, self.digest, self.part, columns])
        return hashlib.sha256(key.encode()).hexdigest()[:40] + SUFFIX


def cached(folder: Path, name: str, write: Callable[[BinaryIO], None]) -> Path:
    """File of some rows; of several processes one writes."""
    path = folder / name
    if not _is_whole(path):
        folder.mkdir(parents=True, exist_ok=True)
        with _one_writer(path):
            if not _is_whole(path):
                _write(path, write)
    os.utime(path)  # what is not used for long goes first
    return path


def unused(folder: Path, *, older_than_s: float) -> list[Path]:
    before = time.time() - older_than_s
    found = []
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        try:
            if path.stat().st_mtime < before:
                found.append(path)
        except FileNotFoundError:
            continue  # dropped by another one
    return found


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(-len(_END), os.SEEK_END)
            return file.read() == _END
    except OSError:
        return False


def _write(path: Path, write: Callable[[BinaryIO], None]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if not _is_whole(Path(temporary)):
            raise OSError(f"{path}: the rows ended too early; try again")
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def _one_writer(path: Path) -> Iterator[None]:
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
