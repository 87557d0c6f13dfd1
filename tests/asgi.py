"""An in-process client for ASGI applications, without a server or a thread; bodies are as declared."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from .declared_bodies import check_body


def request(
    app: Any, method: str, path: str, *, headers: Mapping[str, str] | None = None, content: bytes = b""
) -> httpx.Response:
    """One request, answered by ``app``; redirects are not followed."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://outrider.test") as client:
            return await client.request(method, path, headers=headers, content=content)

    answer = asyncio.run(send())
    check_body(app, answer)
    return answer


def get(app: Any, path: str, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """GET ``path`` from ``app``."""
    return request(app, "GET", path, headers=headers)
