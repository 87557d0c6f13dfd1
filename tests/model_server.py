"""A model behind HTTP on loopback, with answers of one's own: what a production endpoint is."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Predict = Callable[[list[dict[str, Any]]], Any]
"""Instances to what stands in ``predictions``; bytes are sent as they are, a number is a status."""


class ModelServer(ThreadingHTTPServer):
    """Keeps what was asked."""

    daemon_threads = True

    def __init__(self, predict: Predict) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.predict = predict
        self.delay_s = 0.0
        self.instances: list[Mapping[str, Any]] = []
        self.requests = 0
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/v1/models/toy:predict"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: ModelServer

    def do_POST(self) -> None:
        instances = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["instances"]
        server = self.server
        server.requests += 1
        server.instances += instances
        server.keys.append(self.headers.get("Authorization"))
        time.sleep(server.delay_s)
        found = server.predict(instances)
        status = found if isinstance(found, int) else 200
        payload = found if isinstance(found, bytes) else json.dumps({"predictions": found}).encode()
        with contextlib.suppress(ConnectionError):  # who asked may not have waited
            self.send_response(status)
            if status == 302:
                self.send_header("Location", server.url)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def model_server(predict: Predict) -> Iterator[ModelServer]:
    """Server in a thread of this process."""
    server = ModelServer(predict)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
