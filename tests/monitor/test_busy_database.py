import asyncio
from pathlib import Path

import httpx
from fastapi import APIRouter
from sqlalchemy import create_engine, text

from outrider.monitor.server.app import build_app


def test_a_busy_database_is_503_and_says_when_to_come_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    holder, asked = create_engine(url), create_engine(url, connect_args={"timeout": 0.05})
    router = APIRouter()

    @router.get("/write")
    def write() -> None:
        with asked.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    app = build_app(fault=lambda: None, routers=[router])
    with holder.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.execute(text("SELECT 1"))

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
                return await client.get("/write")

        answer = asyncio.run(ask())
    holder.dispose()
    asked.dispose()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "busy" in answer.json()["detail"]
