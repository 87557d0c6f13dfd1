"""Folders and buckets that references may point into.

Nothing else is opened: no other scheme, no host, no way out by ``..`` or a link.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from outrider.errors import ConfigError, OutriderError

_S3_OPTIONS = {"region", "endpoint_override", "scheme", "anonymous"}


class PayloadError(OutriderError):
    pass


class Root(Protocol):
    def holds(self, uri: str) -> bool:
        """True for a reference inside, by its text alone."""

    def read(self, uri: str, max_bytes: int) -> bytes:
        """At most ``max_bytes + 1`` bytes; raises PayloadError or OSError."""


@dataclass(frozen=True, slots=True)
class Folder:
    """``file:///path`` of regular files whose real path is inside."""

    path: Path

    def holds(self, uri: str) -> bool:
        """True for a path below, without ``..``."""
        path = _file_path(uri)
        return path is not None and path.startswith(f"{str(self.path).rstrip('/')}/")

    def read(self, uri: str, max_bytes: int) -> bytes:
        path = _file_path(uri)
        if path is None:
            raise PayloadError(f"{uri} is no file:// reference")
        # Not blocking: a pipe must not hold up the reader. Where it really lies is asked of the open file,
        # so that nobody exchanges a folder on the way for a link in between.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise PayloadError(f"{uri} is no regular file")
            if not _real_path(handle, path).is_relative_to(self.path.resolve()):
                raise PayloadError(f"{uri} leads out of {self.path}")
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(max_bytes + 1)
        finally:
            os.close(handle)


@dataclass(slots=True)
class ObjectBucket:
    """Bucket, or the part below a prefix: ``s3://bucket/prefix``."""

    bucket: str
    prefix: str
    options: dict[str, Any]
    timeout_s: float
    _store: Any = field(default=None, repr=False)

    def holds(self, uri: str) -> bool:
        key = _s3_key(uri)
        return key is not None and key[0] == self.bucket and key[1].startswith(self.prefix)

    def read(self, uri: str, max_bytes: int) -> bytes:
        """With credentials of the environment."""
        key = _s3_key(uri)
        if key is None:
            raise PayloadError(f"{uri} is no s3:// reference")
        if self._store is None:
            from pyarrow import fs

            self._store = fs.S3FileSystem(
                connect_timeout=self.timeout_s,
                request_timeout=self.timeout_s,
                retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=2),
                **self.options,
            )
        with self._store.open_input_stream("/".join(key)) as stream:
            data: bytes = stream.read(max_bytes + 1)
        return data


def parse_roots(texts: Sequence[str], base: Path, *, timeout_s: float) -> tuple[Root, ...]:
    """Folders relative to ``base``, ``file:///folder`` or ``s3://bucket/prefix?region=…``."""
    return tuple(_root(text, base, timeout_s) for text in texts)


def root_of(roots: Sequence[Root], uri: str) -> Root | None:
    """By the reference's text alone."""
    return next((root for root in roots if root.holds(uri)), None)


def _root(text: str, base: Path, timeout_s: float) -> Root:
    parts = urlsplit(text)
    if parts.scheme == "s3":
        if not parts.netloc:
            raise ConfigError(f"payload_roots: a bucket expected, as in s3://bucket/prefix, got {text!r}")
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if unknown := sorted(set(options) - _S3_OPTIONS):
            known = ", ".join(sorted(_S3_OPTIONS))
            raise ConfigError(f"payload_roots: {text!r}: option {unknown[0]!r} is none of {known}")
        given: dict[str, Any] = dict(options)
        if "anonymous" in given:
            given["anonymous"] = given["anonymous"] == "true"
        prefix = parts.path.strip("/")
        return ObjectBucket(parts.netloc, f"{prefix}/" if prefix else "", given, timeout_s)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
    elif "://" in text:
        raise ConfigError(f"payload_roots: a folder or s3://bucket/prefix expected, got {text!r}")
    else:
        path = base / text
    path = Path(os.path.normpath(path.absolute()))
    if path == Path(path.anchor):
        raise ConfigError(f"payload_roots: {text!r} is the whole disk; name a folder of it")
    return Folder(path)


def _file_path(uri: str) -> str | None:
    """None unless a plain ``file://`` path without ``..``, host, query or NUL."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        return None
    if not path.startswith("/") or "\0" in path or {"..", "."} & set(path.split("/")):
        return None
    return path


def _s3_key(uri: str) -> tuple[str, str] | None:
    """Bucket and key of an ``s3://`` reference, which is not percent-encoded."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket or not key or "\0" in key or {"..", ".", ""} & set(key.split("/")):
        return None
    return bucket, key


def _real_path(handle: int, path: str) -> Path:
    try:
        return Path(os.readlink(f"/proc/self/fd/{handle}"))
    except OSError:  # systems without /proc
        return Path(path).resolve()


PAYLOAD_BYTES = 16_777_216


@dataclass(frozen=True, slots=True)
class PayloadRules:
    max_bytes: int = PAYLOAD_BYTES
    roots: tuple[Root, ...] = ()
