"""nginx with the mirror that the command prints: copies arrive, and nobody waits for one that is stuck."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from outrider.commands.mirror_snippets import snippets
from outrider.monitor.server.local_server import LocalServer
from outrider.monitor.server.mirror_queue import MirrorQueue
from tests.nginx import free_port, mirror_parts, nginx
from tests.soak import PATIENCE_S

REQUESTS = 20


@contextmanager
def gateway(folder: Path, listener: str) -> Iterator[httpx.Client]:
    """Client with one connection to a site whose requests are copied to a listener."""
    port, production = free_port(), free_port()
    upstream, mirror, copy = mirror_parts(snippets(listener))
    site = f"""{upstream}
    server {{ listen 127.0.0.1:{production}; return 200 answered; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ {mirror} proxy_pass http://127.0.0.1:{production}; }}
        {copy}
    }}"""
    one = httpx.Limits(max_connections=1)
    with (
        nginx(folder / "nginx", site),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, limits=one) as client,
    ):
        yield client


def ask(client: httpx.Client) -> None:
    answers = [client.post("/v1/chat/completions", json={"n": at}).text for at in range(REQUESTS)]
    assert answers == ["answered"] * REQUESTS


def test_every_request_is_copied_with_its_path_and_body(tmp_path: Path) -> None:
    copies = MirrorQueue()
    with LocalServer(copies) as listener, gateway(tmp_path, listener.url) as client:
        ask(client)
        found = []
        for some in copies.waiting():
            found += some
            if len(found) >= REQUESTS:
                break
    assert sorted(each.body for each in found) == sorted(b'{"n":%d}' % at for at in range(REQUESTS))
    assert {each.path for each in found} == {"/v1/chat/completions"}


@pytest.mark.parametrize("is_there", [True, False], ids=["it takes nothing", "it is not there"])
def test_a_listener_that_does_not_answer_is_spared_further_copies(tmp_path: Path, is_there: bool) -> None:
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def accept() -> None:
            while True:
                try:
                    connections.append(silent.accept()[0])
                except OSError:
                    return

        port = silent.getsockname()[1] if is_there else free_port()
        waiting = threading.Thread(target=accept, daemon=True)
        waiting.start()
        with gateway(tmp_path, f"http://127.0.0.1:{port}") as client:
            ask(client)
        silent.shutdown(socket.SHUT_RDWR)
    waiting.join(PATIENCE_S)
    for each in connections:
        each.close()
    assert is_there <= len(connections) < REQUESTS / 2
