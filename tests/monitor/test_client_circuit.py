"""A server that fails is left alone: the circuit opens, one record probes, the rest follows."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from outrider.monitor import client as module
from outrider.monitor.client import Client
from tests.soak import PATIENCE_S, promised

from .receiver import Receiver, nothing_is_left

__all__ = ["nothing_is_left"]  # a fixture, for every test here


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def wait_for(circuit: str, client: Client) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while client.circuit != circuit:
        assert time.monotonic() < deadline, client.circuit
        time.sleep(0.001)


def test_an_answering_server_leaves_the_circuit_closed(receiver: Receiver) -> None:
    client = Client(receiver.url, "key", model="churn")
    assert client.circuit == "closed"
    client.capture({"x": 1}, {})
    assert client.flush()
    assert client.circuit == "closed"
    client.close()


@pytest.mark.parametrize("status", [500, 507, 503, 401, 404, 301])
def test_failures_open_it_and_one_record_probes_until_it_closes(receiver: Receiver, status: int) -> None:
    receiver.status = status
    client = Client(receiver.url, "key", model="churn")
    for i in range(50):
        client.capture({"i": i}, {})
    wait_for("open", client)
    assert client.counts.queued == 50
    client._sender.wake()  # type: ignore[union-attr]  # it runs: the pause is cut short
    wait_for("half_open", client)
    receiver.status = 202
    assert client.flush(timeout=PATIENCE_S)
    assert client.circuit == "closed"
    assert [record["inputs"]["i"] for record in receiver.records] == list(range(50))
    probes = receiver.bodies[1:-1]
    assert set(probes) == {1}
    client.close()


def test_a_status_202_of_something_else_acknowledges_nothing(receiver: Receiver) -> None:
    receiver.answer = {"accepted": "yes"}
    client = Client(receiver.url, "key", model="churn")
    client.capture({"x": 1}, {})
    wait_for("open", client)
    assert client.counts.acknowledged == 0
    client.close(timeout=0)


def test_retry_after_is_waited_for(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 507, {"retry-after": "1.5"}
    client = Client(receiver.url, "key", model="churn")
    client.capture({"x": 1}, {})
    wait_for("open", client)
    time.sleep(0.7)  # the first pause is at most 0.2 s otherwise
    assert receiver.bodies == [1]
    client.close(timeout=0)


def test_a_connection_that_was_closed_while_idle_is_opened_again_without_a_pause(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.hang_up = True
    client = Client(receiver.url, "key", model="churn")
    for i in range(5):
        client.capture({"i": i}, {})
        assert client.flush()
        time.sleep(0.02)
    assert client.counts.acknowledged == 5
    assert caplog.text == ""
    client.close()


class Mute:
    """A listener that accepts, and answers nothing, or a byte now and then."""

    def __init__(self, drip: bytes = b"", every_s: float = 0.02) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.accepted = 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(drip, every_s))
        self.thread.start()

    def _run(self, drip: bytes, every_s: float) -> None:
        self.listener.settimeout(0.01)
        taken: list[tuple[socket.socket, Iterator[int]]] = []
        while not self.stopped.wait(every_s):
            with contextlib.suppress(TimeoutError):
                taken.append((self.listener.accept()[0], iter(drip)))
                self.accepted += 1
            for connection, bytes_ in taken:
                with contextlib.suppress(OSError):
                    for byte in bytes_:
                        connection.send(bytes([byte]))
                        break
        for connection, _ in taken:
            connection.close()
        self.listener.close()

    def close(self) -> None:
        self.stopped.set()
        self.thread.join()


@pytest.mark.parametrize(
    "drip", [b"", b"HTTP/1.1 202 Accepted\r\nx-long: " + b"x" * 5000], ids=["silence", "drip"]
)
def test_one_deadline_holds_for_a_whole_answer(drip: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.4)
    server = Mute(drip)
    client = Client(server.url, "key", model="churn")
    client.capture({"x": 1}, {})
    wait_for("open", client)
    assert client.counts.queued == 1
    client.close(timeout=0)
    server.close()


def test_exit_is_delayed_by_two_seconds_at_most_when_nothing_answers() -> None:
    server = Mute()
    code = (
        "import sys, time\nfrom outrider.monitor.client import Client\n"
        "clients = [Client(sys.argv[1], 'k', model='m') for _ in range(3)]\n"
        "for c in clients: c.capture({'x': 1}, {})\n"
        "time.sleep(0.3)\nprint(time.monotonic())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, server.url],
        check=True,
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
    )
    delay_s = time.monotonic() - float(done.stdout)
    server.close()
    assert server.accepted == 3
    assert delay_s < promised(2 + 1), "promised are 2 s; one for the end of the interpreter"
