"""Store of large immutable bytes by SHA-256: weights and Parquet."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Protocol

from outrider.errors import NotFound, OutriderError


class ObjectStore(Protocol):
    """Content-addressed bytes that never change under their digest."""

    def put(self, data: bytes) -> str:
        """Store durably, the same bytes once; return SHA-256 in hex."""

    def get(self, digest: str) -> bytes:
        """Verified bytes of a digest; raises NotFound or CorruptObject."""

    def has(self, digest: str) -> bool:
        """Test for an object of that digest."""

    def size(self, digest: str) -> int:
        """Bytes of that digest; raises NotFound."""


class CorruptObject(OutriderError):  # noqa: N818 - reads as the thing it is
    """Bytes of an object differ from its digest."""


class LocalObjects:
    """Objects as files ``<folder>/ab/abcdef…``, written beside, then renamed: never half there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, data: bytes) -> str:
        """Store durably; returns the SHA-256 in hex."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        if path.exists():
            return digest
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        for folder in (path.parent, self.folder):  # the new names must survive a power cut too
            _sync_folder(folder)
        return digest

    def get(self, digest: str) -> bytes:
        """Bytes of that digest, verified."""
        try:
            data = self._path(digest).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"no object {digest} in {self.folder}") from None
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise CorruptObject(f"object {digest} in {self.folder} has the content of {found}; restore it")
        return data

    def has(self, digest: str) -> bool:
        """Test for an object of that digest."""
        return self._path(digest).exists()

    def size(self, digest: str) -> int:
        """Bytes of that digest."""
        try:
            return self._path(digest).stat().st_size
        except FileNotFoundError:
            raise NotFound(f"no object {digest} in {self.folder}") from None

    def path(self, digest: str) -> Path:
        """File of that digest, which another process verifies by name."""
        path = self._path(digest)
        if not path.exists():
            raise NotFound(f"no object {digest} in {self.folder}")
        return path

    def _path(self, digest: str) -> Path:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise ValueError(f"a SHA-256 of 64 lower-case hex digits expected, got {digest!r}")
        return self.folder / digest[:2] / digest


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
