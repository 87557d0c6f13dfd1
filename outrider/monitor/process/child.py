"""Start of service processes, which end whatever happens to the parent.

Standard library only.
"""

import ctypes
import os
import signal
import sys
import threading

from outrider.dataops.access.private_files import keep_files_private

CONTROL_FD = "OUTRIDER_CONTROL_FD"
SUPERVISOR = "OUTRIDER_SUPERVISOR_PID"
PR_SET_PDEATHSIG = 1
M_ARENA_MAX = -8
_ARENAS = 2


def die_with_parent(grace_s: float = 1.0, *, parent: int | None = None) -> None:
    """Exit with the supervisor's control pipe, even under busy user code; on Linux also when the
    direct ``parent`` dies. Makes files private, and threads share two arenas of the allocator."""
    keep_files_private()
    keep_freed_memory_together()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor's: it tells who is to start again
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
    descriptor = os.environ.get(CONTROL_FD)
    if descriptor is None:
        return
    threading.Thread(target=_watch, args=(int(descriptor), grace_s), name="control", daemon=True).start()


def keep_freed_memory_together() -> None:
    """Make threads share two arenas of glibc's allocator, unless ``MALLOC_ARENA_MAX`` is set: one
    arena for each server thread keeps tens of megabytes within a million requests."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have one heap
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(M_ARENA_MAX, _ARENAS)


def ask_for_reload() -> bool:
    pid = os.environ.get(SUPERVISOR)
    if pid is None or os.getppid() != int(pid):
        return False
    os.kill(int(pid), signal.SIGHUP)
    return True


def _watch(descriptor: int, grace_s: float) -> None:
    while os.read(descriptor, 1):
        pass  # nothing is ever written: data would be a mistake, its end is the message
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(grace_s)
    os._exit(1)
