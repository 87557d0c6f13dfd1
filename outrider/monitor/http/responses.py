"""Raw ASGI responses, for the routes in front of FastAPI."""

from collections.abc import Mapping

from .limits import Send
from .problem import CONTENT_TYPE, Problem


async def send_bytes(
    send: Send, status: int, body: bytes, content_type: bytes, headers: Mapping[str, str] | None = None
) -> None:
    """Send a whole response."""
    fields = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    fields += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, problem: Problem) -> None:
    """Send a problem response."""
    await send_bytes(send, problem.status, problem.body(), CONTENT_TYPE, problem.headers)
