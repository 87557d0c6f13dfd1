"""A server that speaks chat/completions on loopback, with answers of one's own: what a remote judge is."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Say = Callable[[str], str]
"""Prompt to the text of the answer; a text that begins with a status such as "503 " is answered with it."""


class ChatServer(ThreadingHTTPServer):
    """Keeps what was asked."""

    daemon_threads = True

    def __init__(self, say: Say) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.say = say
        self.prompts: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/v1/chat/completions"


class Handler(BaseHTTPRequestHandler):
    """Answers one question."""

    server: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        self.server.prompts.append(prompt)
        self.server.bodies.append(body)
        self.server.keys.append(self.headers.get("Authorization"))
        text = self.server.say(prompt)
        status = int(text[:3]) if text[:3].isdigit() and text[3:4] == " " else 200
        answer = {
            "choices": [{"message": {"role": "assistant", "content": text}}],
            "usage": {"total_tokens": 7},
        }
        payload = json.dumps(answer).encode()
        with contextlib.suppress(ConnectionError):  # who asked may not have waited
            self.send_response(status)
            if status == 302:
                self.send_header("Location", self.server.url)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def chat_server(say: Say) -> Iterator[ChatServer]:
    """Server in a thread of this process."""
    server = ChatServer(say)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
