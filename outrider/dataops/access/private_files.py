"""Data folders that nobody but their owner may read.

Standard library only: the supervisor uses it.
"""

import logging
import os
import stat
from pathlib import Path

log = logging.getLogger("outrider.access")

UMASK = 0o077
OTHERS = 0o077
"""Rights of the group and of everybody else."""


def keep_files_private() -> None:
    """Give what this process and its children make to their owner alone, from the first moment."""
    os.umask(UMASK)


def make_private(folder: Path) -> int:
    """Take a folder, and all in it, from everybody but its owner; the number of changed paths.

    Links are not followed, and what cannot be changed is named in the log.
    """
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
