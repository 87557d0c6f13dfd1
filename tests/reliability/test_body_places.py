"""One key that sends slowly from many addresses leaves places to the others, on real sockets."""

import contextlib
import json
import socket
from pathlib import Path

import pytest

from outrider.monitor.http.keyring import load_or_create_key

from .running import Running, running

CONFIG = """
[server]
port = 0
[connections]
total = 40
per_address = 8
bodies_per_key = 6
body_s = 120
header_s = 120
[models.toy]
"""
BODY = b'{"model": "toy", "id": "s%03d", "inputs": {"x": 1}}'


def slow(service: Running, number: int, header: bytes, *, path: bytes = b"/v1/records") -> socket.socket:
    """A connection from one of many addresses whose body has begun."""
    address = f"127.0.{1 + number // 200}.{1 + number % 200}"
    connection = socket.create_connection(("127.0.0.1", service.port), 60.0, source_address=(address, 0))
    head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n"
    connection.sendall(head % (path, header, len(BODY % 0)) + (BODY % number)[:20])
    return connection


def bearer(key: str) -> bytes:
    return b"Authorization: Bearer " + key.encode() + b"\r\n"


def said_whole(connection: socket.socket) -> bytes:
    """The next answer, whole."""
    connection.settimeout(60.0)
    said = b""
    while b"\r\n\r\n" not in said:
        part = connection.recv(65_536)
        assert part, said
        said += part
    head, _, body = said.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def test_slow_bodies_of_one_key_from_many_addresses_leave_places_to_other_keys(tmp_path: Path) -> None:
    with running(tmp_path / "p", CONFIG) as service, contextlib.ExitStack() as opened:
        sender = load_or_create_key(service.folder / "outrider-data" / "key.ingest")
        slowly = [opened.enter_context(slow(service, n, bearer(sender))) for n in range(6)]
        refused = [opened.enter_context(slow(service, n, bearer(sender))) for n in range(6, 90)]
        answer = said_whole(refused[-1])  # older ones may have given way
        assert answer.startswith(b"HTTP/1.1 429"), answer[:300]
        assert b"retry-after" in answer.lower()
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert "connections.bodies_per_key" in problem["detail"]
        assert sender not in answer.decode()
        for number in range(10):
            assert service.send(f"good{number}") == 202
        assert {service.get(path) for path in ("/healthz", "/readyz", "/metrics", "/v2")} == {200}
        for number, connection in enumerate(slowly):  # who came first goes on
            connection.sendall((BODY % number)[20:])
            assert said_whole(connection).startswith(b"HTTP/1.1 202")
        again = opened.enter_context(slow(service, 7, bearer(sender)))
        again.sendall((BODY % 7)[20:])
        assert said_whole(again).startswith(b"HTTP/1.1 202")
        assert service.stored() == 17


@pytest.mark.costly("a whole service runs, and is fed until it happens")
@pytest.mark.parametrize(
    ("path", "header"),
    [
        (b"/v1/records", b"Authorization: Bearer or_wrong\r\n"),
        (b"/v1/records", b"Authorization: Bearer or_wrong\r\nAccept: text/html\r\n"),
        (b"/login", b""),
        (b"/nowhere", b""),
    ],
    ids=["wrong", "wrong-browser", "login", "nowhere"],
)
def test_slow_bodies_without_a_key_leave_places_to_senders(
    tmp_path: Path, path: bytes, header: bytes
) -> None:
    with running(tmp_path / "p", CONFIG, is_whole=True) as service, contextlib.ExitStack() as opened:
        for number in range(90):
            opened.enter_context(slow(service, number, header, path=path))
        for number in range(5):
            assert service.send(f"good{number}") == 202
        assert service.get("/healthz") == 200
        assert service.get("/v1/models") == 200
