"""Store of large immutable bytes by SHA-256: weights and Parquet."""

import fcntl
import hashlib
import mmap
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

from outrider.dataops.whole_file import sync
from outrider.errors import NotFound, OutriderError

_STEP_BYTES = 1_048_576
_LARGE_BYTES = 1_048_576
_PART = ".part-"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """64 lower-case hex digits."""
    return _DIGEST.fullmatch(text) is not None


class ObjectStore(Protocol):
    """Content-addressed bytes that never change under their digest."""

    def put(self, data: bytes) -> str:
        """Store durably and return the SHA-256 in hex."""

    def put_file(self, file: BinaryIO) -> str:
        """Store the rest of a file, in steps."""

    def get(self, digest: str) -> bytes:
        """Verified bytes; raises NotFound or CorruptObject."""

    def mapped(self, digest: str) -> memoryview:
        """Verified bytes, mapped; raises NotFound or CorruptObject."""

    def has(self, digest: str) -> bool: ...

    def size(self, digest: str) -> int:
        """Raises NotFound."""

    def digests(self, *, older_than_s: float = 0.0) -> Iterator[str]:
        """Objects that were not written or touched since."""

    def remove(self, digest: str) -> None:
        """Delete durably, if present; mapped bytes stay readable."""


class CorruptObject(OutriderError):  # noqa: N818 - reads as the thing it is
    """Bytes of an object differ from its digest."""


class LocalObjects:
    """Files ``<folder>/ab/abcdef…``, written aside, then renamed: never partial."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._synced: set[Path] = set()
        self._verified: set[tuple[str, int, int, int]] = set()

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        return digest if self.touch(digest) else self.put_file(BytesIO(data))

    def put_file(self, file: BinaryIO) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=_PART)
        digest = hashlib.sha256()
        try:
            with os.fdopen(handle, "wb") as copy:
                while step := file.read(_STEP_BYTES):
                    digest.update(step)
                    copy.write(step)
                copy.flush()
                os.fsync(copy.fileno())
            path = self._path(digest.hexdigest())
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        sync(path.parent)  # the new name must survive a power cut too
        if path.parent not in self._synced:
            sync(self.folder)
            self._synced.add(path.parent)
        return path.name

    def take(self, path: Path, digest: str) -> None:
        """Move a verified file of the same disk into the store."""
        if self.touch(digest):
            path.unlink(missing_ok=True)
            return
        target = self._path(digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        os.utime(path)
        os.replace(path, target)
        sync(target.parent)
        sync(self.folder)

    def get(self, digest: str) -> bytes:
        try:
            data = self._path(digest).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"no object {digest} in {self.folder}") from None
        self._verify(digest, data)
        return data

    def mapped(self, digest: str) -> memoryview:
        """A large file is verified once until changed."""
        try:
            with self._path(digest).open("rb") as file:
                found = os.fstat(file.fileno())
                data = memoryview(
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if found.st_size else b""
                )
        except FileNotFoundError:
            raise NotFound(f"no object {digest} in {self.folder}") from None
        state = digest, found.st_ino, found.st_mtime_ns, found.st_size
        if state not in self._verified:
            self._verify(digest, data)
            if found.st_size >= _LARGE_BYTES:  # few are, and small ones cost nothing
                self._verified.add(state)
        return data

    def has(self, digest: str) -> bool:
        return self._path(digest).exists()

    def size(self, digest: str) -> int:
        try:
            return self._path(digest).stat().st_size
        except FileNotFoundError:
            raise NotFound(f"no object {digest} in {self.folder}") from None

    def digests(self, *, older_than_s: float = 0.0) -> Iterator[str]:
        before = time.time() - older_than_s
        for path in sorted(self.folder.glob("??/*")):
            with suppress(FileNotFoundError):  # deleted meanwhile
                if path.stat().st_mtime <= before:
                    yield path.name

    def remove(self, digest: str) -> None:
        path = self._path(digest)
        path.unlink(missing_ok=True)
        if path.parent.exists():  # the name must be gone after a power cut too
            sync(path.parent)

    def touch(self, digest: str) -> bool:
        """Make an object as young as a new one. False if there is none."""
        if not self.has(digest):
            return False
        with self._removals(fcntl.LOCK_SH):
            try:
                os.utime(self._path(digest))
            except FileNotFoundError:
                return False
        return True

    def remove_old(self, name: str, *, older_than_s: float) -> bool:
        """``name`` is a digest, or a file that a broken writer left."""
        path = self.folder / name if name.startswith(_PART) else self._path(name)
        with self._removals(fcntl.LOCK_EX):
            try:
                if time.time() - path.stat().st_mtime <= older_than_s:
                    return False
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    @contextmanager
    def _removals(self, how: int) -> Iterator[None]:
        """An object is either touched or removed, by whichever process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".removals").open("ab") as lock:
            fcntl.flock(lock, how)
            yield

    def path(self, digest: str) -> Path:
        path = self._path(digest)
        if not path.exists():
            raise NotFound(f"no object {digest} in {self.folder}")
        return path

    def _verify(self, digest: str, data: bytes | memoryview) -> None:
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise CorruptObject(f"object {digest} in {self.folder} has the content of {found}; restore it")

    def _path(self, digest: str) -> Path:
        if not is_digest(digest):
            raise ValueError(f"a SHA-256 of 64 lower-case hex digits expected, got {digest!r}")
        return self.folder / digest[:2] / digest
