"""Progress of a request's tasks, in memory that outlives either process."""

import json
import mmap
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_SIZE = 16 * mmap.PAGESIZE
_NAMES = 4096


class InterruptedTasks(NamedTuple):
    """Tasks of a request during which the asking process ended."""

    model: str
    names: tuple[str, ...]

    @property
    def culprit(self) -> str | None:
        """Task that ended the process; None of several concurrent ones."""
        return self.names[0] if len(self.names) == 1 else None


class TaskProgress:
    """Progress written before each task, read when no reply comes; ``path`` names the file for the
    next process."""

    def __init__(self, fd: int | None = None, *, path: Path | None = None) -> None:
        self.fd = _file(path) if fd is None else fd
        self._bytes = memoryview(mmap.mmap(self.fd, _SIZE))
        self._cells = self._bytes[:_NAMES].cast("q")

    @staticmethod
    def interrupted(path: Path) -> InterruptedTasks | None:
        try:
            content = path.read_bytes()
            size = memoryview(content)[:_NAMES].cast("q")[2]
            model, names = json.loads(content[_NAMES : _NAMES + size])
            return InterruptedTasks(str(model), tuple(map(str, names)))
        except (OSError, ValueError, TypeError):
            return None

    def ask(self, model: str, names: Sequence[str]) -> None:
        encoded = json.dumps([model, names]).encode()
        size = len(encoded) if len(encoded) <= _SIZE - _NAMES else 0
        self._bytes[_NAMES : _NAMES + size] = encoded[:size]
        self._cells[2] = size
        self.begin(0)

    def finish(self) -> None:
        self._cells[2] = 0

    def close_file(self) -> None:
        os.close(self.fd)

    def begin(self, task: int) -> None:
        self._cells[1] = time.monotonic_ns()  # one clock for all processes
        self._cells[0] = task

    @property
    def task(self) -> int:
        """Latest task's number, unless user code overwrote the memory."""
        return self._cells[0]

    @property
    def began_ns(self) -> int:
        return self._cells[1]

    @property
    def elapsed_s(self) -> float:
        return (time.monotonic_ns() - self._cells[1]) / 1e9


def _file(path: Path | None) -> int:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    elif hasattr(os, "memfd_create"):
        fd = os.memfd_create("outrider-progress")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _SIZE)
    return fd
