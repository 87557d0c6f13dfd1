"""Time in which a process waited for a processor, by the scheduler.

It is subtracted from deadlines, because a starved pass is no hang; without kernel counts nothing is
subtracted.
"""

import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

from .memory import PROC

SAMPLE_S = 1.0


class StarvedTime:
    """Starved seconds of a process, sampled by the second; of each second at most what its threads
    lacked of one processor."""

    def __init__(self, pid: int, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._folder = PROC / str(pid) / "task"
        self._clock = clock
        self._at = clock()
        self._known = _scheduled(self._folder)

    def look(self, *, at_once: bool = False) -> None:
        now = self._clock()
        if now - self._at < SAMPLE_S and not at_once:
            return
        found = _scheduled(self._folder)
        grown = [
            (ran - was[0], waited - was[1])
            for thread, (ran, waited) in found.items()
            if (was := self._known.get(thread, (0, 0)))
        ]
        wall, ran_s = now - self._at, sum(ran for ran, _ in grown) / 1e9
        waited_s = max((waited for _, waited in grown), default=0) / 1e9
        self.seconds += max(0.0, min(waited_s, wall - ran_s))
        self._at, self._known = now, found


class Patience:
    """Deadline for a process that excludes starved time."""

    def __init__(self, pid: int, limit_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._starved, self._clock = StarvedTime(pid, clock), clock
        self._until = clock() + limit_s

    @property
    def left_s(self) -> float:
        """Seconds left; to be asked every second."""
        self._starved.look(at_once=True)
        return self._until + self._starved.seconds - self._clock()

    def wait(self, sock: socket.socket, pause: Callable[[], object] = lambda: None) -> None:
        """Wait until there is something to read; ``pause`` is called meanwhile and may raise.

        TimeoutError after the deadline.
        """
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while not poll.poll(1e3 * max(0.0, min(self.left_s, SAMPLE_S / 2))):
            pause()
            if self.left_s <= 0.0:
                raise TimeoutError


def _scheduled(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    try:
        threads = os.listdir(folder)
    except OSError:
        return {}  # it has ended
    for thread in threads:
        try:
            ran, waited, _ = (folder / thread / "schedstat").read_text(encoding="ascii").split()
            found[thread] = int(ran), int(waited)
        except (OSError, ValueError):
            continue
    return found
