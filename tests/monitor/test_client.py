"""The client: never in the way, never silent about what it dropped."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from outrider.monitor import client as module
from outrider.monitor.client import Client, OutriderMiddleware, watch

from .receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """All that clients held is given back once they are closed."""
    held = module._memory.held
    yield
    deadline = time.monotonic() + 5
    while module._memory.held > held and time.monotonic() < deadline:
        time.sleep(0.01)
    assert module._memory.held == held


@pytest.fixture
def client(receiver: Receiver) -> Iterator[Client]:
    client = Client(receiver.url, "key", model="churn", version="3")
    yield client
    client.close(timeout=1)


def check_balance(client: Client) -> None:
    c = client.counts
    assert c.offered == c.sampled_out + c.shed + c.error + c.acknowledged + c.queued


def test_a_capture_arrives_with_everything_it_was_given(receiver: Receiver, client: Client) -> None:
    record_id = client.capture({"age": 41}, {"score": 0.9}, entity="u7", attrs={"device": "web"})
    assert client.flush()
    [record] = receiver.records
    assert record.pop("ts").endswith("+00:00")
    assert record == {
        "model": "churn", "id": record_id, "version": "3", "entity": "u7",
        "inputs": {"age": 41}, "outputs": {"score": 0.9}, "attrs": {"device": "web"},
    }  # fmt: skip
    assert receiver.keys == {"Bearer key"}
    assert client.counts.acknowledged == client.counts.offered == 1


def test_values_are_as_at_call_time(receiver: Receiver, client: Client) -> None:
    inputs: dict[str, Any] = {"list": [1, {"deep": 1}], "array": np.ones((2, 2), dtype=np.float32)}
    client.capture(inputs, {})
    inputs["list"][1]["deep"] = 9
    inputs["array"][:] = 9
    assert client.flush()
    assert receiver.records[0]["inputs"] == {"list": [1, {"deep": 1}], "array": [[1.0, 1.0], [1.0, 1.0]]}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.arange(3), [0, 1, 2]),
        (np.array([[True], [False]]), [[True], [False]]),
        (np.array(["a"]), ["a"]),
        (np.float16(0.5), 0.5),
        (np.zeros((0, 2)), []),
        (np.arange(6).reshape(2, 3)[:, ::2], [[0, 2], [3, 5]]),
        ((1, 2), [1, 2]),
        (float("nan"), None),
        (2**70, 2**70),
    ],
)
def test_common_types_become_json(receiver: Receiver, client: Client, value: Any, sent: Any) -> None:
    client.capture({"x": value}, {"y": [value]})
    assert client.flush()
    assert receiver.records[0]["inputs"] == {"x": sent}
    assert receiver.records[0]["outputs"] == {"y": [sent]}


def test_an_unknown_type_is_an_error_in_the_counts_and_nowhere_else(client: Client) -> None:
    assert client.capture({"x": object()}, {}) is None
    assert client.capture(None, {"y": 1}) is not None  # type: ignore[arg-type]  # what a caller may do
    assert client.capture({"x": {object(): 1}}, {}) is not None or client.counts.error == 2
    client.flush()
    check_balance(client)
    assert client.counts.error >= 1


def test_labels_go_to_their_own_route(receiver: Receiver, client: Client) -> None:
    record_id = client.capture({"age": 41}, {"score": 0.9})
    assert record_id is not None
    assert client.label(record_id, {"label": 0})
    assert client.flush()
    [label] = receiver.labels
    assert (label["id"], label["label"], label["source"]) == (record_id, {"label": 0}, "human")


def test_while_the_server_refuses_everything_is_kept_and_sent_later(
    receiver: Receiver, client: Client
) -> None:
    receiver.status = 507
    for i in range(100):
        client.capture({"i": i}, {})
    assert not client.flush(timeout=0.3)
    assert client.counts.queued == 100
    receiver.status = 202
    assert client.flush(timeout=10)
    assert [record["inputs"]["i"] for record in receiver.records] == list(range(100))
    check_balance(client)


def test_rejected_records_are_counted_as_errors(receiver: Receiver, client: Client) -> None:
    receiver.answer = {"accepted": 0, "rejected": [{"index": 0, "field": "inputs.x", "reason": "no"}]}
    client.capture({"x": 1}, {})
    assert client.flush()
    assert (client.counts.error, client.counts.acknowledged) == (1, 0)


def test_a_block_that_is_too_large_is_halved(receiver: Receiver, client: Client) -> None:
    receiver.most = 3
    for i in range(20):
        client.capture({"i": i}, {})
    assert client.flush()
    assert [record["inputs"]["i"] for record in receiver.records] == list(range(20))


def test_without_a_server_the_ring_is_bounded_and_the_surplus_is_shed() -> None:
    client = Client("http://127.0.0.1:9", "key", model="churn")
    text = "x" * 100_000
    for _ in range(400):
        client.capture({"texts": [text]}, {})
    assert client.counts.shed > 150
    assert client.counts.queued > 150
    assert module._memory.held <= module.RING_BYTES
    check_balance(client)
    client.close(timeout=0)
    client.capture({}, {})
    assert (client.counts.offered, client.counts.shed, client.counts.queued) == (401, 401, 0)


def test_sampling_keeps_a_share_and_says_its_weight(receiver: Receiver) -> None:
    client = Client(receiver.url, "key", model="churn", rate=0.25)
    for _ in range(400):
        client.capture({"x": 1}, {})
    assert client.flush()
    counts = client.counts
    assert 40 < counts.acknowledged < 180
    assert counts.acknowledged + counts.sampled_out == 400
    assert {record["weight"] for record in receiver.records} == {4.0}
    client.close()


def test_many_threads_balance(receiver: Receiver, client: Client) -> None:
    def work() -> None:
        for i in range(500):
            client.capture({"i": i}, {"o": 1})
            if i % 50 == 0:
                check_balance(client)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.flush(timeout=20)
    assert client.counts.acknowledged == client.counts.offered == 2000
    assert len({record["id"] for record in receiver.records}) == 2000


def test_watch_captures_arguments_by_name_before_they_change(receiver: Receiver, client: Client) -> None:
    @watch(model="churn", client=client, id="request", entity="user", attrs=["device"])
    def predict(
        age: list[int], request: str, user: int, device: str = "web", *, top: int = 3
    ) -> dict[str, Any]:
        age.append(9)
        return {"score": 0.5}

    assert predict([1], "r1", user=7) == {"score": 0.5}
    assert client.flush()
    [record] = receiver.records
    assert record["inputs"] == {"age": [1], "top": 3}
    assert (record["id"], record["entity"], record["attrs"]) == ("r1", "7", {"device": "web"})


def test_watch_leaves_exceptions_and_coroutines_as_they_are(receiver: Receiver, client: Client) -> None:
    @watch(model="churn", client=client)
    def broken(x: int) -> int:
        raise KeyError(x)

    @watch(model="churn", client=client)
    async def predict(x: int) -> int:
        return x + 1

    with pytest.raises(KeyError):
        broken(1)
    assert asyncio.run(predict(1)) == 2
    assert client.flush()
    assert [record["outputs"] for record in receiver.records] == [{"value": 2}]


def test_the_middleware_copies_bodies_and_changes_nothing(receiver: Receiver, client: Client) -> None:
    async def service(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"score":', "more_body": True})
        await send({"type": "http.response.body", "body": str(json.loads(body)["age"] / 100).encode() + b"}"})

    async def call(path: str) -> list[Any]:
        chunks = [b'{"age"', b":41}"]
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

        async def send(message: Any) -> None:
            sent.append(message)

        app = OutriderMiddleware(service, paths=["/predict"], client=client)
        headers = [(b"x-request-id", b"r9")]
        await app({"type": "http", "method": "POST", "path": path, "headers": headers}, receive, send)
        return sent

    assert asyncio.run(call("/predict")) == asyncio.run(call("/other"))
    assert client.flush()
    [record] = receiver.records
    assert (record["id"], record["inputs"], record["outputs"]) == ("r9", {"age": 41}, {"score": 0.41})


def test_a_disabled_client_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_DISABLED", "1")
    client = Client(model="churn")
    assert client.capture({"x": 1}, {}) is None
    assert client.counts.offered == 0


def test_url_and_key_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, receiver: Receiver
) -> None:
    (tmp_path / "key").write_text("from-file\n")
    monkeypatch.setenv("OUTRIDER_URL", receiver.url)
    monkeypatch.setenv("OUTRIDER_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.delenv("OUTRIDER_KEY", raising=False)
    client = Client(model="churn")
    client.capture({"x": 1}, {})
    assert client.flush()
    assert receiver.keys == {"Bearer from-file"}
    client.close()


FORKER = """
import os, sys
from outrider.monitor.client import Client
client = Client(sys.argv[1], "key", model="churn")
client.capture({"who": "parent"}, {})
assert client.flush()
pid = os.fork()
if pid == 0:
    assert client.counts.offered == 0, client.counts
    client.capture({"who": "child"}, {})
    assert client.flush()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
