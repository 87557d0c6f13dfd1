"""Bounds on strangers' request bodies: bytes, growth while streaming, objects in JSON."""

import tempfile
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from .problem import ProblemError, problem

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Scope: TypeAlias = MutableMapping[str, Any]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_FREE_BYTES = 1_048_576
"""Below this size any ratio is harmless."""
_FREE_MEMBERS = 64
_MEMBER_BYTES = 1024
"""Least average size of a gzip body's members, beyond the first few."""
_SPOOL_BYTES = 16_777_216
_JSON_COSTS = ((b"{", 190), (b"[", 64), (b":", 60), (b",", 36))
"""Approximate memory of an object, a list, a member and a further value."""


class ClientGone(Exception):  # noqa: N818 - reads as the event it is
    ...


_PLAIN = b"identity"
_KEY_SHARE = 2
"""Part of the byte budget that one key may hold: a half."""


class ByteBudget:
    """Bytes of bodies in memory, at most half of them of one holder.

    A single body passes when nothing else is held.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self._own: dict[str, int] = {}

    def take(self, size: int, holder: str = "") -> None:
        own = self._own.get(holder, 0)
        if self.held and self.held + size > self.most:
            raise _busy(f"{self.held} bytes of requests are being worked on, at most {self.most}")
        if own and own + size > self.most // _KEY_SHARE:
            raise _busy(f"{holder}: {own} bytes are being worked on, at most half of {self.most}")
        self.held += size
        self._own[holder] = own + size

    def give(self, size: int, holder: str = "") -> None:
        self.held -= size
        left = self._own.get(holder, 0) - size
        if left > 0:
            self._own[holder] = left
        else:
            self._own.pop(holder, None)


def _busy(what: str) -> ProblemError:
    detail = f"{what} (limits.queue_bytes); send again later"
    return ProblemError(problem(429, detail, headers={"retry-after": "1"}))


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """Bounds of one body: ``max_bytes`` after decompression, ``max_ratio`` above 1 MiB; ``setting``
    names the setting behind them."""

    max_bytes: int
    max_ratio: int
    setting: str = "limits.body_bytes"


def _take_nothing(_: int) -> None: ...


async def body_parts(
    receive: Receive,
    headers: Mapping[bytes, bytes],
    bounds: BodyBounds,
    *,
    take: Callable[[int], None] = _take_nothing,
) -> AsyncIterator[bytes]:
    """Parts of a streaming body, decompressed.

    ``take`` is called with bytes before these are held, and may raise. ProblemError 400, 413 or 415;
    ClientGone.
    """
    encoding = headers.get(b"content-encoding", _PLAIN).strip().lower().decode("latin-1")
    _check_declared(headers, bounds)
    inflater = _inflater(encoding, bounds)  # holds a file: closed below
    inflated = sent = 0
    more = True
    try:
        while more:
            chunk, more = await _next_chunk(receive)
            sent += len(chunk)
            if sent > bounds.max_bytes:
                raise _too_large(f"more than {bounds.max_bytes} bytes", bounds)
            if inflater.keeps_all:
                take(len(chunk))
            chunk = inflater.feed(chunk, inflated)
            take(len(chunk))
            inflated += len(chunk)
            yield chunk
        for chunk in inflater.finish(inflated):
            take(len(chunk))
            yield chunk
    finally:
        inflater.close()


async def read_body(
    receive: Receive,
    headers: Mapping[bytes, bytes],
    bounds: BodyBounds,
    *,
    take: Callable[[int], None] = _take_nothing,
) -> bytes:
    if headers.get(b"content-encoding", _PLAIN) != _PLAIN:
        return b"".join([part async for part in body_parts(receive, headers, bounds, take=take)])
    # Without the generator, which costs a single record more than its parsing.
    _check_declared(headers, bounds)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        chunk, more = await _next_chunk(receive)
        size += len(chunk)
        if size > bounds.max_bytes:
            raise _too_large(f"more than {bounds.max_bytes} bytes", bounds)
        take(len(chunk))
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_declared(headers: Mapping[bytes, bytes], bounds: BodyBounds) -> None:
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > bounds.max_bytes:
        raise _too_large(f"{int(declared)} bytes", bounds)


async def _next_chunk(receive: Receive) -> tuple[bytes, bool]:
    """Bytes of the next message, and whether more follow."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


def check_json(body: bytes, most: int) -> None:
    """Refuse (413) JSON whose objects would take more than ``most`` bytes, judged by its punctuation
    alone; bodies below 1 MiB pass."""
    if len(body) < _FREE_BYTES:
        return
    size = sum(body.count(mark) * cost for mark, cost in _JSON_COSTS)
    if size > most:
        detail = (
            f"the body would take about {size} bytes as objects, at most {most} (limits.parsed_bytes): send"
            " fewer objects and lists at once"
        )
        raise ProblemError(problem(413, detail))


