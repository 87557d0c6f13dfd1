"""A server on loopback that answers as a test says, and keeps every request as it came."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Asked:
    """Request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float


@dataclass(frozen=True)
class Reply:
    """Answer to one request."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Bytes after which the connection ends."""
    wait: threading.Event | None = None
    """What is waited for before anything is answered."""


Answer = Callable[[Asked], Reply]


class ScriptedServer(ThreadingHTTPServer):
    """Keeps what was asked."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: ScriptedServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, body, time.monotonic())
        self.server.asked.append(asked)
        reply = self.server.answer(asked)
        if reply.wait is not None:
            reply.wait.wait()
        with contextlib.suppress(ConnectionError):  # who asked may not have waited
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body if reply.cut is None else reply.body[: reply.cut])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def scripted_server(answer: Answer) -> Iterator[ScriptedServer]:
    """Server in a thread of this process."""
    server = ScriptedServer(answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
