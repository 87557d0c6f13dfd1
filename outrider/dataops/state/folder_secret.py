"""Secret of a data folder, key of placeholders and hashed ids."""

import os
import secrets
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from sqlalchemy import Connection

from outrider.errors import OutriderError

FILE = "redaction.key"
HASH_BYTES = 16
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


def secret_beside(connection: Connection) -> bytes:
    """Secret of the folder in which the open database lies."""
    return secret_of(folder_of(connection))


def folder_of(connection: Connection) -> Path:
    """Folder in which the open database lies."""
    (path,) = (row[2] for row in connection.exec_driver_sql("PRAGMA database_list") if row[1] == "main")
    return Path(path).parent


def keyed_hash(secret: bytes, digest: bytes) -> bytes:
    """Hash of an id's digest, keyed apart from placeholders."""
    return blake2b(digest, digest_size=HASH_BYTES, key=secret, person=b"expired id").digest()


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
