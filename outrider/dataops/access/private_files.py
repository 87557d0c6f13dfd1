"""Data folders that only their owner may read. Standard library only, for the supervisor."""

import logging
import os
import stat
from pathlib import Path

log = logging.getLogger("outrider.access")

UMASK = 0o077
OTHERS = 0o077


def keep_files_private() -> None:
    os.umask(UMASK)


def make_private(folder: Path) -> int:
    """Number of changed paths; links are not followed, failures are logged."""
    changed = 0
    for path in (folder, *folder.rglob("*")):
        try:
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~OTHERS)
                changed += 1
        except FileNotFoundError:  # a process that still works has just removed it
            continue
        except OSError as error:
            log.warning("%s can be read by others, and this cannot be changed: %s", path, error.strerror)
    return changed
