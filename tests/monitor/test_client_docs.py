"""docs/client.md and docs/platforms/fastapi.md: their code runs as it stands there, and is captured."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from outrider.monitor import client as module

from .receiver import Receiver, nothing_is_left
from .test_client_middleware import ask_wsgi

__all__ = ["nothing_is_left"]  # a fixture, for every test here

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    receiver = Receiver()
    monkeypatch.setenv("OUTRIDER_URL", receiver.url)
    monkeypatch.setenv("OUTRIDER_KEY", "key")
    yield receiver
    receiver.close()


def run_blocks(name: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": name}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return names


def flush_all() -> None:
    assert all(client.flush() for client in list(module._clients))


def test_the_page_of_the_client_runs(receiver: Receiver) -> None:
    names = run_blocks("client.md")
    flush_all()
    watched, called, photo, reference = sorted(receiver.records, key=lambda record: record["ts"])
    assert (watched["entity"], watched["attrs"], watched["version"]) == ("u7", {"device": "web"}, "3")
    assert watched["inputs"] == called["inputs"] == {"age": 41.0}
    assert receiver.labels[0]["id"] == called["id"] == names["record_id"]
    assert photo["inputs"]["photo"] == {"$part": 0, "media_type": "image/png"}
    assert reference["inputs"]["photo"]["$uri"] == "s3://photos/a.png"
    assert names["sampled"].capture({}, {"score": 0.5}) is not None


def test_the_services_of_the_page_are_captured(receiver: Receiver) -> None:
    names = run_blocks("platforms/fastapi.md")

    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(app=names["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            return await http.post("/predict", json={"age": 41}, headers={"x-user": "u7"})

    answer = asyncio.run(call())
    ask_wsgi(names["application"], "/predict", b'{"age": 50}', HTTP_X_USER="u8")
    flush_all()
    asgi, wsgi = sorted(receiver.records, key=lambda record: record["ts"])
    assert (asgi["id"], asgi["entity"], asgi["attrs"]) == (answer.json()["record"], "u7", {"device": "web"})
    assert (wsgi["entity"], wsgi["outputs"]) == ("u8", {"score": 0.5})
    for comment in re.findall(r"^# (?:Flask|Django):\s+(.*)$", _text("platforms/fastapi.md"), re.MULTILINE):
        compile(comment, "fastapi.md", "exec")


def _text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_every_public_name_stands_in_the_pages() -> None:
    text = _text("client.md") + _text("platforms/fastapi.md")
    assert [name for name in module.__all__ if name != "Counts" and name not in text] == []
    assert [name for name in module.Counts.__dataclass_fields__ if name not in text] == []
