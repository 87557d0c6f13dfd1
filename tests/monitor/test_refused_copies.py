"""Copies that are refused, told to whom it concerns: the mirror that sent them threw the answer away."""

import asyncio
from collections.abc import Mapping

from outrider.monitor.http.limits import Message, Receive, Scope, Send
from outrider.monitor.http.refused_copies import RefusedCopies


class Bench:
    """Answers every request with a status of one's own."""

    def __init__(self) -> None:
        self.status = 200
        self.now = 1000.0
        self.copies = RefusedCopies(self.answer, self.is_copy, now=lambda: self.now)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def is_copy(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:
        return path.endswith("/infer")

    def ask(self, status: int, path: str = "/v2/models/m/infer", method: str = "POST") -> None:
        self.status = status
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b""}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: Scope = {"type": "http", "method": method, "path": path, "headers": []}
        asyncio.run(self.copies(scope, receive, send))
        assert sent[0]["status"] == status

    def told(self) -> list[tuple[int, str]]:
        return [(one.count, one.reason.split(":")[0]) for one in self.copies.newest()]


def test_copies_without_what_is_needed_are_counted_by_what_they_lack() -> None:
    bench = Bench()
    for status in (200, 421, 421, 401, 403, 429, 500):
        bench.ask(status)
        bench.now += 1
    assert bench.told() == [
        (2, "without a valid key"),
        (2, "without the header x-outrider-mirror"),
    ]


def test_what_nobody_sends_any_more_is_forgotten_and_begins_anew() -> None:
    bench = Bench()
    bench.ask(421)
    bench.now += 601
    assert bench.told() == []
    bench.ask(421)
    [one] = bench.copies.newest()
    assert (one.count, one.first_us) == (1, int(bench.now * 1e6))


def test_other_requests_are_nobody_s_copies() -> None:
    bench = Bench()
    bench.ask(401, path="/v1/records")
    bench.ask(404, path="/v1/nothing")
    bench.ask(401, method="GET")
    assert bench.told() == []
