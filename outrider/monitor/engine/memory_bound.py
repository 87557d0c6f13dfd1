"""Memory bound of an engine with uploaded versions: a watch over resident memory, and a limit on data.

Address space is never limited: CUDA and mapped weights fill it.
"""

import contextlib
import resource
import time
from collections.abc import Callable

from outrider.monitor.process.memory import PROC, own_bytes, usable_bytes

TIMES = 4
"""Default bound, as a multiple of the peak of the model's own engines."""
LEAST_BYTES = 1_500_000_000
MACHINE_SHARE = 0.8
"""Of the machine's memory at most; above, the kernel chooses which process to end."""
BOUNDED_S, PEAK_S = 0.2, 2.0


class EngineMemory:
    def __init__(self, pid: int, bound: Callable[[], int | None]) -> None:
        self.peak = 0
        self._pid, self._bound = pid, bound
        self._next = 0.0
        self._limited = 0

    def look(self) -> str:
        """Excess over the bound, in words; empty while within."""
        now = time.monotonic()
        if now < self._next:
            return ""
        most = self._bound()
        self._next = now + (PEAK_S if most is None else BOUNDED_S)
        used = own_bytes(self._pid)
        self.peak = max(self.peak, used)
        if most is None:
            self._release()
            return ""
        self._limit(most, used)
        if used <= most:
            return ""
        return f"it used {used / 1e6:,.0f} MB of memory, more than {most / 1e6:,.0f} MB (shadow.memory_mb)"

    def _limit(self, most: int, used: int) -> None:
        """Let the kernel enforce the bound too, and end this process first where memory is short."""
        if not self._limited:
            with contextlib.suppress(OSError):
                (PROC / str(self._pid) / "oom_score_adj").write_text("1000", encoding="ascii")
        # Stacks and arenas are reserved, and count as data, though nobody has written to them. Behind the
        # bound, so that what one version hoards ends the process before it fails the others' allocations.
        self._limited = most + most // 4 + max(0, data_bytes(self._pid) - used)
        self._set_data(self._limited)

    def _release(self) -> None:
        if self._limited:
            self._limited = 0
            self._set_data(resource.RLIM_INFINITY)

    def _set_data(self, soft: int) -> None:
        if hasattr(resource, "prlimit"):
            with contextlib.suppress(OSError, ValueError):
                _, hard = resource.prlimit(self._pid, resource.RLIMIT_DATA)
                soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
                resource.prlimit(self._pid, resource.RLIMIT_DATA, (soft, hard))


def bound_bytes(memory_mb: int | None, peak: int | None) -> int:
    if memory_mb is not None:
        return memory_mb * 1_000_000
    most = usable_bytes(MACHINE_SHARE)
    return most if peak is None else min(max(LEAST_BYTES, TIMES * peak), most)


def data_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmData:"):
                return 1024 * int(line.split()[1])
    return 0
