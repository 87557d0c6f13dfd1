"""``python -m outrider.monitor.erase --config PATH``: carries out pending erasures.

Alone with the data folder.

Whoever asks the service meanwhile is told when to come again.
"""

import argparse
import json
import logging
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from outrider.dataops.erasure.erasing import complete
from outrider.dataops.erasure.pending import note_problem
from outrider.errors import OutriderError

from .process.child import die_with_parent
from .process.logs import set_up
from .settings.config import load_settings
from .settings.erasure_place import place_of

log = logging.getLogger("outrider.erase")
LISTEN_FD = "OUTRIDER_LISTEN_FD"
RETRY_AFTER_S = 1
_MOST_READ = 1_048_576
_DETAIL = "an erasure rewrites the databases, nothing was taken of this request; send it again"


class ComeAgain(BaseHTTPRequestHandler):
    """Answer of a service that erases: 503, and 200 for liveness."""

    timeout = 5.0

    def handle_one_request(self) -> None:
        """Read any request and answer the same."""
        self.close_connection = True
        self.raw_requestline = self.rfile.readline(65_537)
        if not self.raw_requestline or not self.parse_request():
            return
        is_alive = self.path in ("/healthz", "/v2/health/live")
        problem = {"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": _DETAIL}
        body = json.dumps({"status": "ok"} if is_alive else problem).encode()
        self.send_response(200 if is_alive else 503)
        self.send_header("content-type", "application/json" if is_alive else "application/problem+json")
        self.send_header("content-length", str(len(body)))
        self.send_header("retry-after", str(RETRY_AFTER_S))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)
        self.wfile.flush()
        self._read_rest()

    def _read_rest(self) -> None:
        """Let the sender finish: an end in the middle of a body would take the answer from it."""
        self.connection.shutdown(socket.SHUT_WR)
        left = _MOST_READ
        while left > 0 and (part := self.connection.recv(65_536)):
            left -= len(part)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


class ComeAgainServer(ThreadingHTTPServer):
    """Server of :class:`ComeAgain` on a socket that listens."""

    daemon_threads = True

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(("", 0), ComeAgain, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def handle_error(self, request: object, client_address: object) -> None:
        """Let a sender go that has gone."""


def main() -> int:
    """Run the process; 1 where something is left to erase."""
    die_with_parent()
    parser = argparse.ArgumentParser(prog="outrider.monitor.erase", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    set_up("erase")
    settings = load_settings(parser.parse_args().config)
    set_up("erase", settings.server.log_format)
    if LISTEN_FD in os.environ:
        server = ComeAgainServer(socket.socket(fileno=int(os.environ[LISTEN_FD])))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    try:
        done = complete(place_of(settings))
    except OutriderError as error:
        log.error("an erasure is still pending: %s", error)
        try:
            note_problem(settings.data_folder, str(error))
        except OSError as full:
            log.error("this could not be noted: %s", full)
        return 1
    log.info("%d erasures are done", len(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
