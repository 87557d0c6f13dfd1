"""One exchange: its deadline, its limit, its redirects, and where it connects to."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from outrider.addresses import ANYWHERE, AddressGuard
from outrider.http_client import HttpClient, is_local
from tests.scripted_server import Reply, scripted_server


class Handler(BaseHTTPRequestHandler):
    """Says in each answer who asked, and how."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer by the path."""
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("location", "/")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        port, host = self.client_address[1], self.headers["host"]
        body = f"{port} {host}".encode()
        self.send_response(200)
        self.send_header("content-length", "1000" if self.path == "/drips" else str(len(body)))
        self.end_headers()
        while self.path == "/drips" and not STOP.wait(0.05):
            self.wfile.write(b"x")
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


STOP = threading.Event()


@pytest.fixture
def url() -> Iterator[str]:
    STOP.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    STOP.set()
    server.shutdown()
    thread.join()
    server.socket.close()


def test_connection_is_kept_and_body_cut_at_its_limit(url: str) -> None:
    client = HttpClient(url)
    ports = {client.exchange("GET", url, deadline_s=20).body.split()[0] for _ in range(3)}
    assert len(ports) == 1
    answer = client.exchange("GET", url, deadline_s=20, max_bytes=2)
    assert (len(answer.body), answer.is_cut) == (2, True)


def test_answer_that_drips_ends_with_the_deadline(url: str) -> None:
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        HttpClient(url).exchange("GET", f"{url}/drips", deadline_s=0.5)
    assert 0.4 < time.monotonic() - start < 20
    STOP.set()


def test_redirect_is_an_answer_unless_followed(url: str) -> None:
    client = HttpClient(url)
    assert client.exchange("GET", f"{url}/moved", deadline_s=20).status == 302
    assert client.exchange("GET", f"{url}/moved", deadline_s=20, follows=True).status == 200


def test_guarded_client_connects_to_the_checked_address_in_the_name_of_the_host(url: str) -> None:
    named = url.replace("127.0.0.1", "hook.example")
    told = iter(["127.0.0.1", "127.0.0.2"])  # the name leads elsewhere once it was checked
    client = HttpClient(named, guard=AddressGuard(("127.0.0.1",), look_up=lambda _host, _port: [next(told)]))
    answer = client.exchange("GET", named, deadline_s=20)
    assert answer.body.split()[1].decode() == named.removeprefix("http://")
    with pytest.raises(PermissionError, match=r"hook\.example is 127\.0\.0\.2"):
        client.exchange("GET", named, deadline_s=20)  # though the connection to the first is kept


def test_followed_redirect_to_another_server_carries_no_key() -> None:
    with scripted_server(lambda _: Reply(b"here")) as server:
        moved = Reply(status=302, headers={"location": server.url})
        with scripted_server(lambda _: moved) as first:
            headers = {"authorization": "Bearer secret"}
            answer = HttpClient(first.url).exchange(
                "GET", first.url, headers=headers, deadline_s=20, follows=True
            )
            assert answer.body == b"here"
            assert "authorization" in first.asked[0].headers
        assert "authorization" not in server.asked[0].headers


def test_guarded_client_follows_no_redirect(url: str) -> None:
    client = HttpClient(url, guard=AddressGuard(ANYWHERE))
    assert client.exchange("GET", f"{url}/moved", deadline_s=20).status == 302
    with pytest.raises(ValueError, match="follows: False expected"):
        client.exchange("GET", f"{url}/moved", deadline_s=20, follows=True)


def test_proxy_of_the_environment_is_asked_but_for_this_machine(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", url)
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    far = "http://model.invalid/x"
    assert HttpClient(far).exchange("GET", far, deadline_s=20).body.split()[1] == b"model.invalid"
    with pytest.raises(OSError, match="refused"):
        HttpClient("http://127.0.0.1:1").exchange("GET", "http://127.0.0.1:1", deadline_s=20)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://localhost:8", True),
        ("http://[::1]/", True),
        ("http://127.9.9.9", True),
        ("http://a.b", False),
    ],
)
def test_local_addresses_are_known(address: str, expected: bool) -> None:
    assert is_local(address) is expected
