"""Malformed requests to every route of a service, a million in a full soak: no fault, no growth, no loss."""

import asyncio
import ctypes
import gc
import logging
import os
import random
import re
import socket
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

import pytest
from scipy.stats import theilslopes

from outrider.dataops.access.scopes import SCOPES, Right
from outrider.dataops.access.store import KeyLimits
from outrider.monitor.http.keyring import Keyring
from outrider.monitor.http.problem import CONTENT_TYPE
from outrider.monitor.process.child import keep_freed_memory_together
from tests.end_to_end.service import Service, write_project
from tests.keyrings import logged_in
from tests.monitor.web.test_api_types import Api
from tests.scopes import every_route, every_scope
from tests.soak import IS_FULL, PATIENCE_S, rounds

from .addresses import Known, Sender, routes_of
from .asgi_client import Answer, ask
from .mutations import Request
from .test_fuzz import seeds
from .worked_requests import complete, jobs_that_fail, worked_requests

REQUESTS = 1_000_000 if IS_FULL else rounds(50_000, part=20)
AT_ONCE = 10
EXPLAINED = (503, 507)
_GROWTH_BYTES = 1_000_000
"""Of the resident memory, for each hundred thousand requests."""
_LOOKS = 50
"""At the memory, in the second half."""


class Visitors:
    """Headers of the owner, of a browser, of a key for each scope, and of a stranger.

    Requests revoke keys and end sessions; those that are gone are made anew, and the owner's limits lifted.
    """

    def __init__(self, keyring: Keyring, owner: str) -> None:
        self._keyring, self._owner = keyring, owner
        self._made = 0
        self._keys: dict[Right, str] = {}
        self._browser: dict[str, str] = {}

    def __call__(self) -> list[dict[str, str]]:
        """Headers by which a request is let in; a stranger's are the last."""
        cookie = self._browser.get("cookie", "").partition("=")[2]
        if not cookie or self._keyring.by_cookie(cookie) is None:
            self._browser = logged_in(self._keyring, self._owner)
        owner = self._keyring.by_key(self._owner)
        if owner is not None and owner.meter is not None:
            self._keyring.limit_key(owner.name, KeyLimits())
        for scope in SCOPES:
            if self._keyring.by_key(self._keys.get(scope, "")) is None:
                self._keys[scope] = self._new_key(scope)
        bearers = [
            {"authorization": f"Bearer {key}"} for key in (self._owner, *self._keys.values(), "or_unknown")
        ]
        return [bearers[0], self._browser, *bearers[1:]]

    def _new_key(self, scope: Right) -> str:
        self._made += 1
        key = self._keyring.add_key(f"fuzz {self._made}", scopes=[scope], limits=KeyLimits(), by="a test")
        assert key is not None
        return key


def is_fault(answer: Answer) -> bool:
    """Test for a 5xx that does not say why."""
    is_problem = (
        answer.headers.get("content-type", "").encode() == CONTENT_TYPE and b'"detail"' in answer.body
    )
    return answer.status >= 500 and not (answer.status in EXPLAINED and is_problem)


@dataclass
class Attack:
    """Statuses, routes that had success, what was not answered as it should be, memory."""

    statuses: Counter[int] = field(default_factory=Counter)
    answered: set[str] = field(default_factory=set)
    faults: list[tuple[Request, str]] = field(default_factory=list)
    resident: list[tuple[int, int]] = field(default_factory=list)
    """Requests so far and resident bytes, many in the second half of a full soak: half a second each."""

    @property
    def slope(self) -> float:
        """Bytes by which the memory grows for each hundred thousand requests.

        Theil and Sen's median of the slopes between all pairs: caches fill and empty by several megabytes.
        """
        requests, resident = zip(*self.resident, strict=True)
        return float(theilslopes(resident, requests).slope) * 100_000


def _actions() -> list[str]:
    return [route.action for route in every_route()]


async def beset(api: Api, worked: Sequence[Request], rng: random.Random) -> Attack:
    """Send requests to every route of an application."""
    known, attack, scopes = Known(), Attack(), every_scope()
    routes, visitors = routes_of(_actions(), api.document), Visitors(api.intake.keyring, api.key)
    sender = Sender(routes, api.document, known, visitors, seeds(), rng, worked)

    async def one(request: Request) -> Answer:
        try:
            answer = await asyncio.wait_for(ask(api.intake.app, request), PATIENCE_S)
        except Exception as error:  # the server would log it and answer 500
            logging.getLogger(__name__).exception("%r", request)
            attack.faults.append((request, repr(error)))
            return Answer(500)
        attack.statuses[answer.status] += 1
        if answer.status < 400 and (route := scopes.find(request.method, path_of(request), {})) is not None:
            attack.answered.add(route.action)
        if is_fault(answer):
            attack.faults.append((request, f"{answer.status} {answer.body[:300]!r}"))
        return answer

    # what the first pass shows names what the second asks for
    for request in chain(sender.valid(), sender.valid(), sender.until(attack.answered)):
        answer = await one(request)
        if answer.status < 300:
            known.learn(answer.body)
    count = REQUESTS // AT_ONCE
    for number in range(count):
        if IS_FULL and number >= count // 2 and number % max(1, count // (2 * _LOOKS)) == 0:
            attack.resident.append((number * AT_ONCE, resident_bytes()))
        await asyncio.gather(*(one(sender.draw()) for _ in range(AT_ONCE)))
        api.intake.keyring.refresh()
    return attack


