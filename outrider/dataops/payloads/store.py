"""Bytes of references: stored objects, then the cache, then the origin.

They always have the reference's SHA-256: a replay sees what was judged live, or nothing.
"""

import hashlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from outrider.errors import OutriderError

from .objects import ObjectStore, is_digest
from .roots import PayloadError, Root, root_of

CACHE_BYTES = 1_000_000_000


class PayloadCache:
    """Files by SHA-256, least recently used first out. Unsynced, as losses are harmless."""

    def __init__(self, folder: Path, *, limit_bytes: int = CACHE_BYTES) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] | None = None

    def get(self, digest: str) -> bytes | None:
        path = self._folder / digest
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data).hexdigest() != digest:
            return None
        with self._lock:
            if self._sizes is not None and digest in self._sizes:
                self._sizes.move_to_end(digest)
        return data

    def put(self, digest: str, data: bytes) -> None:
        """A full disk never fails."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".part-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(temporary, self._folder / digest)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError:
            return
        with self._lock:
            sizes = self._known()
            sizes[digest] = len(data)
            sizes.move_to_end(digest)
            total = sum(sizes.values())
            while total > self._limit_bytes and len(sizes) > 1:
                oldest, size = sizes.popitem(last=False)
                total -= size
                (self._folder / oldest).unlink(missing_ok=True)

    def _known(self) -> OrderedDict[str, int]:
        """Sizes by digest, oldest first; read from the folder once."""
        if self._sizes is None:
            found = [(path.stat(), path.name) for path in self._folder.iterdir() if is_digest(path.name)]
            found.sort(key=lambda one: one[0].st_mtime)
            self._sizes = OrderedDict((name, status.st_size) for status, name in found)
        return self._sizes


class PayloadStore:
    """Reader of referenced payloads; ``objects`` has payloads of flagged records."""

    def __init__(
        self,
        roots: Sequence[Root] = (),
        *,
        objects: ObjectStore | None = None,
        cache: PayloadCache | None = None,
        max_bytes: int,
    ) -> None:
        self._roots = tuple(roots)
        self._objects = objects
        self._cache = cache
        self._max_bytes = max_bytes

    @property
    def may_fetch(self) -> bool:
        return bool(self._roots)

    def read(self, uri: str, sha256: str) -> bytes:
        """``PayloadError`` if unreadable, too large or of another digest."""
        near = self._near(sha256)
        if near is not None:
            return near
        data = self._fetch(uri)
        if len(data) > self._max_bytes:
            raise PayloadError(
                f"{uri} has more than {self._max_bytes} bytes (intake.payload_bytes of the model)"
            )
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise PayloadError(f"{uri} has the SHA-256 {found}, the record says {sha256}")
        if self._cache is not None:
            self._cache.put(sha256, data)
        return data

    def keep(self, uri: str, sha256: str) -> None:
        """Store the bytes, from the cache or the reference."""
        if self._objects is not None and not self._objects.has(sha256):
            self._objects.put(self.read(uri, sha256))

    def _near(self, sha256: str) -> bytes | None:
        if self._objects is not None and self._objects.has(sha256):
            try:
                return self._objects.get(sha256)
            except OutriderError:
                pass  # damaged: the reference may still be read
        return None if self._cache is None else self._cache.get(sha256)

    def _fetch(self, uri: str) -> bytes:
        root = root_of(self._roots, uri)
        if root is None:
            raise PayloadError(
                f"{uri} is in no folder or bucket that intake.payload_roots of the model names"
                if self._roots
                else f"{uri} was not fetched here before, and this process fetches nothing"
            )
        try:
            return root.read(uri, self._max_bytes)
        except FileNotFoundError:
            raise PayloadError(f"{uri} does not exist") from None
        except (OSError, ValueError) as error:  # pyarrow raises both
            raise PayloadError(f"{uri} cannot be read: {str(error).splitlines()[0]}") from None
