"""Kill -9 between, before and behind the two events of a call: each becomes one whole record, once."""

import random
import signal
import threading
from collections import deque
from pathlib import Path

import httpx
import pytest

from outrider.assertions import Batch
from outrider.dataops.journal.journal import SqliteJournal
from tests.soak import PATIENCE_S

from .event_payloads import Call, kserve
from .test_intake import key_of, process

CALLS = 100
ROUNDS = 3


def events(rng: random.Random) -> list[Call]:
    """Both events of every call, and some twice, near each other but in any order."""
    timed = []
    for call in range(CALLS):
        for side, body in (
            ("request", {"instances": [{"x": call}]}),
            ("response", {"predictions": [call / 2]}),
        ):
            event = kserve(side, body, id_=f"c{call}", **{"ce-inferenceservicename": "churn"})
            timed += [(call + 10 * rng.random(), n, event) for n in range(2 if rng.random() < 0.2 else 1)]
    return [event for _, _, event in sorted(timed, key=lambda one: one[:2])]


def deliver(client: httpx.Client, waiting: deque[Call], acknowledged: list[Call]) -> None:
    """Send one after the other until the server is gone; what was not acknowledged is sent again later."""
    while waiting:
        headers, body = waiting[0]
        try:
            status = client.post("/v1/cloudevents", headers=headers, content=body).status_code
        except httpx.TransportError:
            return
        assert status == 202
        acknowledged.append(waiting.popleft())


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_sides_meet_across_kills_and_redeliveries(tmp_path: Path) -> None:
    rng = random.Random(5)
    everything = events(rng)
    lanes = [deque(everything[0::2]), deque(everything[1::2])]
    acknowledged: list[Call] = []
    for number in range(ROUNDS + 1):
        with process(tmp_path) as (child, url):
            headers = {"authorization": f"Bearer {key_of(tmp_path)}"}
            with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
                threads = [
                    threading.Thread(target=deliver, args=(client, lane, acknowledged)) for lane in lanes
                ]
                for thread in threads:
                    thread.start()
                if number < ROUNDS:
                    goal = len(everything) * (number + 1) // (ROUNDS + 1)
                    while len(acknowledged) < goal:
                        threads[0].join(0.002)
                    child.send_signal(signal.SIGKILL)
                for thread in threads:
                    thread.join(30)
    assert len(acknowledged) == len(everything)
    journal = SqliteJournal(tmp_path / "outrider-data" / "journal.db", read_only=True)
    blocks = [block for block in journal.read(0, limit=10_000) if block.kind == "records"]
    records = [record for block in blocks for record in Batch.from_ipc(block.payload).to_records()]
    assert journal.due_halves(2**62) == []
    journal.close()
    assert sorted(
        (r["id"], r["inputs"]["x"], r["outputs"]["label"], r.get("partial")) for r in records
    ) == sorted((f"c{call}", call, call / 2, False) for call in range(CALLS))
