"""Service clock, detecting wall clock steps against the monotonic clock."""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.state.clock import STEADY_S, STEP_US

_TWICE_US = 1_000_000
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def wall_us() -> int:
    return time.time_ns() // 1000


def steady_us() -> int:
    """Microseconds of a monotonic clock that runs through sleep on Linux."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)) // 1000


def boot_id() -> str:
    """Boot in which `steady_us` continues, or ``""``."""
    with contextlib.suppress(OSError):
        return _BOOT.read_text().strip()
    return ""


class ServiceClock:
    """Thread-safe wall clock of one process that detects steps.

    ``pending_us`` is a step that the journal does not know yet, ``steady_for_s`` the known time without a
    step.
    """

    def __init__(
        self,
        wall_us: Callable[[], int] = wall_us,
        steady_us: Callable[[], int] = steady_us,
        *,
        pending_us: int = 0,
        steady_for_s: float = STEADY_S,
    ) -> None:
        self._read_wall, self._read_steady = wall_us, steady_us
        self._lock = threading.Lock()
        self._wall, self._steady = self._look()
        self.pending_us = pending_us
        """Step of the clock not yet in the journal."""
        self._stepped_us = self._steady - (0 if pending_us else int(steady_for_s * 1e6))

    def now_us(self) -> int:
        """Microseconds since the epoch; notes a step since the last call."""
        with self._lock:
            wall, steady = self._look()
            by_us = (wall - self._wall) - (steady - self._steady)
            if abs(by_us) > STEP_US:
                self.pending_us += by_us
                self._stepped_us = steady
            self._wall, self._steady = wall, steady
            return wall

    def is_steady(self) -> bool:
        self.now_us()
        return self._steady - self._stepped_us >= STEADY_S * 1e6

    def written(self, by_us: int) -> None:
        with self._lock:
            self.pending_us -= by_us

    def note(self) -> str:
        with self._lock:
            return json.dumps({"boot": boot_id(), "wall_us": self._wall, "steady_us": self._steady})

    def _look(self) -> tuple[int, int]:
        """Both clocks at one moment: a process stopped between two reads has seen no step."""
        while True:
            before = self._read_steady()
            wall = self._read_wall()
            after = self._read_steady()
            if after - before < _TWICE_US:
                return wall, after


def open_clock(
    journal: SqliteJournal,
    *,
    wall_us: Callable[[], int] = wall_us,
    steady_us: Callable[[], int] = steady_us,
    boot: Callable[[], str] = boot_id,
) -> ServiceClock:
    """Clock of a starting service, detecting steps while nothing ran: exactly since the last boot,
    else from a newest block in the future."""
    pending, now, last = 0, wall_us(), journal.last_seq()
    noted = json.loads(journal.clock_note() or "{}")
    newest = journal.read(last - 1, limit=1) if last else []
    if noted.get("boot") and noted["boot"] == boot():
        pending = (now - noted["wall_us"]) - (steady_us() - noted["steady_us"])
    elif newest:
        pending = min(0, now - newest[0].received_us)
    steps = journal.steps()
    if abs(pending) > STEP_US and last:
        return ServiceClock(wall_us, steady_us, pending_us=pending)
    known_s = max(0.0, (now - steps[-1].received_us) / 1e6) if steps else STEADY_S
    return ServiceClock(wall_us, steady_us, steady_for_s=known_s)
