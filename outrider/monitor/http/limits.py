"""Bounds on strangers' request bodies: bytes, time, growth while streaming."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from .problem import ProblemError, problem

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Scope: TypeAlias = MutableMapping[str, Any]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_FREE_BYTES = 1_048_576
"""Below this size any ratio is harmless."""


class ClientGone(Exception):  # noqa: N818 - reads as the event it is
    """The client closed the connection before its body was complete."""


class ByteBudget:
    """Bytes of bodies that may stand in memory at once.

    Parameters
    ----------
    most
        Bound in bytes; a single body is always let through when nothing else is held.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def take(self, size: int) -> None:
        """Hold ``size`` more bytes, or raise 429."""
        if self.held and self.held + size > self.most:
            raise ProblemError(
                problem(
                    429,
                    f"{self.held} bytes of requests are being worked on, at most {self.most}"
                    " (limits.queue_bytes); send again later",
                    headers={"retry-after": "1"},
                )
            )
        self.held += size

    def give(self, size: int) -> None:
        """Let go of bytes taken before."""
        self.held -= size


async def read_body(
    receive: Receive,
    headers: Mapping[bytes, bytes],
    *,
    max_bytes: int,
    max_ratio: int,
    take: Callable[[int], None] = lambda _: None,
    timeout_s: float = 30.0,
) -> bytes:
    """Whole body, decompressed.

    Parameters
    ----------
    receive
        ASGI receive.
    headers
        Request headers, names in lower case.
    max_bytes
        Bound of the body, after decompression.
    max_ratio
        Bound of decompressed / compressed bytes; not applied below 1 MiB.
    take
        Told of bytes that will stand in memory, before they do; may raise.
    timeout_s
        The body must be complete by then.

    Raises
    ------
    ProblemError
        400 broken compression, 408 too slow, 413 too large, 415 unknown Content-Encoding.
    ClientGone
        If the connection closes first.
    """
    encoding = headers.get(b"content-encoding", b"identity").strip().lower().decode("latin-1")
    inflater = _inflater(encoding, max_bytes, max_ratio)
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(f"{int(declared)} bytes", max_bytes)
    chunks: list[bytes] = []
    inflated = sent = 0
    try:
        async with asyncio.timeout(timeout_s):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk: bytes = message.get("body", b"")
                more = message.get("more_body", False)
                sent += len(chunk)
                if sent > max_bytes:
                    raise _too_large(f"more than {max_bytes} bytes", max_bytes)
                if inflater.keeps_all:
                    take(len(chunk))
                chunk = inflater.feed(chunk, inflated)
                take(len(chunk))
                inflated += len(chunk)
                chunks.append(chunk)
    except TimeoutError:
        raise ProblemError(problem(408, f"the body was not complete after {timeout_s:g} s")) from None
    rest = inflater.finish(inflated)
    if rest:
        take(len(rest))
        chunks.append(rest)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class _Inflater(Protocol):
    keeps_all: bool
    """Whether what was fed stays in memory until the end."""

    def feed(self, chunk: bytes, so_far: int) -> bytes:
        """Bytes that ``chunk`` inflates to; ``so_far`` were inflated before."""

    def finish(self, so_far: int) -> bytes:
        """Rest of the output at the end."""


class _Plain:
    keeps_all = False

    def feed(self, chunk: bytes, so_far: int) -> bytes:  # noqa: ARG002 - the protocol's signature
        return chunk

    def finish(self, so_far: int) -> bytes:  # noqa: ARG002 - the protocol's signature
        return b""


class _Zlib:
    """gzip (one member after another) and deflate (with zlib's header or raw)."""

    keeps_all = False

    def __init__(self, name: str, max_bytes: int, max_ratio: int) -> None:
        self._name = name
        self._wbits = 31 if name == "gzip" else 15
        self._stream = zlib.decompressobj(self._wbits)
        self._max_bytes = max_bytes
        self._max_ratio = max_ratio
        self._sent = 0

    def feed(self, chunk: bytes, so_far: int) -> bytes:
        if self._sent == 0 and self._name == "deflate" and chunk and chunk[0] & 0x0F != 8:
            self._stream = zlib.decompressobj(-15)  # raw, as some clients understand "deflate"
        self._sent += len(chunk)
        inflated = bytearray()
        try:
            while chunk:
                if self._stream.eof:
                    self._stream = zlib.decompressobj(self._wbits)
                room = self._max_bytes - so_far - len(inflated)
                inflated += self._stream.decompress(chunk, room + 1)
                _check(so_far + len(inflated), self._sent, self._max_bytes, self._max_ratio)
                chunk = self._stream.unconsumed_tail or self._stream.unused_data
        except zlib.error as error:
            raise ProblemError(problem(400, f"the body is not {self._name}: {error}")) from None
        return bytes(inflated)

    def finish(self, so_far: int) -> bytes:  # noqa: ARG002 - the protocol's signature
        if not self._stream.eof:
            raise ProblemError(problem(400, f"the {self._name} body is truncated"))
        return b""


class _Zstd:
    """Zstandard through Arrow, which has it anyway; inflated at the end, in bounded steps."""

    keeps_all = True

    def __init__(self, max_bytes: int, max_ratio: int) -> None:
        self._compressed = bytearray()
        self._max_bytes = max_bytes
        self._max_ratio = max_ratio

    def feed(self, chunk: bytes, so_far: int) -> bytes:  # noqa: ARG002 - the protocol's signature
        self._compressed += chunk
        return b""

    def finish(self, so_far: int) -> bytes:  # noqa: ARG002 - the protocol's signature
        body = bytearray()
        try:
            with pa.CompressedInputStream(pa.BufferReader(bytes(self._compressed)), "zstd") as stream:
                while step := stream.read(_FREE_BYTES):
                    body += step
                    _check(len(body), len(self._compressed), self._max_bytes, self._max_ratio)
        except (pa.ArrowException, OSError) as error:
            raise ProblemError(problem(400, f"the body is not zstd: {error}")) from None
        return bytes(body)


def _inflater(encoding: str, max_bytes: int, max_ratio: int) -> _Inflater:
    if encoding in ("", "identity"):
        return _Plain()
    if encoding in ("gzip", "x-gzip"):
        return _Zlib("gzip", max_bytes, max_ratio)
    if encoding == "deflate":
        return _Zlib("deflate", max_bytes, max_ratio)
    if encoding == "zstd":
        return _Zstd(max_bytes, max_ratio)
    raise ProblemError(
        problem(
            415,
            f"Content-Encoding {encoding!r} is not known; send gzip, deflate, zstd or none",
            headers={"accept-encoding": "gzip, deflate, zstd"},
        )
    )


def _check(inflated: int, sent: int, max_bytes: int, max_ratio: int) -> None:
    if inflated > max_bytes:
        raise _too_large(f"more than {max_bytes} bytes after decompression", max_bytes)
    if inflated > _FREE_BYTES and inflated > sent * max_ratio:
        raise ProblemError(
            problem(413, f"the body inflates more than {max_ratio} times (limits.ratio): send it plain")
        )


def _too_large(what: str, max_bytes: int) -> ProblemError:
    return ProblemError(
        problem(413, f"the body has {what}, at most {max_bytes} (limits.body_bytes): send smaller blocks")
    )