client.capture({"who": "parent again"}, {})  # sent at exit
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_and_its_parent_both_send(receiver: Receiver) -> None:
    subprocess.run([sys.executable, "-c", FORKER, receiver.url], check=True, timeout=30)
    assert [record["inputs"]["who"] for record in receiver.records] == ["parent", "child", "parent again"]
    assert len({record["id"] for record in receiver.records}) == 3


def test_the_client_imports_only_the_standard_library() -> None:
    code = "import sys; import outrider.monitor.client; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    top = {name.partition(".")[0] for name in loaded.split()}
    assert not top & {"numpy", "pandas", "pyarrow", "msgspec", "fastapi", "pydantic", "uvicorn"}
    assert "http.client" not in loaded.split()


def test_a_capture_costs_its_caller_microseconds() -> None:
    client = Client("http://127.0.0.1:9", "key", model="churn")
    inputs, outputs = {"age": 41, "income": 1.5, "name": "bob", "vip": True}, {"label": 1, "score": 0.9}
    medians = []
    for _ in range(5):  # the best of five: other tests share the processor
        samples = []
        for _ in range(2000):
            began = time.perf_counter_ns()
            client.capture(inputs, outputs, entity="u7")
            samples.append(time.perf_counter_ns() - began)
        medians.append(sorted(samples)[1000])
    client.close(timeout=0)
    assert min(medians) <= 5_000 * 2, f"{min(medians)} ns; promised are 5,000 on a quiet machine"


def test_the_client_imports_within_60_ms() -> None:
    code = (
        "import time; began = time.process_time(); import outrider.monitor.client;"
        "print(time.process_time() - began)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    ]
    assert min(times) <= 0.06


def test_exiting_is_not_delayed_by_a_dead_server() -> None:
    code = (
        "import time\nfrom outrider.monitor.client import Client\n"
        "c = Client('http://127.0.0.1:9', 'k', model='m')\nc.capture({'x': 1}, {})\ntime.sleep(0.5)"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30, capture_output=True)
    assert time.monotonic() - began < 5
