"""An in-process client for ASGI applications, without a server or a thread."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx


def request(
    app: Any, method: str, path: str, *, headers: Mapping[str, str] | None = None, content: bytes = b""
) -> httpx.Response:
    """One request, answered by ``app``; redirects are not followed."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://outrider.test") as client:
            return await client.request(method, path, headers=headers, content=content)

    return asyncio.run(send())


def get(app: Any, path: str, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """GET ``path`` from ``app``."""
    return request(app, "GET", path, headers=headers)
