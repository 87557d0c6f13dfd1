"""Requests that come before the queries and pages wait for them."""

import asyncio

import httpx
import pytest
from fastapi import APIRouter

from outrider.monitor.server import app as application

LATE = APIRouter()


@LATE.post("/v1/late")
async def late(said: dict[str, int]) -> dict[str, int]:
    return said


def answers(*paths: str, is_finished: bool = True) -> dict[str, httpx.Response]:
    """Answers to POSTs sent while the API loads, in the order of their arrival."""
    app = application.build_app(fault=lambda: None)
    app.is_loading = True
    found: dict[str, httpx.Response] = {}

    async def ask(client: httpx.AsyncClient, path: str) -> None:
        method = "GET" if path in ("/healthz", "/openapi.json") else "POST"
        found[path] = await client.request(method, path, json={"n": 1} if method == "POST" else None)

    async def run() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            waiting = [asyncio.create_task(ask(client, path)) for path in paths]
            for _ in range(50):
                await asyncio.sleep(0)
            found["loaded"] = httpx.Response(200)
            if is_finished:
                app.include_router(LATE)
                app.openapi_schema = None
                app.is_loading = False
            await asyncio.gather(*waiting)

    asyncio.run(run())
    return found


def test_a_request_for_a_route_still_to_come_is_answered_by_it() -> None:
    found = answers("/v1/late", "/v1/nowhere", "/openapi.json", "/healthz")
    assert list(found)[:2] == ["/healthz", "loaded"], "liveness waits for nobody, the others for the routers"
    assert found["/v1/late"].json() == {"n": 1}
    assert found["/v1/nowhere"].status_code == 404
    assert "/v1/late" in found["/openapi.json"].json()["paths"], "the document is whole"


def test_what_loads_too_long_is_told_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_LOAD_S", 0.05)
    answer = answers("/v1/late", is_finished=False)["/v1/late"]
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
