"""A backup of a service under load, restored elsewhere, starts and judges on: no record lost, none twice."""

import shutil
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.soak import PATIENCE_S

from .service import Service, outrider, wait_until, write_project
from .test_start_and_stop import journal_ids


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_backup_under_load_restores_to_a_service_that_judges_on(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    stop = threading.Event()
    with Service(write_project(tmp_path / "old")) as service:
        url, headers = str(service.client.base_url), dict(service.client.headers)

        def load() -> None:
            number = 0
            with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
                while not stop.is_set():
                    number += 1
                    ids = [f"{number}-{row}" for row in range(20)]
                    block = [
                        {"model": "toy", "id": id_, "inputs": {"x": row / 20}} for row, id_ in enumerate(ids)
                    ]
                    if client.post("/v1/records", json=block).status_code == 202:
                        acknowledged.extend(ids)
                    time.sleep(0.02)

        sender = threading.Thread(target=load)
        sender.start()
        try:
            wait_until(lambda: service.count("records") > 200, "judged records", service)
            before = list(acknowledged)
            made = service.run_command("backup", str(tmp_path / "copy"))
            wait_until(lambda: len(acknowledged) > len(before) + 100, "records after the backup", service)
        finally:
            stop.set()
            sender.join()
        weights = list((service.folder / "objects").rglob("*"))
    assert made["tables"]["record"] <= made["records"]
    assert made["damaged"] == []
    assert len(weights) > 0
    new = write_project(tmp_path / "new")
    done = outrider(new.parent, "restore", str(tmp_path / "copy"), "--json")
    assert done.returncode == 0, done.stderr
    refused = outrider(new.parent, "restore", str(tmp_path / "copy"))
    assert refused.returncode == 1
    assert "is not empty" in refused.stderr
    with Service(new) as restored:
        key = (tmp_path / "old" / "outrider-data" / "key").read_text()
        assert (restored.folder / "key").read_text() == key
        restored.wait_judged(made["records"])
        assert restored.count("records") == made["records"]
        rows = restored.query("SELECT id FROM record")
        assert len(rows) == made["records"]
        assert {row[0] for row in rows} == journal_ids(restored.folder / "journal.db")
        assert set(before) <= {row[0] for row in rows}
        flagged = restored.query("SELECT count(*) FROM flag WHERE assertion = 'too_high'")[0][0]
        # Of 20 rows one is above 0.9; copies of blocks would count it twice.
        assert flagged == made["records"] // 20
        restored.post([{"id": "new", "inputs": {"x": 0.95}}])
        restored.wait_judged(made["records"] + 1)
    shutil.rmtree(tmp_path / "copy")
