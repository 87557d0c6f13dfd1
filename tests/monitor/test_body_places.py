"""Bodies under way and bytes in memory: who they are counted for, and that they are given back."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.monitor.http.auth import KeyGate
from outrider.monitor.http.body_places import KEYLESS, STRANGERS, BodyPlaces, holder_of
from outrider.monitor.http.limits import ByteBudget, Receive, Scope, Send
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.http.responses import send_bytes
from tests.keyrings import keyring_in
from tests.scopes import every_scope


class Service:
    """A gate before an application that reads bodies, piece by piece."""

    def __init__(self, folder: Path, most: int = 2) -> None:
        self.keyring = keyring_in(folder)
        self.places = BodyPlaces(most)
        self.seen: list[str] = []
        self.gate = KeyGate(
            self.app,
            self.keyring,
            routes=every_scope(),
            is_keyless=lambda scope: scope["client"][0] == "10.0.0.1",
            places=self.places,
        )

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(holder_of(scope))
        try:
            while (await receive()).get("more_body", False):
                pass
        except ProblemError as error:
            await send_bytes(send, error.problem.status, error.problem.body(), b"text/plain")
            return
        await send_bytes(send, 202, b"", b"text/plain")

    def ask(
        self, key: str = "", *, peer: str = "127.0.0.1", path: str = "/v1/records", cookie: str = ""
    ) -> tuple["asyncio.Queue[dict[str, Any]]", Awaitable[int]]:
        """A request under way: where its body goes, and its status to come."""
        headers = [(b"content-length", b"100"), (b"host", b"localhost")]
        headers += [(b"authorization", f"Bearer {key}".encode())] if key else []
        headers += [(b"cookie", f"outrider={cookie}".encode())] if cookie else []
        body: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers,
            "client": (peer, 1), "scheme": "http",
        }  # fmt: skip
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        async def status() -> int:
            await self.gate(scope, body.get, send)
            return int(said[0]["status"])

        return body, asyncio.ensure_future(status())


PART = {"type": "http.request", "body": b"a", "more_body": True}
LAST = {"type": "http.request", "body": b"a", "more_body": False}
GONE = {"type": "http.disconnect"}


def key_of(folder: Path, name: str) -> str:
    return (folder / name).read_text().strip()


def test_each_key_has_its_own_places_and_gets_them_back(tmp_path: Path) -> None:
    async def go() -> list[int]:
        service = Service(tmp_path)
        owner, sender = key_of(tmp_path, "key"), key_of(tmp_path, "key.ingest")
        first, second, third = (service.ask(sender) for _ in range(3))
        refused = await third[1]
        other = service.ask(owner)
        other[0].put_nowait(LAST)
        taken = await other[1]
        first[0].put_nowait(PART)
        first[0].put_nowait(LAST)
        second[0].put_nowait(GONE)
        done = [await first[1], await second[1]]
        again = service.ask(sender)
        again[0].put_nowait(LAST)
        assert service.seen[0] == "key 'ingest'"
        return [refused, taken, *done, await again[1]]

    assert asyncio.run(go()) == [429, 202, 202, 202, 202]


def test_strangers_and_trusted_networks_have_places_of_their_own(tmp_path: Path) -> None:
    async def go() -> list[str]:
        service = Service(tmp_path, most=1)
        stranger, trusted = service.ask(path="/login"), service.ask(peer="10.0.0.1")
        sender = service.ask(key_of(tmp_path, "key.ingest"))
        await asyncio.sleep(0)
        _, status = service.ask(path="/login")
        assert await status == 429
        for body, answer in (stranger, trusted, sender):
            body.put_nowait(LAST)
            assert await answer == 202
        return service.seen

    assert asyncio.run(go())[:3] == [STRANGERS, KEYLESS, "key 'ingest'"]


def test_a_wrong_key_takes_no_place(tmp_path: Path) -> None:
    async def go() -> None:
        service = Service(tmp_path, most=1)
        for _ in range(5):
            _, status = service.ask("or_wrong")
            assert await status == 401
        assert service.seen == []

    asyncio.run(go())


def test_a_session_takes_the_places_of_its_key_also_for_a_form(tmp_path: Path) -> None:
    async def go() -> list[int]:
        service = Service(tmp_path, most=1)
        holder = service.keyring.by_key(key_of(tmp_path, "key"))
        assert holder is not None
        cookie = service.keyring.open_session(holder, address="", agent="")
        held = service.ask(key_of(tmp_path, "key"))
        await asyncio.sleep(0)
        service.places.take("key 'web'")  # of another: nothing to this one
        scope_answer = service.ask(cookie=cookie, path="/v1/pauses")
        refused = await scope_answer[1]
        held[0].put_nowait(LAST)
        return [refused, await held[1]]

    refused, taken = asyncio.run(go())
    assert (refused in (403, 429), taken) == (True, 202)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.booleans()), max_size=40))
def test_places_taken_and_given_in_any_order_never_exceed_the_bound(steps: list[tuple[str, bool]]) -> None:
    places, held = BodyPlaces(3), {"a": 0, "b": 0}
    for holder, is_taken in steps:
        if is_taken and held[holder] < 3:
            places.take(holder)
            held[holder] += 1
        elif is_taken:
            with pytest.raises(ProblemError, match=r"connections\.bodies_per_key"):
                places.take(holder)
        elif held[holder]:
            places.give(holder)
            held[holder] -= 1


def test_one_key_holds_at_most_half_of_the_bytes_and_others_the_rest() -> None:
    budget = ByteBudget(100)
    budget.take(40, "key 'a'")
    with pytest.raises(ProblemError, match=r"key 'a': 40 bytes.*limits\.queue_bytes"):
        budget.take(20, "key 'a'")
    budget.take(50, "key 'b'")
    budget.give(40, "key 'a'")
    budget.take(50, "key 'a'")
    budget.give(50, "key 'a'")
    budget.give(50, "key 'b'")
    assert budget.held == 0
    budget.take(500, "key 'a'")  # alone, any body passes
