"""Strangers with sockets and no key: the service goes on, in bounded memory, for everybody else."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from outrider.monitor.http.limits import Receive, Scope, Send
from outrider.monitor.http.responses import send_bytes
from outrider.monitor.server.connections import Connections
from outrider.monitor.settings.sections import ConnectionSettings
from tests.end_to_end.service import wait_until
from tests.soak import PATIENCE_S

from .beset import CLOSED, MIB, Pair, pair
from .running import running

CONFIG = """
[server]
port = 0
[connections]
header_s = 2
idle_s = 3
body_s = 3
[models.toy]
"""
LINE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/records HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("connections"), CONFIG) as found:
        yield found


def flood(connection: socket.socket, piece: bytes, most: int) -> int:
    """Send a piece again and again until the service has enough; how many bytes it took."""
    sent = 0
    with contextlib.suppress(*CLOSED):
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
    return sent


def rest(connection: socket.socket) -> bytes:
    """All that the service still says, until it closes."""
    said = b""
    with contextlib.suppress(*CLOSED):
        while part := connection.recv(65_536):
            said += part
    return said


def trickle(connection: socket.socket, *, wait_s: float = 0.1) -> bytes:
    """Send a byte at a time until the service closes; what it said."""
    connection.settimeout(wait_s)
    said, until = b"", time.monotonic() + PATIENCE_S
    with contextlib.suppress(*CLOSED):
        while time.monotonic() < until:
            connection.sendall(b"a")
            try:
                part = connection.recv(65_536)
            except TimeoutError:
                continue
            said += part
            if not part:
                return said
        raise AssertionError("the service lets a byte in ten seconds pass for ever")
    return said


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (LINE + b"X-Long: ", b"a" * 65_536),
        (b"GET /", b"a" * 65_536),
        (LINE, b"a: b\r\n" * 10_000),
        (LINE, b"x" * 65_536),
        (b"", b"\r\n" * 32_768),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"e" * 65_536 + b"\r\nx\r\n"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1;", b"e" * 65_536),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"t: v\r\n" * 10_000),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nt: ", b"t" * 65_536),
    ],
    ids=["value", "path", "fields", "name", "blank", "extensions", "extension", "trailers", "trailer"],
)
def test_what_never_ends_is_cut_off(services: Pair, start: bytes, piece: bytes) -> None:
    with services.attack() as service, service.connect() as connection:
        connection.sendall(start)
        taken = flood(connection, piece, 48 * MIB)
        # Blank lines alone cost nothing: they are taken until their time is over.
        assert taken < 32 * MIB or piece.isspace()
        rest(connection)


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"Content-Length: 0\r\nContent-Length: 60\r\n\r\n",
        b"Content-Length: +0\r\n\r\n",
        b"Content-Length : 0\r\n\r\n",
        b"Content-Length: 0, 0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"Connection: close\r\nContent-Length: 0\r\n\r\n",
        b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_no_request_is_smuggled_behind_a_doubtful_body(services: Pair, framing: bytes) -> None:
    with services.attack() as service, service.connect() as connection:
        connection.sendall(POST + framing + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said = rest(connection)
        assert said.count(b"HTTP/1.1 ") == 1, said
        assert b"HTTP/1.1 4" in said


def test_trailers_are_no_headers(services: Pair) -> None:
    with services.attack() as service, service.connect() as connection:
        key = b"authorization: Bearer " + service.key.encode()
        start = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(start + b"2\r\n[]\r\n0\r\n" + key + b"\r\n\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 401")


def test_too_large_a_header_is_named_to_its_sender(services: Pair) -> None:
    with services.attack() as service:
        for more, status in (
            (b"a: b\r\n" * 98, b"200"), (b"a: b\r\n" * 100, b"431"),
            (b"a: " + b"b" * 60_000 + b"\r\n", b"200"), (b"a: " + b"b" * 66_000 + b"\r\n", b"431"),
        ):  # fmt: skip
            with service.connect() as connection:
                connection.sendall(LINE + more + b"Connection: close\r\n\r\n")
                answer = rest(connection)
                assert answer.startswith(b"HTTP/1.1 " + status), answer[:200]
                assert status == b"200" or b"connections.header_" in answer


def test_a_header_or_body_of_a_byte_at_a_time_is_not_waited_for(services: Pair) -> None:
    with services.attack() as service:
        with service.connect() as connection:
            connection.sendall(LINE + b"X-Slow: ")
            assert trickle(connection).startswith(b"HTTP/1.1 408")
        bearer = b"Authorization: Bearer " + service.key.encode() + b"\r\n"
        for path in (b"/v1/records", b"/v1/reviews"):
            with service.connect() as connection:
                start = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n" + bearer
                connection.sendall(start + b"Content-Type: application/json\r\n\r\n[")
                assert trickle(connection).startswith(b"HTTP/1.1 40")


def test_a_body_that_nobody_wants_is_let_fall_and_not_for_ever(services: Pair) -> None:
    with services.attack() as service, service.connect() as connection:
        connection.sendall(POST + b"Content-Length: 100000\r\n\r\n")
        assert trickle(connection).startswith(b"HTTP/1.1 401")


def test_the_silent_and_the_idle_are_closed(services: Pair) -> None:
    with services.attack() as service, service.connect() as silent, service.connect() as idle:
        idle.sendall(LINE + b"\r\n")
        assert rest(silent) == b""
        assert rest(idle).startswith(b"HTTP/1.1 200")


def test_requests_in_a_pipeline_are_answered_in_order_and_bounded(services: Pair) -> None:
    with services.attack() as service:
        with service.connect() as connection:
            connection.sendall((LINE + b"\r\n") * 20 + LINE + b"Connection: close\r\n\r\n")
            assert rest(connection).count(b"HTTP/1.1 200") == 21
        connections = [service.connect() for _ in range(50)]
        for connection in connections:
            connection.setblocking(False)
        piece = b"GET / HTTP/1.1\r\n\r\n" * 10_000
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            for connection in connections:
                with contextlib.suppress(BlockingIOError, *CLOSED):
                    connection.send(piece)
        for connection in connections:
            connection.close()


@contextlib.contextmanager
def serving(body: bytes, limits: ConnectionSettings) -> Iterator[tuple[Connections, int]]:
    """A server of one answer, in a thread; its connections and its port."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send_bytes(send, 200, body, b"text/plain")

    connections = Connections(limits, total=64)
    http = connections.protocol()
    config = uvicorn.Config(app, loop="uvloop", http=http, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield connections, listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)


