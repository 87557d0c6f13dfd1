"""kill -9 at random points under load: nothing acknowledged is lost, nothing is judged twice."""

import random
import sqlite3
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.soak import promised, rounds

from .service import CONFIG, Service, all_dead, kill, wait_until, write_project

ROUNDS = rounds(50)
EACH = ("worker", "intake", "host", "trainer", "engine", "all")
OFTEN = ("worker", "worker", "intake", "host", "trainer", "engine", "engine", "all")


class Load:
    """Sends blocks until told to stop; a block that was not acknowledged is sent again, as a client would."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.acknowledged: dict[str, float] = {}
        self.resent = 0
        self.stop = threading.Event()
        self.pause = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join()

    def _run(self) -> None:
        rng = random.Random(1)
        number = 0
        while not self.stop.is_set():
            block: list[dict[str, Any]] = []
            for _ in range(20):
                number += 1
                x = round(rng.random(), 6)
                block.append(
                    {
                        "id": f"r{number}",
                        "entity": f"e{number % 7}",
                        "inputs": {"x": x},
                        "attrs": {"device": "a"},
                    }
                )
            while not self.stop.is_set() and not self._send(block):
                self.resent += 1
                time.sleep(0.05)
            time.sleep(0.005)

    def _send(self, block: list[dict[str, Any]]) -> bool:
        try:
            answer = self.service.post(block)
        except (httpx.TransportError, RuntimeError):  # RuntimeError: the test opened a new client meanwhile
            return False
        if answer.status_code != 202:
            assert answer.status_code in (429, 503, 507), answer.text
            return False
        assert answer.json()["accepted"] == len(block), answer.text
        for record in block:
            self.acknowledged[str(record["id"])] = float(record["inputs"]["x"])
        return True


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_nothing_is_lost_or_judged_twice_over_kill_rounds(tmp_path: Path) -> None:
    rng = random.Random(7)
    # Flags are compared one by one: none may be thinned out, however many a minute has.
    config = write_project(tmp_path, config=CONFIG + "\n[flags]\nper_minute = 1000000\n")
    with Service(config) as service, Load(service) as load:
        service.wait_judged(100)
        victims = [*rng.sample(EACH, len(EACH)), *rng.choices(OFTEN, k=ROUNDS)]
        for number, victim in enumerate(victims):
            time.sleep(rng.uniform(0.02, 0.5))
            roles = service.processes()
            if victim == "all":
                before = list(roles.values())
                for pid in before:
                    kill(pid)
                assert service.process is not None
                service.process.wait()
                wait_until(partial(all_dead, before), "dead processes", timeout_s=promised(2))
                service.start()
            elif victim in roles:
                kill(roles[victim])
            if number % 10 == 5:  # progress between the blows
                wait_until(service.is_ready, "/readyz", service)
                service.wait_judged(service.count("records") + 20)
        load.stop.set()
        load._thread.join()
        wait_until(service.is_ready, "/readyz", service)
        expected = load.acknowledged
        service.wait_judged(len(expected))
        time.sleep(1.0)
        judged = {row[0] for row in service.query("SELECT id FROM record")}
        # A block whose answer was lost on the way may be there without an acknowledgement.
        assert set(expected) <= judged
        assert service.count("records") == len(judged)
        high = {key for key, x in expected.items() if x > 0.9}
        flagged = [row[0] for row in service.query("SELECT record_id FROM flag WHERE assertion = 'too_high'")]
        assert len(flagged) == len(set(flagged)) == service.count("flags:too_high")
        assert high <= set(flagged)
        assert {key for key in flagged if key in expected} == high
        sent = sum(row[0] for row in journal_rows(service))
        assert sent == service.count("records") + service.count("duplicates")
        assert service.count("conflicts") == 0
        # Live questions: one row each, counted once, and the rate is made of just those.
        outcomes = dict(service.query("SELECT status, count(*) FROM live_answer GROUP BY 1"))
        assert outcomes == {name: service.count(f"live:test_nudge:{name}") for name in outcomes}
        asked = service.query("SELECT sum(asked), sum(failed) FROM live_rate")
        assert asked == [(outcomes["passed"] + outcomes["failed"], outcomes["failed"])]
        alarms = service.query("SELECT count(*) FROM incident WHERE kind = 'live_test'")
        assert alarms == [(1,)]  # tolerance 0: the first failure is proof, and told once


def journal_rows(service: Service) -> list[tuple[int]]:
    journal = sqlite3.connect(f"file:{service.folder / 'journal.db'}?mode=ro", uri=True)
    try:
        return journal.execute("SELECT rows FROM block WHERE kind = 'records'").fetchall()
    finally:
        journal.close()


def test_kill_of_the_supervisor_leaves_no_process_after_two_seconds(tmp_path: Path) -> None:
    with Service(write_project(tmp_path), is_started=True) as service:
        wait_until(lambda: len(service.processes()) == 6, "all six processes", service)
        pids = list(service.processes().values())
        assert service.process is not None
        kill(service.process.pid)
        service.process.wait()
        wait_until(partial(all_dead, pids), "dead processes", timeout_s=promised(2))
