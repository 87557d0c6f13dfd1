"""An assertion that ends the worker is blamed for it and suspended; the others judge on."""

from pathlib import Path

import pytest

from .service import CHECKS, Service, kill, wait_until, write_project

KILLER = """

@assertion
def killer(batch):
    \"\"\"Ends the worker.\"\"\"
    import os, signal
    os.kill(os.getppid(), signal.SIGKILL)
    return batch.column("inputs.x") > 1
"""


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_an_assertion_that_ends_the_worker_is_suspended_and_no_record_is_lost(tmp_path: Path) -> None:
    with Service(write_project(tmp_path, checks=CHECKS + KILLER)) as service:
        for number in range(3):
            assert service.post([{"id": f"r{number}", "inputs": {"x": 0.95}}]).status_code == 202
        service.wait_judged(3)
        strikes = service.query("SELECT assertion, reason, slot FROM strike ORDER BY id")
        assert strikes == [("killer", "died", "champion")] * 3, "as many as suspend, and no other is blamed"
        flags = service.query("SELECT record_id FROM flag WHERE assertion = 'too_high' ORDER BY record_id")
        assert [row[0] for row in flags] == ["r0", "r1", "r2"]
        told = service.client.get("/v1/assertions", params={"model": "toy"})
        assert told.status_code == 200, told.text
        suspended = service.query("SELECT name FROM assertion WHERE suspended_until_us > 0")
        assert suspended == [("killer",)]
        assert "the worker ended during assertion killer: it is suspended" in service.log.read_text()


def test_a_worker_that_is_killed_between_units_blames_nobody(tmp_path: Path) -> None:
    with Service(write_project(tmp_path)) as service:
        service.post([{"id": "r", "inputs": {"x": 0.95}}])
        service.wait_judged(1)
        before = service.processes()["worker"]
        kill(before)
        wait_until(lambda: service.processes().get("worker", before) != before, "another worker", service)
        service.post([{"id": "s", "inputs": {"x": 0.95}}])
        service.wait_judged(2)
        assert service.query("SELECT count(*) FROM strike") == [(0,)]
