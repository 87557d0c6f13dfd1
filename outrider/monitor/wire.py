"""Frames between processes: a JSON header and raw buffers over a unix stream socket. Never pickle."""

import socket
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

_LENGTHS = struct.Struct("<IQ")
_ALIGNED = 8  # buffers start at multiples of it, so that arrays made from them need no copy
_PADDING = [bytes(-size % _ALIGNED) for size in range(_ALIGNED)]
MAX_HEADER = 16_777_216
MAX_PAYLOAD = 4_294_967_296
SMALL = 65_536
"""Bytes up to which one call with a copy is faster than a call per buffer."""


def send(sock: socket.socket, header: dict[str, Any], buffers: Sequence[bytes | memoryview] = ()) -> None:
    """Send one frame; blocks until the peer took it all (or the socket's timeout)."""
    sizes = [memoryview(buffer).nbytes for buffer in buffers]
    parts: list[bytes | memoryview] = []
    for buffer, size in zip(buffers, sizes, strict=True):
        parts += (buffer, _PADDING[size % _ALIGNED])
    encoded = msgspec.json.encode({**header, "sizes": sizes})
    lengths = _LENGTHS.pack(len(encoded), sum(size + -size % _ALIGNED for size in sizes))
    if sum(sizes) <= SMALL:
        sock.sendall(b"".join([lengths, encoded, *parts]))
        return
    sock.sendall(lengths + encoded)
    for part in parts:
        sock.sendall(part)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[memoryview]]:
    """Next frame.

    Raises
    ------
    EOFError
        If the peer is gone, or does not speak this protocol.
    TimeoutError
        If the socket's timeout passed first.
    """
    header_size, payload_size = _LENGTHS.unpack(_lengths(sock))
    if header_size > MAX_HEADER or payload_size > MAX_PAYLOAD:
        raise EOFError(f"frame of {header_size} and {payload_size} bytes: the peer speaks no known protocol")
    encoded, data = bytearray(header_size), bytearray(payload_size)
    _fill(sock, memoryview(encoded), memoryview(data))
    try:
        header = msgspec.json.decode(encoded, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise EOFError(f"the peer speaks no known protocol: {error}") from error
    payload = memoryview(data).toreadonly()  # arrays made from it cannot be written to
    buffers, start = [], 0
    for size in header["sizes"]:
        buffers.append(payload[start : start + size])
        start += size + -size % _ALIGNED
    return header, buffers


def _lengths(sock: socket.socket) -> bytearray:
    data = bytearray(_LENGTHS.size)
    _fill(sock, memoryview(data))
    return data


def _fill(sock: socket.socket, *views: memoryview) -> None:
    """Read until every view is full; one call reads into all of them, however the bytes come."""
    left = [view for view in views if len(view)]
    while left:
        count = sock.recvmsg_into(left)[0]
        if not count:
            raise EOFError("the peer closed the connection")
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if count:
            left[0] = left[0][count:]
