"""The page on nginx as its reader follows it: Debian's nginx mirrors to a running service."""

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.end_to_end.service import CONFIG, Service, wait_until, write_project
from tests.nginx import free_port, nginx
from tests.soak import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "platforms" / "nginx.md"
[GUIDE, SHARE] = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
BODY = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [0.95]}]}
TIMEOUTS = re.findall(r"proxy_(?:connect|send|read)_timeout \d+ms;", GUIDE)
KEY_LINE = 'proxy_set_header Authorization "Bearer or_THE_KEY_OF_OUTRIDER";'


class Production(ThreadingHTTPServer):
    """A model server that answers every request and keeps its headers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []


class Answer(BaseHTTPRequestHandler):
    """Answers one request, and the next of its connection."""

    protocol_version = "HTTP/1.1"
    server: Production

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.paths.append(self.path)
        payload = json.dumps({"outputs": [{"name": "label", "data": [1]}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving() -> Iterator[Production]:
    server = Production()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def mirroring(
    folder: Path, production: Production, *, outrider: int, guide: str = GUIDE, key: str = "none"
) -> Iterator[httpx.Client]:
    """nginx by the page, between a caller and production, with the test's ports."""
    port = free_port()
    changes = {
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{production.server_port};",
        "server 127.0.0.1:8470;": f"server 127.0.0.1:{outrider};",
        "listen 8080;": f"listen 127.0.0.1:{port};",
    }
    for before, after in changes.items():
        assert guide.count(before) == 1, before
        guide = guide.replace(before, after)
    guide = guide.replace("or_THE_KEY_OF_OUTRIDER", key)
    with (
        nginx(folder, guide),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        yield client


def infer(client: httpx.Client, **more: Any) -> httpx.Response:
    answer = client.post("/v2/models/toy/infer", json=BODY, **more)
    assert answer.json()["outputs"][0]["data"] == [1]  # production's answer
    return answer


def without(*lines: str) -> str:
    """The page's configuration without some of its lines."""
    text: str = GUIDE
    for line in lines:
        assert line in text, line
        text = text.replace(line, "")
    return text


def shown(service: Service, text: str) -> bool:
    return text in service.client.get("/m/toy").text


def test_copies_of_nginx_become_records_with_the_id_that_production_got(tmp_path: Path) -> None:
    with serving() as production, Service(write_project(tmp_path / "project", config=CONFIG)) as service:
        outrider = service.client.base_url.port
        assert outrider is not None
        key = service.client.headers["Authorization"].removeprefix("Bearer ")
        with mirroring(tmp_path / "nginx", production, outrider=outrider, key=key) as client:
            secret = {"authorization": "Bearer of-production", "cookie": "session=of-production"}
            given = infer(client, headers={"x-request-id": "mine-1"} | secret)
            made = infer(client, headers=secret)
            client.get("/v2/models/toy")
        assert given.headers["x-request-id"] == "mine-1"
        assert re.fullmatch(r"[0-9a-f]{32}", made.headers["x-request-id"])
        ids = [given.headers["x-request-id"], made.headers["x-request-id"]]
        assert [one["x-request-id"] for one in production.headers[:2]] == ids
        assert {one.get("authorization") for one in production.headers[:2]} == {"Bearer of-production"}
        assert production.paths == ["/v2/models/toy/infer", "/v2/models/toy/infer", "/v2/models/toy"]
        service.wait_judged(2)
        flags = service.client.get("/v1/flags", params={"model": "toy"}).json()["flags"]
        assert {flag["record_id"] for flag in flags if flag["assertion"] == "too_high"} == set(ids)
        metrics = service.client.get("/metrics").text
        assert 'outrider_responses_total{process="intake",route="infer",status="2xx"} 2.0' in metrics
        assert not shown(service, "Mirrored requests are refused")

        # Half a configuration: production answers as ever, nothing arrives, and the page says why.
        unmarked = without("proxy_set_header x-outrider-mirror 1;")
        with mirroring(
            tmp_path / "unmarked", production, outrider=outrider, guide=unmarked, key=key
        ) as client:
            infer(client)
            wait_until(
                lambda: shown(service, "without the header x-outrider-mirror: 1"), "the notice", service
            )
        with mirroring(tmp_path / "keyless", production, outrider=outrider, key="or_wrong") as client:
            infer(client)
            wait_until(lambda: shown(service, "without a valid key"), "the notice", service)
        assert shown(service, "Mirrored requests are refused")
        assert service.count("records") == 2


@contextlib.contextmanager
def stopped_sidecar() -> Iterator[int]:
    """Port of a process that has stopped: its machine takes connections, nobody answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        port: int = listener.getsockname()[1]
        yield port


def test_a_stopped_sidecar_holds_no_caller_for_long(tmp_path: Path) -> None:
    """Callers with keep-alive wait for the time-outs of the page, without them for nginx's own minute."""
    assert len(TIMEOUTS) == 3
    with serving() as production, stopped_sidecar() as outrider:
        with mirroring(tmp_path / "bounded", production, outrider=outrider) as client:
            began = time.monotonic()
            for _ in range(3):
                infer(client)
            bounded_s = time.monotonic() - began
        patient = without(*TIMEOUTS)
        with mirroring(tmp_path / "patient", production, outrider=outrider, guide=patient) as client:
            infer(client)  # the answer itself never waits for its copy
            with pytest.raises(httpx.ReadTimeout):
                infer(client, timeout=max(1.0, 3 * bounded_s))


def test_a_sidecar_that_is_gone_is_not_noticed(tmp_path: Path) -> None:
    with (
        serving() as production,
        mirroring(tmp_path / "nginx", production, outrider=free_port()) as client,
    ):
        for _ in range(3):
            infer(client)
    assert len(production.paths) == 3


def test_a_share_of_the_traffic_is_copied_as_the_page_says(tmp_path: Path) -> None:
    assert "if ($is_copied = 0) { return 204; }" in PAGE.read_text(encoding="utf-8")
    split = SHARE.replace("10%", "50%")
    guide = split + GUIDE.replace("internal;", "internal;\nif ($is_copied = 0) { return 204; }")
    with (
        serving() as production,
        serving() as copies,
        mirroring(tmp_path / "nginx", production, outrider=copies.server_port, guide=guide) as client,
    ):
        for number in range(40):
            infer(client, headers={"x-request-id": f"r{number}"})
        # The last copy is over before the connection takes another request.
        client.get("/v2/models/toy")
    assert 0 < len(copies.paths) < 40
    assert {one["x-outrider-mirror"] for one in copies.headers} == {"1"}
    assert all("authorization" in one and "cookie" not in one for one in copies.headers)
