"""Responses of bytes: sent past FastAPI, or declared to FastAPI."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from .limits import Send
from .problem import CONTENT_TYPE, Problem


async def send_bytes(
    send: Send, status: int, body: bytes, content_type: bytes, headers: Mapping[str, str] | None = None
) -> None:
    fields = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    fields += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, problem: Problem) -> None:
    await send_bytes(send, problem.status, problem.body(), CONTENT_TYPE, problem.headers)


def binary(content_type: str) -> dict[int | str, dict[str, Any]]:
    """The 200 of a route that answers with bytes, for ``/openapi.json``."""
    return {200: {"content": {content_type: {"schema": {"type": "string", "format": "binary"}}}}}


def encoded(body: Any) -> Response:
    """Response of JSON, encoded at once."""
    return Response(
        msgspec.json.encode(body), media_type="application/json", headers={"cache-control": "no-store"}
    )