def test_an_answer_is_given_up_when_nobody_reads_it_but_not_when_it_is_read_slowly() -> None:
    limits = ConnectionSettings(idle_s=2, bytes_per_s=1000)
    body = bytes(16 * MIB)  # more than the kernel takes
    with (
        serving(body, limits) as (connections, port),
        socket.create_connection(("127.0.0.1", port)) as unread,
        socket.create_connection(("127.0.0.1", port)) as steady,
    ):
        for connection in (unread, steady):
            connection.sendall(LINE + b"Connection: close\r\n\r\n")
        read = 0
        while part := steady.recv(MIB):
            read += len(part)
            time.sleep(0.2)
        assert read > len(body)
        wait_until(lambda: len(connections) == 0, "end of the answer that nobody reads")
        assert len(rest(unread)) < len(body)


def test_keep_alive_lasts_as_long_as_requests_come(services: Pair) -> None:
    with services.attack() as service, service.connect() as connection:
        until = time.monotonic() + 5.0  # longer than any of the times
        while time.monotonic() < until:
            connection.sendall(LINE + b"\r\n")
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                answer += connection.recv(65_536)
            time.sleep(0.2)


def test_eleven_hundred_silent_sockets_at_1024_descriptors_keep_nobody_out(tmp_path: Path) -> None:
    config = CONFIG.replace("[connections]", "[connections]\nper_address = 1000")
    with running(tmp_path / "p", config, descriptors=1024) as service, contextlib.ExitStack() as opened:
        for _ in range(1100):
            opened.enter_context(service.connect())
        for number in range(20):
            assert service.get("/healthz") == 200
            assert service.send(f"r{number}") == 202
        assert service.stored() == 20


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_at_the_bound_the_oldest_silent_one_goes_and_the_busy_stay(tmp_path: Path) -> None:
    config = CONFIG.replace("[connections]", "[connections]\nper_address = 8").replace("_s = ", "_s = 10")
    with running(tmp_path / "p", config) as service, contextlib.ExitStack() as opened:
        bearer = b"Authorization: Bearer " + service.key.encode() + b"\r\n"
        body = b'{"model": "toy", "id": "b%d", "inputs": {"x": 1}}'
        start = POST + bearer + b"Content-Type: application/json\r\nConnection: close\r\n"
        start += b"Content-Length: %d\r\n\r\n" % len(body % 0)

        def connect() -> socket.socket:
            return opened.enter_context(service.connect())

        def busy(number: int) -> socket.socket:
            connection = connect()
            connection.sendall(start + (body % number)[:20])
            return connection

        silent = [connect() for _ in range(2)]
        time.sleep(0.1)
        senders = [busy(number) for number in range(7)]
        assert rest(silent[0]) == b""
        senders.append(busy(7))
        assert rest(silent[1]) == b""
        # Nobody is left who only waits: what is asked now is how the service is.
        assert {service.get(path) for path in ("/healthz", "/readyz", "/metrics")} == {200}
        assert service.get("/v1/flags") == 503
        assert service.send("late") == 503
        for _ in range(40):  # more than the extra ones
            connect()
        assert service.get("/healthz") == 200
        for number, connection in enumerate(senders):
            connection.sendall((body % number)[20:])
            assert rest(connection).startswith(b"HTTP/1.1 202")
        assert service.send("later") == 202
        assert service.stored() == 9
