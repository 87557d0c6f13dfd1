"""Copies of requests are taken at once, in order, without the secrets of who sent them."""

import gzip

import httpx

from outrider.monitor.server import mirror_queue
from outrider.monitor.server.local_server import LocalServer
from outrider.monitor.server.mirror_queue import MirroredRequest, MirrorQueue


def taken(copies: MirrorQueue, count: int) -> list[MirroredRequest]:
    found: list[MirroredRequest] = []
    for some in copies.waiting():
        found += some
        if len(found) >= count:
            return found
    raise AssertionError


def test_copies_come_in_order_and_without_secrets() -> None:
    copies = MirrorQueue()
    with LocalServer(copies) as server, httpx.Client(base_url=server.url) as client:
        headers = {"authorization": "Bearer secret", "cookie": "a=b", "x-request-id": "r1"}
        for number in range(20):
            answer = client.post(
                "/v1/chat/completions", content=gzip.compress(b"%d" % number),
                headers=headers | {"content-encoding": "gzip"},
            )  # fmt: skip
            assert answer.status_code == 204
        found = taken(copies, 20)
    assert [one.body for one in found] == [b"%d" % number for number in range(20)]
    assert {one.path for one in found} == {"/v1/chat/completions"}
    assert found[0].headers["x-request-id"] == "r1"
    assert not {"authorization", "cookie"} & found[0].headers.keys()


def test_what_nobody_asks_about_is_shed_and_counted() -> None:
    copies = MirrorQueue()
    with LocalServer(copies) as server, httpx.Client(base_url=server.url) as client:
        for _ in range(mirror_queue.WAITING + 5):
            assert client.post("/", content=b"{}").status_code == 204
        assert (copies.received, copies.shed) == (mirror_queue.WAITING, 5)


def test_a_question_of_a_comparison_is_not_asked_again() -> None:
    copies = MirrorQueue()
    with LocalServer(copies) as server, httpx.Client(base_url=server.url) as client:
        assert client.post("/", content=b"{}", headers={"x-outrider-shadow": "1"}).status_code == 204
        assert (copies.received, copies.own) == (0, 1)


def test_a_body_that_is_too_long_is_refused() -> None:
    copies = MirrorQueue()
    with LocalServer(copies) as server, httpx.Client(base_url=server.url) as client:
        answer = client.post("/", content=b"0" * (mirror_queue.BODIES.max_bytes + 1))
        assert answer.status_code == 413
        assert copies.refused == 1