class _Inflater(Protocol):
    keeps_all: bool
    """Whether input stays in memory until the end."""

    def feed(self, chunk: bytes, so_far: int) -> bytes: ...

    def finish(self, so_far: int) -> Iterable[bytes]: ...

    def close(self) -> None: ...


class _Plain:
    keeps_all = False

    def feed(self, chunk: bytes, so_far: int) -> bytes:  # noqa: ARG002 - the protocol's signature
        return chunk

    def finish(self, so_far: int) -> Iterable[bytes]:  # noqa: ARG002 - the protocol's signature
        return ()

    def close(self) -> None:
        pass


class _Zlib:
    keeps_all = False

    def __init__(self, name: str, bounds: BodyBounds) -> None:
        self._name = name
        self._wbits = 31 if name == "gzip" else 15
        self._stream = zlib.decompressobj(self._wbits)
        self._bounds = bounds
        self._sent = 0
        self._members = 1

    def feed(self, chunk: bytes, so_far: int) -> bytes:
        if self._sent == 0 and self._name == "deflate" and chunk and chunk[0] & 0x0F != 8:
            self._stream = zlib.decompressobj(-15)  # raw, as some clients understand "deflate"
        self._sent += len(chunk)
        inflated = bytearray()
        try:
            while chunk:
                if self._stream.eof:
                    self._next_member(so_far + len(inflated))
                room = self._bounds.max_bytes - so_far - len(inflated)
                inflated += self._stream.decompress(chunk, room + 1)
                _check(so_far + len(inflated), self._sent, self._bounds)
                chunk = self._stream.unconsumed_tail or self._stream.unused_data
        except zlib.error as error:
            raise ProblemError(problem(400, f"the body is not {self._name}: {error}")) from None
        return bytes(inflated)

    def finish(self, so_far: int) -> Iterable[bytes]:  # noqa: ARG002 - the protocol's signature
        if not self._stream.eof:
            raise ProblemError(problem(400, f"the {self._name} body is truncated"))
        return ()

    def close(self) -> None:
        pass

    def _next_member(self, inflated: int) -> None:
        self._members += 1
        if self._members > _FREE_MEMBERS + inflated // _MEMBER_BYTES:
            detail = (
                f"more than {_FREE_MEMBERS} {self._name} members of less than {_MEMBER_BYTES} bytes: send one"
            )
            raise ProblemError(problem(413, detail))
        self._stream = zlib.decompressobj(self._wbits)


class _Zstd:
    """Zstandard through Arrow; inflated at the end, in bounded steps."""

    keeps_all = True

    def __init__(self, bounds: BodyBounds) -> None:
        # What a body in memory may hold stays there; a dataset goes to disk.
        self._compressed = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 - until finish
        self._sent = 0
        self._bounds = bounds

    def feed(self, chunk: bytes, so_far: int) -> bytes:  # noqa: ARG002 - the protocol's signature
        self._compressed.write(chunk)
        self._sent += len(chunk)
        return b""

    def finish(self, so_far: int) -> Iterator[bytes]:
        import pyarrow as pa  # the supervisor knows these limits, and has no other use for it

        self._compressed.seek(0)
        try:
            with pa.CompressedInputStream(pa.PythonFile(self._compressed, "r"), "zstd") as stream:
                # `read` never gives back the megabyte that it takes, where what comes is no zstd.
                while step := stream.read_buffer(_FREE_BYTES).to_pybytes():
                    so_far += len(step)
                    _check(so_far, self._sent, self._bounds)
                    yield step
        except (pa.ArrowException, OSError) as error:
            raise ProblemError(problem(400, f"the body is not zstd: {error}")) from None

    def close(self) -> None:
        self._compressed.close()


def _inflater(encoding: str, bounds: BodyBounds) -> _Inflater:
    if encoding in ("", "identity"):
        return _Plain()
    if encoding in ("gzip", "x-gzip"):
        return _Zlib("gzip", bounds)
    if encoding == "deflate":
        return _Zlib("deflate", bounds)
    if encoding == "zstd":
        return _Zstd(bounds)
    raise ProblemError(
        problem(
            415,
            f"Content-Encoding {encoding!r} is not known; send gzip, deflate, zstd or none",
            headers={"accept-encoding": "gzip, deflate, zstd"},
        )
    )


def _check(inflated: int, sent: int, bounds: BodyBounds) -> None:
    if inflated > bounds.max_bytes:
        raise _too_large(f"more than {bounds.max_bytes} bytes after decompression", bounds)
    if inflated > _FREE_BYTES and inflated > sent * bounds.max_ratio:
        detail = f"the body inflates more than {bounds.max_ratio} times (limits.ratio): send it plain"
        raise ProblemError(problem(413, detail))


def _too_large(what: str, bounds: BodyBounds) -> ProblemError:
    detail = f"the body has {what}, at most {bounds.max_bytes} ({bounds.setting}): send smaller blocks"
    return ProblemError(problem(413, detail))
