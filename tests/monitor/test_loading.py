"""Requests that come before the queries and pages wait for them."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from outrider.monitor.http import routes
from outrider.monitor.http.auth import KeyGate
from outrider.monitor.http.routes import ScopedRouter
from outrider.monitor.server import app as application
from outrider.monitor.server import process
from outrider.monitor.settings.config import load_settings
from outrider.monitor.views import every
from outrider.monitor.views.service import Service
from tests.databases import place_database
from tests.end_to_end.service import wait_until, write_project
from tests.keyrings import keyring_in, owner_key

LATE = APIRouter()


@LATE.post("/v1/late")
async def late(said: dict[str, int]) -> dict[str, int]:
    return said


def answers(folder: Path, *paths: str, is_finished: bool = True) -> dict[str, httpx.Response]:
    """Answers to POSTs sent while the API loads, in the order of their arrival."""
    app = application.build_app(fault=lambda: None)
    scopes = routes.RouteScopes(routes=[routes.ScopedRoute.of("GET /healthz", "")])
    scopes.is_loading = True
    folder.mkdir(exist_ok=True)
    keyring = keyring_in(folder)
    gate = KeyGate(app, keyring, routes=scopes)
    owner = {"authorization": f"Bearer {owner_key(folder)}"}
    found: dict[str, httpx.Response] = {}

    async def ask(client: httpx.AsyncClient, path: str) -> None:
        method = "GET" if path in ("/healthz", "/openapi.json") else "POST"
        found[path] = await client.request(method, path, json={"n": 1} if method == "POST" else None)

    async def run() -> None:
        transport = httpx.ASGITransport(gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=owner) as client:
            waiting = [asyncio.create_task(ask(client, path)) for path in paths]
            for _ in range(50):
                await asyncio.sleep(0)
            found["loaded"] = httpx.Response(200)
            if is_finished:
                app.include_router(LATE)
                app.openapi_schema = None
                scopes.add(
                    routes.ScopedRoute.of(name, "read") for name in ("POST /v1/late", "GET /openapi.json")
                )
                scopes.is_loading = False
            await asyncio.gather(*waiting)

    asyncio.run(run())
    keyring.close()
    return found


def test_a_request_for_a_route_still_to_come_is_answered_by_it(tmp_path: Path) -> None:
    found = answers(tmp_path, "/v1/late", "/v1/nowhere", "/openapi.json", "/healthz")
    assert list(found)[:2] == ["/healthz", "loaded"], "liveness waits for nobody, the others for the routers"
    assert found["/v1/late"].json() == {"n": 1}
    assert found["/v1/nowhere"].status_code == 404
    assert "/v1/late" in found["/openapi.json"].json()["paths"], "the document is whole"


def test_what_loads_too_long_is_told_when_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_LOAD_S", 0.05)
    answer = answers(tmp_path, "/v1/late", is_finished=False)["/v1/late"]
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_routers_that_fail_to_load_are_tried_again_and_readiness_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = every.every_router
    failures = iter([ImportError("no module named 'orjson'")])
    is_mended = threading.Event()

    def every_router(service: Service) -> ScopedRouter:
        if not is_mended.is_set():
            raise next(failures, MemoryError("still"))
        return whole(service)

    monkeypatch.setattr(every, "every_router", every_router)
    monkeypatch.setattr(process, "settle_garbage", lambda: None)
    config = write_project(tmp_path)
    (tmp_path / "outrider-data").mkdir()
    place_database(tmp_path / "outrider-data" / "state.db")
    intake = process.ServerProcess(load_settings(config))
    intake.writer.start()
    intake.announce_routers()
    stopped = threading.Event()
    keeper = threading.Thread(target=process._keep, args=(intake, None, stopped))
    keeper.start()
    try:
        wait_until(lambda: get(intake.app, "/readyz").status_code == 503, "an unready service")
        assert "no module named 'orjson'" in get(intake.app, "/readyz").json()["detail"]
        assert get(intake.app, "/healthz").status_code == 200
        key = (tmp_path / "outrider-data" / "key").read_text().strip()
        began = time.monotonic()
        assert "cannot be offered" in get(intake.app, "/v1/models", key).json()["detail"]
        assert time.monotonic() - began < routes._LOAD_S, "nobody waits for what has failed"
        is_mended.set()
        wait_until(lambda: get(intake.app, "/readyz").status_code == 200, "a ready service")
        assert get(intake.app, "/v1/models", key).status_code == 200
    finally:
        stopped.set()
        keeper.join()
        intake.close()


def get(app: Callable[..., Any], path: str, key: str = "") -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path, headers={"authorization": f"Bearer {key}"})

    return asyncio.run(ask())
