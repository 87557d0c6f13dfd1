"""Memory of processes and of the machine, from the kernel's files."""

import os
import re
from pathlib import Path

PROC = Path("/proc")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_ANONYMOUS = re.compile(r"^(?:RssAnon|RssShmem):\s+(\d+) kB", re.MULTILINE)


def own_bytes(pid: int) -> int:
    """Memory of a process and its descendants in bytes, without mapped files; 0 for no process."""
    total, waiting = 0, [pid]
    while waiting:
        each = waiting.pop()
        try:
            status = (PROC / str(each) / "status").read_text(encoding="utf-8", errors="replace")
            waiting += [
                int(child)
                for thread in (PROC / str(each) / "task").iterdir()
                for child in (thread / "children").read_text(encoding="ascii").split()
            ]
        except OSError:
            continue  # it has ended
        total += 1024 * sum(map(int, _ANONYMOUS.findall(status)))
    return total


def usable_bytes(share: float) -> int:
    """Share of the memory of this machine or container."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in LIMITS:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        found += [int(text)] if text.isdecimal() else []
    return int(share * min(found))
