"""Progress of a request's tasks, in memory that outlives either process."""

import mmap
import os
import tempfile
import time


class TaskProgress:
    """Progress written before each task, read when no reply comes.

    Parameters
    ----------
    fd
        That of the other process, inherited; without it a page of one's own is made.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _page() if fd is None else fd
        self._cells = memoryview(mmap.mmap(self.fd, mmap.PAGESIZE)).cast("q")

    def close_file(self) -> None:
        """Close the file after the other process has inherited the descriptor."""
        os.close(self.fd)

    def begin(self, task: int) -> None:
        """The task of this number starts now."""
        self._cells[1] = time.monotonic_ns()  # one clock for all processes
        self._cells[0] = task

    @property
    def task(self) -> int:
        """Latest task's number, unless user code overwrote the memory."""
        return self._cells[0]

    @property
    def elapsed_s(self) -> float:
        """Seconds since the task's begin."""
        return (time.monotonic_ns() - self._cells[1]) / 1e9


def _page() -> int:
    """Descriptor of a file of one page without a name."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("outrider-progress")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, mmap.PAGESIZE)
    return fd
