"""Ten times the load, and a journal that is full: memory stays bounded, and every record is accounted for."""

import http.client
import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from outrider.monitor.client import Client, Counts
from tests.soak import PATIENCE_S, rounds

from .running import running

MIB = 1_048_576
QUEUE_BYTES = 4 * MIB
CONFIG = f"[server]\nport = 0\n[limits]\nqueue_bytes = {QUEUE_BYTES}\n[models.toy]\n"
SENDERS = 24
ROWS = 100
FLOOD = rounds(40_000)
"""Requests."""


def is_exact(counts: Counts) -> bool:
    """The identity of the client's counts."""
    gone = counts.sampled_out + counts.shed + counts.error + counts.acknowledged + counts.queued
    return counts.offered == gone


@pytest.mark.costly("an intake gets many times what it takes")
def test_ten_times_the_load_is_refused_in_bounded_memory_and_every_record_counted(tmp_path: Path) -> None:
    body = json.dumps(
        [{"model": "toy", "inputs": {"x": row, "note": "." * 1000}} for row in range(ROWS)]
    ).encode()
    answers: Counter[int] = Counter()
    stop = threading.Event()

    def send(port: int, key: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        while not stop.is_set():
            connection.request("POST", "/v1/records", body, headers)
            answer = connection.getresponse()
            answer.read()
            answers[answer.status] += 1
        connection.close()

    # 100 kB a request and 24 at once: more than half of them find no room, whatever the disk does.
    config = CONFIG.replace(str(QUEUE_BYTES), str(MIB))
    with running(tmp_path / "p", config, commit_s=0.1) as intake:
        senders = [threading.Thread(target=send, args=(intake.port, intake.key)) for _ in range(SENDERS)]
        for sender in senders:
            sender.start()
        while answers.total() < FLOOD / 4 or answers[202] < 10:  # all that is loaded once is loaded
            time.sleep(0.05)
        before = most = intake.resident_bytes
        while answers.total() < FLOOD:
            most = max(most, intake.resident_bytes)
            time.sleep(0.05)
        stop.set()
        for sender in senders:
            sender.join(PATIENCE_S)
        assert set(answers) == {202, 429}
        assert answers[429] > 9 * answers[202]
        assert most - before < 48 * MIB
        # Exactly what was acknowledged is there, and the service has counted the same.
        assert intake.stored() == answers[202] * ROWS
        assert intake.counted("outrider_records_accepted_total{") == answers[202] * ROWS
        assert intake.counted("outrider_responses_total{") == answers[202] + answers[429]


@pytest.mark.costly("an intake gets many times what it takes")
@pytest.mark.parametrize("fault", ["slow", "full"])
def test_the_counts_of_a_client_stay_exact(tmp_path: Path, fault: str) -> None:
    config = CONFIG
    if fault == "full":
        config += "[storage]\njournal_max_bytes = 1000000\n"
    with running(tmp_path / "p", config, commit_s=0.2 if fault == "slow" else 0.0) as intake:
        client = Client(f"http://127.0.0.1:{intake.port}", intake.key, model="toy", rate=0.9)
        note = "." * 4000
        for number in range(20_000):
            client.capture({"x": number, "note": note}, {"y": 1}, id=f"r{number}")
            if number % 500 == 0:
                assert is_exact(client.counts)
        client.close(5.0)
        until = time.monotonic() + PATIENCE_S  # the thread has what is under way in its hand until it ends
        while client.counts.queued and time.monotonic() < until:
            time.sleep(0.05)
        counts = client.counts
        assert is_exact(counts)
        assert counts.offered == 20_000
        assert counts.queued == 0
        assert counts.shed > 0
        assert counts.acknowledged > 0
        assert 1500 < counts.sampled_out < 2500
        # What was under way at the end may be stored without having been acknowledged in time.
        assert counts.acknowledged <= intake.stored() <= counts.acknowledged + counts.shed
