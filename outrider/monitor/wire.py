"""Frames between processes: a JSON header and raw buffers over a unix stream socket. Never pickle."""

import socket
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

_LENGTHS = struct.Struct("<IQ")
MAX_HEADER = 16_777_216
MAX_PAYLOAD = 4_294_967_296


def send(sock: socket.socket, header: dict[str, Any], buffers: Sequence[bytes | memoryview] = ()) -> None:
    """Send one frame; blocks until the peer took it all (or the socket's timeout)."""
    sizes = [len(buffer) for buffer in buffers]
    encoded = msgspec.json.encode({**header, "sizes": sizes})
    sock.sendall(b"".join([_LENGTHS.pack(len(encoded), sum(sizes)), encoded, *buffers]))


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[memoryview]]:
    """Next frame.

    Raises
    ------
    EOFError
        If the peer is gone, or does not speak this protocol.
    TimeoutError
        If the socket's timeout passed first.
    """
    header_size, payload_size = _LENGTHS.unpack(_exactly(sock, _LENGTHS.size))
    if header_size > MAX_HEADER or payload_size > MAX_PAYLOAD:
        raise EOFError(f"frame of {header_size} and {payload_size} bytes: the peer speaks no known protocol")
    try:
        header = msgspec.json.decode(_exactly(sock, header_size), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise EOFError(f"the peer speaks no known protocol: {error}") from error
    payload = _exactly(sock, payload_size).toreadonly()  # arrays made from it cannot be written to
    buffers, start = [], 0
    for size in header["sizes"]:
        buffers.append(payload[start : start + size])
        start += size
    return header, buffers


def _exactly(sock: socket.socket, size: int) -> memoryview:
    data = bytearray(size)
    view = memoryview(data)
    got = 0
    while got < size:
        count = sock.recv_into(view[got:])
        if not count:
            raise EOFError("the peer closed the connection")
        got += count
    return view
