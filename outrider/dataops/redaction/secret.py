"""Secret of a data folder that its placeholders are keyed with."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from outrider.errors import OutriderError

FILE = "redaction.key"
_BYTES = 32


def secret_of(folder: Path) -> bytes:
    """Secret of a data folder, drawn at the first call.

    Raises
    ------
    OutriderError
        If the file is there and holds something else.
    """
    path = folder / FILE
    with suppress(FileExistsError):
        if not path.exists():
            _draw(path)
    found = path.read_bytes()
    if len(found) != _BYTES:
        raise OutriderError(
            f"{path}: a secret of {_BYTES} bytes expected, got {len(found)}; restore it from a backup: with "
            "another one equal values have other placeholders than before"
        )
    return found


def _draw(path: Path) -> None:
    """Write a new secret; whole or not at all, and never over another."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        part.unlink()
