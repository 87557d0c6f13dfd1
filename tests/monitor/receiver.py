"""A server for tests of the client: keeps what it is sent, and answers as told."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from outrider.monitor import client as module
from tests.soak import PATIENCE_S


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """All that clients held is given back once they are closed."""
    yield
    for client in list(module._clients):
        client.close(timeout=0)
    deadline = time.monotonic() + PATIENCE_S
    while module._memory.held and time.monotonic() < deadline:
        time.sleep(0.01)
    assert module._memory.held == 0


class Receiver:
    """Loopback server in a thread.

    Attributes
    ----------
    status
        What it answers with; below 300 it keeps what came.
    answer
        Members of the answer beside ``accepted``.
    most
        Larger bodies, in lines, are answered with 413.
    bodies
        Number of lines of every request, in order.
    """

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.labels: list[dict[str, Any]] = []
        self.parts: list[list[bytes]] = []
        self.keys: set[str] = set()
        self.bodies: list[int] = []
        self.status = 202
        self.answer: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.most = 10_000
        self.hang_up = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                lines = receiver.read(body, self.headers["content-type"])
                receiver.keys.add(self.headers["authorization"])
                receiver.bodies.append(len(lines))
                status = 413 if len(lines) > receiver.most else receiver.status
                if status == 202:
                    (receiver.records if self.path == "/v1/records" else receiver.labels).extend(lines)
                answer = json.dumps({"accepted": len(lines), "rejected": []} | receiver.answer).encode()
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                self.close_connection |= receiver.hang_up  # without saying so, as after an idle while

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def read(self, body: bytes, media_type: str) -> list[dict[str, Any]]:
        """Records of a body; the parts of a framed one are kept in ``parts``."""
        if media_type != "application/vnd.outrider.framed":
            return [json.loads(line) for line in body.splitlines()]
        end = 8 + int.from_bytes(body[:8], "little")
        frame = json.loads(body[8:end])
        parts = []
        for size in frame["sizes"]:
            parts.append(body[end : end + size])
            end += size
        assert end == len(body)
        self.parts.append(parts)
        return list(frame["records"])

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
