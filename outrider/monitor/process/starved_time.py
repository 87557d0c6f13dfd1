"""Time in which a process waited for a processor, by the scheduler.

A pass that a busy machine starves is late and no hang: what is held against a deadline is time with this
subtracted. Where the kernel counts none of it, nothing is subtracted.
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
    """Starved seconds of a process, sampled by the second.

    Of each second at most what its threads did not have: a process that uses a whole processor is not
    starved, however many threads it starts.
    """

    def __init__(self, pid: int, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._folder = PROC / str(pid) / "task"
        self._clock = clock
        self._at = clock()
        self._known = _scheduled(self._folder)

    def look(self, *, at_once: bool = False) -> None:
        """Take a sample each second, or ``at_once``."""
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
    """Deadline for a process; starved time does not count."""

    def __init__(self, pid: int, limit_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._starved, self._clock = StarvedTime(pid, clock), clock
        self._until = clock() + limit_s

    @property
    def left_s(self) -> float:
        """Seconds left; zero or less beyond the deadline. To be asked every second."""
        self._starved.look(at_once=True)
        return self._until + self._starved.seconds - self._clock()

    def wait(self, sock: socket.socket, pause: Callable[[], object] = lambda: None) -> None:
        """Wait until there is something to read.

        Parameters
        ----------
        pause
            Called while there is nothing; may raise.

        Raises
        ------
        TimeoutError
            If the deadline has passed.
        """
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while not poll.poll(1e3 * max(0.0, min(self.left_s, SAMPLE_S / 2))):
            pause()
            if self.left_s <= 0.0:
                raise TimeoutError


def _scheduled(folder: Path) -> dict[str, tuple[int, int]]:
    """Nanoseconds that each thread ran, and waited for a processor."""
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
