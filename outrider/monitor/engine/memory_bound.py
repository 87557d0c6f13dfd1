"""Memory bound of an engine with uploaded versions.

A cgroup of its own (v2) where one may be made, else a limit on data, at which an allocation fails, and a
watch over resident memory. Address space is never limited: CUDA and mapped weights fill it.
"""

import contextlib
import logging
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

from outrider.monitor.process.memory import PROC, own_bytes, usable_bytes

log = logging.getLogger("outrider.worker")
TIMES = 4
"""Default bound by the peak of the model's own engines."""
LEAST_BYTES = 1_500_000_000
"""Default bound at least."""
MACHINE_SHARE = 0.8
"""Of the machine's memory, at most: behind that the kernel chooses whom to end."""
BOUNDED_S, PEAK_S = 0.2, 2.0
"""Between looks at an engine with a bound, and at one without."""
CGROUPS = Path("/sys/fs/cgroup")
_EATEN_FIRST = 1000


class EngineMemory:
    """Memory of one engine process: its peak, and its bound.

    Parameters
    ----------
    bound
        Bytes at most; None without a bound.
    """

    def __init__(self, pid: int, bound: Callable[[], int | None]) -> None:
        self.peak = 0
        self._pid, self._bound = pid, bound
        self._next = 0.0
        self._limited = 0
        self._is_first = False
        self._group: Path | None = None

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
        return self.words(used, most) if used > most else ""

    def ended_by_bound(self) -> str:
        """Excess for which the cgroup ended the process; empty for other ends."""
        if self._group is None:
            return ""
        with contextlib.suppress(OSError):
            events = (self._group / "memory.events").read_text(encoding="ascii").split()
            if int(events[events.index("oom_kill") + 1]):
                return self.words(self._limited, self._limited)
        return ""

    def close(self) -> None:
        """Remove the cgroup of a process that has ended."""
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.rmdir()

    @staticmethod
    def words(used: int, most: int) -> str:
        """Memory against its bound, in words."""
        return f"it used {used / 1e6:,.0f} MB of memory, more than {most / 1e6:,.0f} MB (shadow.memory_mb)"

    def _limit(self, most: int, used: int) -> None:
        """Let the kernel hold the process to the bound, too, and end it first where memory is short."""
        if not self._is_first:
            self._is_first = True
            with contextlib.suppress(OSError):
                (PROC / str(self._pid) / "oom_score_adj").write_text(str(_EATEN_FIRST), encoding="ascii")
            self._group = own_cgroup(self._pid, CGROUPS)
        if self._group is not None:
            if most != self._limited:
                with contextlib.suppress(OSError):
                    (self._group / "memory.max").write_text(str(most), encoding="ascii")
            self._limited = most
            return
        # Stacks and arenas are reserved, and count as data, though nobody has written to them. Behind the
        # bound, so that what one version hoards ends the process before it fails the others' allocations.
        self._limited = most + most // 4 + max(0, data_bytes(self._pid) - used)
        self._set_data(self._limited)

    def _release(self) -> None:
        if not self._limited:
            return
        self._limited = 0
        if self._group is not None:
            with contextlib.suppress(OSError):
                (self._group / "memory.max").write_text("max", encoding="ascii")
        else:
            self._set_data(resource.RLIM_INFINITY)

    def _set_data(self, soft: int) -> None:
        if hasattr(resource, "prlimit"):
            with contextlib.suppress(OSError, ValueError):
                _, hard = resource.prlimit(self._pid, resource.RLIMIT_DATA)
                soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
                resource.prlimit(self._pid, resource.RLIMIT_DATA, (soft, hard))


def bound_bytes(memory_mb: int | None, peak: int | None) -> int:
    """Bytes for a process with an uploaded challenger.

    Parameters
    ----------
    memory_mb
        Configured bound.
    peak
        Most memory of the model's other engines; None where none was seen.
    """
    if memory_mb is not None:
        return memory_mb * 1_000_000
    most = usable_bytes(MACHINE_SHARE)
    return most if peak is None else min(max(LEAST_BYTES, TIMES * peak), most)


def data_bytes(pid: int) -> int:
    """Bytes that count against a limit on data; 0 without a process."""
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmData:"):
                return 1024 * int(line.split()[1])
    return 0


def own_cgroup(pid: int, root: Path) -> Path | None:
    """Move a process into a cgroup of its own; None where forbidden.

    Beside the service's own: systemd grants that by ``Delegate=memory``.
    """
    with contextlib.suppress(OSError, StopIteration):
        lines = (PROC / "self" / "cgroup").read_text(encoding="ascii").splitlines()
        here = root / next(line[3:] for line in lines if line.startswith("0::")).lstrip("/")
        group = here / f"outrider-engine-{pid}"
        if not (here / "cgroup.subtree_control").exists() or not os.access(here, os.W_OK):
            return None
        group.mkdir()
        try:
            if (group / "memory.max").exists():
                (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
                return group
        except OSError as error:
            log.debug("no cgroup for engine %d: %s", pid, error)
        group.rmdir()
    return None
