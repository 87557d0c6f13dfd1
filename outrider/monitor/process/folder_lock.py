"""Lock of a data folder, held by a service or an erasure."""

import fcntl
import os
from pathlib import Path


class AlreadyRunning(RuntimeError):  # noqa: N818 - reads as the state it is
    ...


def take_folder(folder: Path) -> int:
    """Take the lock of a data folder until the handle is closed; AlreadyRunning where it is in use."""
    (folder / "run").mkdir(exist_ok=True)
    handle = os.open(folder / "run" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise AlreadyRunning(
            f"{folder} is in use by another `outrider serve`; stop it or set storage.folder"
        ) from None
    return handle
