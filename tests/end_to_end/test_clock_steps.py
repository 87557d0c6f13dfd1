"""A real service whose clock is set under it, by Debian's ``faketime``: forward and back, running and not."""

import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outrider.assertions import Batch, load_assertions
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.state.database import open_database
from outrider.monitor.settings.config import load_settings
from outrider.monitor.worker.replay import replay, stretch
from tests.requirements import require_program

from .service import CONFIG, Service, wait_until, write_project

HOUR, DAY = 3600, 86_400
STEPS = (HOUR, -HOUR, DAY, -DAY, 8 * DAY, -8 * DAY)
STORAGE = "\n[storage]\nkeep_days = 7\nkeep_around_rows = 0\n"
SLEEP = """
import threading
import time

# libfaketime 0.9.10 knows no clock_nanosleep of the monotonic clock, which time.sleep is made of.
time.sleep = lambda seconds: threading.Event().wait(seconds) and None
"""


class FakedClock:
    """The clock of a service as a file says; the monotonic one runs on."""

    def __init__(self, folder: Path) -> None:
        faketime = require_program("faketime", "apt-get install faketime")
        library = next(
            Path(shutil.which("faketime") or faketime).resolve().parents[1].rglob("libfaketimeMT.so.1")
        )
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(SLEEP)
        self._file = folder / "faketime"
        self._offset_s = 0
        self.set(0)
        self.env = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")]),
        }

    def set(self, by_s: int) -> None:
        """Set the clock forward, or back."""
        self._offset_s += by_s
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{self._offset_s:+d}\n")
        fresh.replace(self._file)  # never half a file
        time.sleep(1.1)  # until the processes look again, each in its own second


@pytest.mark.costly("faketime is preloaded: processes are started as users start them, imports and all")
def test_a_real_service_judges_on_at_once_whenever_its_clock_is_set(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=CONFIG.replace('behavior = ["test_toy.py"]\n', "") + STORAGE)
    clock = FakedClock(tmp_path)
    sent = 0

    def send(service: Service, rows: int = 5) -> None:
        nonlocal sent
        for _ in range(rows):
            record: dict[str, Any] = {
                "id": f"r{sent}",
                "entity": "e",
                "inputs": {"x": 0.2 + 0.6 * (sent % 2)},
            }
            assert service.post([record]).status_code == 202
            sent += 1
        service.wait_judged(sent)

    def flips(service: Service) -> set[str]:
        rows = service.query("SELECT record_id FROM flag WHERE assertion = 'flips'")
        return {row[0] for row in rows}

    def has_borders(service: Service, number: int) -> bool:
        with SqliteJournal(service.folder / "journal.db", read_only=True) as journal:
            return len(journal.steps()) == number

    def expected(service: Service) -> set[str]:
        """The first behind each border has none before it to differ from; all others are judged."""
        found: set[str] = set()
        is_first = True
        with SqliteJournal(service.folder / "journal.db", read_only=True) as journal:
            for block in journal.read(0, limit=10_000):
                ids = Batch.from_ipc(block.payload).keys.tolist() if block.kind == "records" else []
                found.update(ids[is_first:])
                is_first = block.kind == "step" or (is_first and not ids)
        return found

    with Service(config, is_started=True, env=clock.env) as service:
        send(service)
        labels = [{"model": "toy", "id": f"r{row}", "label": {"label": 1}} for row in range(5)]
        assert service.client.post("/v1/labels", json=labels).status_code == 202
        for number, by_s in enumerate(STEPS, start=1):
            clock.set(by_s)
            if number % 2:  # else what is sent comes before the next tick, and makes the border itself
                wait_until(partial(has_borders, service, number), f"border {number}", service)
            send(service)
            wait_until(partial(has_borders, service, number), f"border {number}", service)
        wait_until(lambda: flips(service) == expected(service), "all flips", service)
        assert len(expected(service)) >= sent - len(STEPS) - 1
        told = "SELECT status, flags FROM incident WHERE kind = 'clock'"
        wait_until(lambda: service.query(told) == [("open", len(STEPS))], "one incident", service)
        assert "the clock of the service was set back by" in service.client.get("/m/toy").text
        assert service.count("late") == 0
    clock.set(-DAY)  # while nothing runs
    with Service(config, is_started=True, env=clock.env) as service:
        send(service)
        wait_until(lambda: flips(service) == expected(service), "all flips behind the restart", service)
        judged = expected(service)
    settings = load_settings(config)
    with SqliteJournal(settings.journal_path, read_only=True) as journal:
        steps = journal.steps()
        assert [round(step.by_us / 1e6 / 60) for step in steps] == [s // 60 for s in (*STEPS, -DAY)]
        assert sum(block.rows for block in journal.read(0, limit=10_000) if block.kind == "labels") == 5
        engine = open_database(settings.database_url)
        judges = load_assertions(tmp_path / "checks.py")
        which = stretch(journal, judges, since_us=0, until=journal.last_seq())
        found = replay(engine, journal, "toy", settings.models["toy"], judges, which).fired()
        assert {record for record, _ in found["flips"]} == judged
        engine.dispose()
