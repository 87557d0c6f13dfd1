"""What the tasks of one request say, sent together: one frame for all that take little time."""

import fcntl
import socket
import time
from typing import NamedTuple

from . import wire
from .progress import Progress

OUT_OF_MEMORY = "out_of_memory"
KEPT_S = 0.001
"""What was found in this time may have to be found again, when a later task ends or holds up the process."""


class Told(NamedTuple):
    """What became of one task: its seconds and number of buffers, or how it failed."""

    seconds: float
    buffers: int
    failed: str = ""
    detail: str = ""


class Replies:
    """The host's side; results stand in the order of the tasks."""

    def __init__(self, sock: socket.socket, progress: Progress) -> None:
        self._sock = sock
        self._progress = progress
        self.start()

    def start(self) -> None:
        """A request was received."""
        self._told: list[Told] = []
        self._buffers: list[bytes] = []
        self._begun = 0
        self._sent_at = time.perf_counter()

    def begin(self) -> None:
        """The next task starts."""
        self._progress.begin(self._begun)
        self._begun += 1

    def add(self, told: Told, buffers: list[bytes]) -> None:
        """The task gave its result, which is sent with others unless it took long."""
        fcntl.fcntl(self._sock, fcntl.F_GETFD)  # who closed it is to blame, not the tasks behind
        self._told.append(told)
        self._buffers += buffers
        is_late = time.perf_counter() - self._sent_at > KEPT_S
        if is_late or told.failed == OUT_OF_MEMORY:
            self.send()

    def send(self) -> None:
        """Send what was not sent yet."""
        if self._told:
            wire.send(self._sock, {"tasks": self._told}, self._buffers)
        self._told, self._buffers = [], []
        self._sent_at = time.perf_counter()
