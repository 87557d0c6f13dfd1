"""Sampling: whole entities, the same everywhere, each record with the inverse of its probability."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from outrider.monitor.client import Client, watch

from .receiver import Receiver, nothing_is_left

__all__ = ["nothing_is_left"]  # a fixture, for every test here


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def sampled(receiver: Receiver, **options: Any) -> Client:
    return Client(receiver.url, "key", model="churn", **options)


def test_a_share_is_kept_with_its_weight_and_the_rest_is_counted(receiver: Receiver) -> None:
    client = sampled(receiver, rate=0.25)
    kept = [client.capture({"x": i}, {}, id=f"r{i}") for i in range(2000)]
    assert client.flush()
    counts = client.counts
    assert counts.acknowledged + counts.sampled_out == counts.offered == 2000
    assert 430 < counts.acknowledged < 570  # 500 expected, standard deviation 19
    assert {record["weight"] for record in receiver.records} == {4.0}
    assert [record["id"] for record in receiver.records] == [id for id in kept if id is not None]
    client.close()


def test_an_entity_is_kept_whole_or_not_at_all_the_same_in_every_process(receiver: Receiver) -> None:
    client = sampled(receiver, rate=0.5)
    for step in range(5):
        for user in range(60):
            client.capture({"step": step}, {}, entity=f"u{user}")
    assert client.flush()
    steps: dict[str, list[int]] = {}
    for record in receiver.records:
        steps.setdefault(record["entity"], []).append(record["inputs"]["step"])
    assert all(found == [0, 1, 2, 3, 4] for found in steps.values())
    assert 15 < len(steps) < 45
    client.close()
    code = (
        "from outrider.monitor.client import Client\n"
        "c = Client('http://127.0.0.1:9', 'k', model='other', rate=0.5)\n"
        "print(*[u for u in range(60) if c._chosen(f'u{u}')])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {f"u{user}" for user in done.stdout.split()} == set(steps)


def test_what_a_lower_rate_keeps_a_higher_one_keeps_too() -> None:
    low, high = (Client("http://127.0.0.1:9", "k", model="m", rate=rate) for rate in (0.1, 0.3))
    names = [str(number) for number in range(5000)]
    few, many = ({name for name in names if one._chosen(name)} for one in (low, high))
    assert few < many
    assert abs(len(few) / 5000 - 0.1) < 0.02
    assert abs(len(many) / 5000 - 0.3) < 0.03


def test_always_if_keeps_what_matters_and_the_weights_estimate_the_traffic(receiver: Receiver) -> None:
    client = sampled(receiver, rate=0.2, always_if=lambda inputs, outputs: outputs["score"] < 0.1)
    for i in range(3000):
        client.capture({"x": i}, {"score": (i % 100) / 100}, id=f"r{i}")
    assert client.flush()
    rare = [record for record in receiver.records if record["outputs"]["score"] < 0.1]
    others = [record for record in receiver.records if record["outputs"]["score"] >= 0.1]
    assert len(rare) == 300
    # Kept for certain: also those whose hash would have kept them anyway.
    assert {record.get("weight", 1.0) for record in rare} == {1.0}
    assert {record["weight"] for record in others} == {5.0}
    total = sum(record.get("weight", 1.0) for record in receiver.records)
    assert abs(total - 3000) < 3 * (2700 * 5 * 5 * 0.2 * 0.8) ** 0.5  # three standard deviations
    client.close()


def test_always_if_that_raises_counts_as_false(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    client = sampled(receiver, rate=0.5, always_if=lambda inputs, outputs: inputs["missing"])
    for i in range(100):
        client.capture({"x": i}, {}, id=str(i))
    assert client.flush()
    assert 0 < client.counts.acknowledged < 100
    assert client.counts.error == 0
    assert caplog.text.count("always_if for churn failed") == 1
    client.close()


def test_always_if_is_not_asked_when_everything_is_kept(receiver: Receiver) -> None:
    client = sampled(receiver, always_if=lambda inputs, outputs: 1 / 0)
    client.capture({"x": 1}, {})
    assert client.flush()
    assert "weight" not in receiver.records[0]
    client.close()


def test_watched_functions_are_sampled_by_entity_too(receiver: Receiver) -> None:
    client = sampled(receiver, rate=0.5, always_if=lambda inputs, outputs: outputs["value"] == 7)

    @watch(model="churn", client=client, entity="user")
    def predict(x: int, user: str) -> int:
        return x

    for x in range(10):
        for user in range(20):
            predict(x, user=f"u{user}")
    assert client.flush()
    of_seven = [record for record in receiver.records if record["outputs"]["value"] == 7]
    assert len(of_seven) == 20
    counts = client.counts
    assert counts.offered == 200 == counts.acknowledged + counts.sampled_out
    assert (counts.acknowledged - 20) % 9 == 0
    client.close()


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_rate_that_is_no_share_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate must be above 0 and at most 1"):
        Client(model="churn", rate=rate)
