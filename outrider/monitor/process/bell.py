"""Bell of the server for a worker at rest: a pipe made by the supervisor. Standard library only."""

import contextlib
import os
import threading
from collections.abc import Callable, Mapping

RING_FD, HEAR_FD = "OUTRIDER_BELL_FD", "OUTRIDER_BELL_RX_FD"


def ringer(environ: Mapping[str, str] = os.environ) -> Callable[[], None]:
    """Function that rings without waiting; without a bell it does nothing."""
    if RING_FD not in environ:
        return lambda: None
    fd = int(environ[RING_FD])

    def ring() -> None:
        with contextlib.suppress(OSError):  # full: nobody has heard the last ones either
            os.write(fd, b"\0")

    return ring


class Bell:
    """Waker of a process at rest; ``wake`` is called by another thread after :meth:`listen`."""

    def __init__(self, fd: int, wake: Callable[[], None]) -> None:
        self._fd = fd
        self._wake = wake
        self._is_listening = threading.Event()
        threading.Thread(target=self._run, name="bell", daemon=True).start()

    @classmethod
    def inherited(cls, wake: Callable[[], None], environ: Mapping[str, str] = os.environ) -> "Bell | None":
        return cls(int(environ[HEAR_FD]), wake) if HEAR_FD in environ else None

    def listen(self) -> None:
        """Wake at the next ring, at once where it rang since the last."""
        self._is_listening.set()

    def _run(self) -> None:
        while self._is_listening.wait() and os.read(self._fd, 1 << 16):
            self._is_listening.clear()
            self._wake()
