"""Data folders that their owner alone may read.

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
    """Set the umask of this process and its children to 077."""
    os.umask(UMASK)


def make_private(folder: Path) -> int:
    """Take a folder with its content from everybody but its owner.

    Answers with the number of changed paths. Links are not followed, and what cannot be changed is named in
    the log.
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
