import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from standardwebhooks import Webhook

from outrider.dataops import outbox
from outrider.dataops.state.database import now_us, write
from outrider.errors import ConfigError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sections import WebhookSettings
from outrider.monitor.trainer.webhooks import (
    Endpoint,
    Refused,
    deliver,
    deliver_until,
    endpoints,
    send,
)
from tests.databases import migrated
from tests.soak import PATIENCE_S

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver(ThreadingHTTPServer):
    """Keeps what it is sent; answers with the statuses it is given, then 200."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses = list(statuses)
        self.received: list[tuple[dict[str, str], str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks?from=outrider"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.send_header("location", "http://127.0.0.1:1/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(503, 302) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = migrated(tmp_path / "state.db")
    yield engine
    engine.dispose()


def test_a_message_is_retried_with_one_id_until_it_is_taken(engine: Engine, receiver: Receiver) -> None:
    hook = Endpoint(receiver.url, outbox.EVENTS, SECRET, allow_private=True)
    with write(engine) as connection:
        (message_id,) = outbox.enqueue(
            connection,
            "model.promoted",
            {"model": "m"},
            targets=[outbox.WebhookTarget(hook.url, hook.events)],
            now_us=now_us(),
        )
    delivered = []
    for _ in range(4):
        delivered.append(deliver(engine, hook.url, hook))
        with write(engine) as connection:
            connection.execute(text("UPDATE outbox SET next_attempt_us = 0"))  # as if the backoff were over
    assert delivered == [0, 0, 1, 0]
    assert len(receiver.received) == 3  # 503, a redirect that is not followed, 200
    for headers, body in receiver.received:
        assert headers["webhook-id"] == message_id
        assert Webhook(SECRET).verify(body, headers)["type"] == "model.promoted"
    with engine.connect() as connection:
        row = connection.execute(text("SELECT attempts, delivered_us, last_error FROM outbox")).one()
    assert (row.attempts, row.last_error) == (3, "")
    assert row.delivered_us is not None


def test_nobody_listening_is_noted_and_tried_again(engine: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        hook = Endpoint(
            f"http://127.0.0.1:{server.getsockname()[1]}/", outbox.EVENTS, SECRET, allow_private=True
        )
    with write(engine) as connection:
        outbox.enqueue(
            connection,
            "model.promoted",
            {},
            targets=[outbox.WebhookTarget(hook.url, hook.events)],
            now_us=now_us(),
        )
    assert deliver(engine, hook.url, hook) == 0
    with engine.connect() as connection:
        assert "Refused" in (connection.scalar(text("SELECT last_error FROM outbox")) or "")


def test_an_address_that_never_answers_holds_up_itself_alone(engine: Engine, receiver: Receiver) -> None:
    receiver.statuses.clear()
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        slow = Endpoint(
            f"http://127.0.0.1:{silent.getsockname()[1]}/", outbox.EVENTS, SECRET, allow_private=True
        )
        quick = Endpoint(receiver.url, outbox.EVENTS, SECRET, allow_private=True)
        for hook in [slow] * 40 + [quick] * 5:
            with write(engine) as connection:
                target = outbox.WebhookTarget(hook.url, hook.events)
                outbox.enqueue(connection, "model.promoted", {}, targets=[target], now_us=now_us())
        thread = threading.Thread(target=deliver_until, args=(engine, [slow, quick], stop))
        thread.start()
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len(receiver.received) < 5 and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            stop.set()
        with engine.connect() as connection:
            query = text("SELECT count(*) FROM outbox WHERE url = :url AND attempts > 0")
            tried = connection.scalar(query, {"url": slow.url})
    thread.join()
    assert len(receiver.received) == 5
    assert tried < 5, "the address that says nothing has had its own turns alone"


def test_nothing_is_sent_to_a_private_address(receiver: Receiver) -> None:
    with pytest.raises(PermissionError, match="allow_private"):
        send(Endpoint(receiver.url, (), SECRET, allow_private=False), "msg_1", "{}", now=datetime.now(UTC))
    assert receiver.received == []


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "http:///x", "http://:word@example.com/", "file:///etc/passwd"]
)
def test_odd_addresses_are_refused(url: str) -> None:
    with pytest.raises(Refused, match="http:// or https://"):
        send(Endpoint(url, (), None, allow_private=True), "msg_1", "{}", now=datetime.now(UTC))


def test_secrets_come_from_the_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "hook.secret").write_text(SECRET + "\n")
    settings = Settings(base=tmp_path, webhooks=(WebhookSettings(url="http://a", secret_file="hook.secret"),))
    assert endpoints(settings)[0].secret == SECRET
    broken = Settings(base=tmp_path, webhooks=(WebhookSettings(url="http://a", secret="whsec_!"),))
    with pytest.raises(ConfigError, match="whsec_ and base64"):
        endpoints(broken)