def path_of(request: Request) -> str:
    """Path without its query, as a server hands it over."""
    return unquote(request.path.partition("?")[0])


def resident_bytes() -> int:
    """Memory of this process without what waits for the collector or is free within the allocator."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # a peak leaves holes, which are no growth
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def judged(folder: Path) -> tuple[int, int]:
    """Records and flags of the sample."""
    with closing(sqlite3.connect(folder / "data" / "state.db")) as database:
        [records] = database.execute("SELECT count(*) FROM record").fetchone()
        [flags] = database.execute("SELECT count(*) FROM flag").fetchone()
    return records, flags


@pytest.mark.timeout(36_000 if IS_FULL else 3_600)
def test_no_request_breaks_a_route(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep_freed_memory_together()
    api = Api(tmp_path)
    complete(api)
    worked = worked_requests(api)
    try:
        before = judged(tmp_path)
        with caplog.at_level(logging.ERROR), jobs_that_fail(api):
            attack = asyncio.run(beset(api, worked, random.Random(14)))
        assert not attack.faults, "\n".join(f"{request}: {why}" for request, why in attack.faults[:5])
        assert not caplog.records, caplog.records[0].getMessage()
        assert judged(tmp_path) == before
        assert api.intake.writer.fault is None
        assert api.ask("GET", "/readyz").status_code == 200
    finally:
        api.intake.close()
    assert attack.answered == {*_actions()}
    statuses = attack.statuses
    assert statuses.total() >= REQUESTS
    # Neither all refused at the door nor all harmless.
    for family in (2, 4):
        assert sum(n for status, n in statuses.items() if status // 100 == family) > REQUESTS / 10, statuses
    if IS_FULL:
        assert attack.slope <= _GROWTH_BYTES, attack.resident


def test_a_real_service_outlives_malformed_requests(tmp_path: Path) -> None:
    rng, known = random.Random(15), Known()
    with Service(write_project(tmp_path)) as service:
        kept = [{"id": f"kept-{n}", "inputs": {"x": n / 200}} for n in range(200)]
        assert service.post(kept).json()["accepted"] == 200
        service.wait_judged(200)
        processes = service.processes()
        owner = {"authorization": service.client.headers["authorization"]}
        document = service.client.get("/openapi.json").json()
        sender = Sender(routes_of(_actions(), document), document, known, lambda: [owner, {}], seeds(), rng)
        port = service.client.base_url.port
        assert port is not None
        for request in sender.valid():
            head, _, body = on_socket(port, request).partition(b"\r\n\r\n")
            if b" 200 " in head.partition(b"\r\n")[0]:
                known.learn(body)
        statuses = Counter[int]()
        for _ in range(rounds(5_000)):
            request = sender.draw()
            answer = on_socket(port, request)
            found = re.search(rb"^HTTP/1.1 ([2-5]\d\d)", answer, re.MULTILINE)
            # A request that says it goes on and then does not is only hung up on.
            statuses[status := int(found[1]) if found else 0] += 1
            assert status < 500 or status in EXPLAINED, f"{request}: {answer[:500]!r}"
        assert service.is_ready()
        assert service.processes() == processes
        assert "Traceback" not in service.log.read_text(encoding="utf-8")
        once = "SELECT count(*), count(DISTINCT id) FROM record WHERE model = 'toy' AND id LIKE 'kept-%'"
        assert service.query(once) == [(200, 200)]
    assert statuses[200] > 0
    assert statuses[422] > 0


def on_socket(port: int, request: Request) -> bytes:
    """What a server answers to the bytes of a request, until it hangs up."""
    headers = {"host": "localhost", "content-length": str(len(request.body)), **request.headers}
    lines = [
        f"{request.method} {request.path} HTTP/1.1",
        *(f"{name}: {said}" for name, said in headers.items()),
    ]
    head = "\r\n".join([*lines, "connection: close", "", ""]).encode()
    answer = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        try:
            connection.sendall(head + request.body)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            pass  # refused before the body was read
    return answer
