"""One request to an application in this process, as a server would hand it over."""

import asyncio
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from outrider.monitor.http.limits import ASGIApp

from .mutations import Request


@dataclass
class Answer:
    """An answer, whole."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


async def ask(app: ASGIApp, request: Request) -> Answer:
    """Send the body in two parts, and take the whole answer."""
    target, _, query = request.path.partition("?")
    headers = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
    scope = {
        "type": "http", "method": request.method, "path": unquote(target), "query_string": query.encode(),
        "headers": headers, "client": ("127.0.0.1", 1), "http_version": "1.1", "raw_path": target.encode(),
        "root_path": "", "scheme": "http", "server": ("127.0.0.1", 2), "asgi": {"version": "3.0"},
    }  # fmt: skip
    half = len(request.body) // 2
    rest = [request.body[:half], request.body[half:]]
    answer, is_over = Answer(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        if rest:
            return {"type": "http.request", "body": rest.pop(0), "more_body": bool(rest)}
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert not answer.status, "answered twice"
            answer.status = message["status"]
            answer.headers = {
                name.decode("latin-1"): said.decode("latin-1") for name, said in message["headers"]
            }
        else:
            answer.body += message.get("body", b"")
            if not message.get("more_body", False):
                is_over.set()

    await app(scope, receive, send)
    assert answer.status, "not answered"
    return answer
