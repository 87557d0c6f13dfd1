"""Exposition at ``/metrics``: text for Prometheus, OpenMetrics on request."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio.to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def render(collector: Collector, accept: str = "") -> tuple[bytes, str]:
    encoder, content_type = choose_encoder(accept)
    registry = CollectorRegistry()
    registry.register(collector)
    return encoder(registry), content_type


class MetricsApp:
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Answer one request, encoding in a thread beside intake's loop."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        if scope["method"] not in ("GET", "HEAD"):
            status, body, kind = 405, b"", "text/plain"
        else:
            accept = headers.get(b"accept", b"").decode("latin-1")
            body, kind = await anyio.to_thread.run_sync(render, self._collector, accept)
            status = 200
        fields = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        if status == 405:
            fields.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
