"""Files replaced whole: readers see old content or new, after a power cut too."""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: str, *, mode: int = 0o600) -> None:
    """Replace a file by new content, on disk once this returns."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Put a file or a folder's names on disk, so that they survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        sync(path)
