"""A worker dies between the jump over a backlog and its judgement: nothing is lost or judged twice."""

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from .service import CHECKS, CONFIG, Service, kill, outrider, wait_until, write_project

SLOW = '''
import time


def predict(batch):
    """Ten milliseconds a record: a hundred a second."""
    time.sleep(0.01 * batch.rows)
    x = batch.column("inputs.x")
    return {"label": (x > 0.5).astype(int), "score": abs(x - 0.5) + 0.5}
'''
OBJECTIVE = CONFIG + "\n[models.toy.latency]\nslo_s = 0.5\n"
RECORDS = 500


def became(service: Service) -> dict[str, int]:
    """What became of the records, and how many of them still wait in a gap."""
    names = ("records", "duplicates", "conflicts", "poison", "unopened", "shed:sampled", "shed:expired")
    counts = {name: service.count(name) for name in names}
    counts["waiting"] = service.query(
        "SELECT coalesce(sum(records - passed), 0) FROM backfill WHERE done_us IS NULL"
    )[0][0]
    return counts


def in_journal(service: Service) -> int:
    journal = sqlite3.connect(f"file:{service.folder / 'journal.db'}?mode=ro", uri=True, timeout=10)
    try:
        return int(journal.execute("SELECT sum(rows) FROM block WHERE kind = 'records'").fetchone()[0])
    finally:
        journal.close()


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_killed_between_jump_and_backfill_every_record_is_one_thing_once(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=OBJECTIVE, checks=CHECKS)
    (tmp_path / "model.py").write_text(SLOW, encoding="utf-8")
    with Service(config) as service:
        service.post([{"id": f"w{n}", "inputs": {"x": 0.2}} for n in range(20)])
        service.wait_judged(20)
        # Held up, it cannot keep its objective: what comes meanwhile is a backlog that is too old.
        worker = service.processes()["worker"]
        os.kill(worker, signal.SIGSTOP)
        for start in range(0, RECORDS, 20):
            batch = range(start, start + 20)
            service.post(
                [{"id": f"r{n}", "entity": f"e{n % 40}", "inputs": {"x": n * 37 % 100 / 100}} for n in batch]
            )
            time.sleep(0.02)
        os.kill(worker, signal.SIGCONT)
        wait_until(lambda: bool(service.query("SELECT 1 FROM backfill")), "jump", service)
        kill(service.processes()["worker"])
        wait_until(lambda: service.count("backfilled") > 20, "backfill", service)
        kill(service.processes()["worker"])
        wait_until(
            lambda: (
                not service.query("SELECT 1 FROM backfill WHERE done_us IS NULL")
                and sum(became(service).values()) == RECORDS + 20
            ),
            "the end of the backfill",
            service,
        )
        counts = became(service)
        assert sum(counts.values()) == in_journal(service) == RECORDS + 20
        assert counts["records"] == service.query("SELECT count(*) FROM record")[0][0]
        assert service.count("backfilled") > 0
        late = service.query(
            "SELECT count(*) FROM flag WHERE json_extract(evidence, '$.backfilled') AND slot = 'champion'"
        )
        assert late[0][0] > 0
        done = outrider(config.parent, "replay", "toy", "--check", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
