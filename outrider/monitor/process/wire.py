"""Frames over a unix stream socket: JSON header, raw buffers, no pickle.

Standard library only: engines run where little else is installed.
"""

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTHS = struct.Struct("<IQ")
_ALIGNED = 8  # buffers start at multiples of it, so that arrays made from them need no copy
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
MAX_HEADER = 16_777_216
MAX_PAYLOAD = 4_294_967_296
SMALL = 65_536
"""Bytes up to which one call with a copy beats a call per buffer."""


def send(sock: socket.socket, header: dict[str, Any], buffers: Sequence[bytes | memoryview] = ()) -> None:
    sizes = [memoryview(buffer).nbytes for buffer in buffers]
    encoded = _ENCODER.encode({**header, "sizes": sizes}).encode()
    encoded += b" " * (-len(encoded) % _ALIGNED)
    parts: list[bytes | memoryview] = []
    payload_size = 0
    for buffer, size in zip(buffers, sizes, strict=True):
        parts.append(buffer)
        if size % _ALIGNED:
            parts.append(bytes(-size % _ALIGNED))
        payload_size += size + -size % _ALIGNED
    lengths = _LENGTHS.pack(len(encoded), payload_size)
    if payload_size <= SMALL:
        sock.sendall(b"".join([lengths, encoded, *parts]))
        return
    sock.sendall(lengths + encoded)
    for part in parts:
        sock.sendall(part)


def receive(sock: socket.socket, *, most_bytes: int = MAX_PAYLOAD) -> tuple[dict[str, Any], list[memoryview]]:
    """Next frame of at most ``most_bytes``; EOFError where the peer is gone or speaks another
    protocol, TimeoutError of the socket."""
    lengths = bytearray(_LENGTHS.size)
    _fill(sock, memoryview(lengths))
    header_size, payload_size = _LENGTHS.unpack(lengths)
    if header_size > MAX_HEADER or payload_size > most_bytes:
        raise EOFError(f"frame of {header_size} and {payload_size} bytes: too large, or of no known protocol")
    data = memoryview(bytearray(header_size + payload_size))
    _fill(sock, data)
    try:
        header = json.loads(bytes(data[:header_size]))
    except (ValueError, RecursionError) as error:
        raise EOFError(f"the peer speaks no known protocol: {error}") from error
    sizes = header.get("sizes") if isinstance(header, dict) else None
    if not (isinstance(sizes, list) and all(isinstance(size, int) and size >= 0 for size in sizes)):
        raise EOFError(
            f"the peer speaks no known protocol: an object with sizes expected, got {header!r:.100}"
        )
    payload = data[header_size:].toreadonly()  # arrays made from it cannot be written to
    buffers, start = [], 0
    for size in sizes:
        buffers.append(payload[start : start + size])
        start += size + -size % _ALIGNED
    return header, buffers


def _fill(sock: socket.socket, view: memoryview) -> None:
    while view:
        count = sock.recv_into(view, 0, socket.MSG_WAITALL)  # one call where the socket has no timeout
        if not count:
            raise EOFError("the peer closed the connection")
        view = view[count:]
