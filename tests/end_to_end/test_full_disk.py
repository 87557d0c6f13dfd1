"""A full disk, a bounded journal, a locked and a dead writer: refused in words, nothing lost, no hang."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.soak import promised

from .service import CONFIG, Service, wait_until, write_project

MIB = 1_048_576
DISK_BYTES = 48 * MIB
RESERVE_BYTES = 12 * MIB


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB that is ours alone."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def config(folder: Path, **storage: int) -> str:
    lines = "\n".join(f"{name} = {value}" for name, value in storage.items())
    return CONFIG.replace("[models.toy]", f'[storage]\nfolder = "{folder}"\n{lines}\n\n[models.toy]')


def block(name: str, rows: int = 50, pad: int = 0) -> list[dict[str, Any]]:
    note = "." * pad
    return [
        {
            "id": f"{name}-{row}",
            "inputs": {"x": row / rows},
            "attrs": {"device": "a", "note": f"{row}{note}"},
        }
        for row in range(rows)
    ]


class Sender:
    """Remembers what was acknowledged."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.acknowledged: set[str] = set()

    def send(self, records: list[dict[str, Any]]) -> int:
        """Status of the answer, which must come soon."""
        began = time.monotonic()
        answer = self.service.post(records)
        assert time.monotonic() - began < promised(15)
        if answer.status_code == 202:
            assert answer.json()["accepted"] == len(records), answer.text
            self.acknowledged |= {record["id"] for record in records}
        else:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["detail"], answer.text
            assert int(answer.headers["retry-after"]) >= 1
        return answer.status_code

    def wait_judged(self) -> None:
        """Wait until every acknowledged record is judged, and check that nothing else is."""
        self.service.wait_judged(len(self.acknowledged))
        assert {row[0] for row in self.service.query("SELECT id FROM record")} == self.acknowledged
        flagged = {
            row[0] for row in self.service.query("SELECT record_id FROM flag WHERE assertion='too_high'")
        }
        assert flagged == {key for key in self.acknowledged if int(key.rpartition("-")[2]) / 50 > 0.9}


def fill(folder: Path, leave: int) -> Path:
    """Take all but so many bytes of a file system."""
    ballast = folder / "ballast"
    disk = os.statvfs(folder)
    wanted = disk.f_bavail * disk.f_frsize - leave
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while not leave or wanted > 0:  # others write meanwhile: what counts at the end is "no space left"
            wanted -= file.write(bytes(65_536))
    return ballast


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_full_disk_is_refused_and_forgotten_once_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    text = config(small_disk / "data", min_free_bytes=RESERVE_BYTES)
    path = write_project(tmp_path / "project", config=text)
    others = fill(small_disk, leave=RESERVE_BYTES + 10 * MIB)
    with Service(path, folder=small_disk / "data") as service:
        sender = Sender(service)
        number = 0
        while (status := sender.send(block(f"a{number}", pad=10_000))) == 202:  # until the journal fills it
            number += 1
            assert number < 100
        assert status == 507
        assert number > 5
        refused = service.client.get("/readyz")
        assert refused.status_code == 503
        assert "storage.min_free_bytes" in refused.json()["detail"]
        assert service.client.get("/healthz").status_code == 200
        sender.wait_judged()  # from the reserve

        others.unlink()
        wait_until(service.is_ready, "/readyz after space was freed", service)
        for part in range(5):
            assert sender.send(block(f"b{part}", pad=1000)) == 202
        others = fill(small_disk, leave=0)  # not a byte is left for the worker either
        assert sender.send(block("c")) == 507
        time.sleep(1.5)
        assert sender.send(block("d")) == 507
        assert service.client.get("/readyz").status_code == 503
        others.unlink()
        wait_until(service.is_ready, "/readyz after space was freed again", service)
        assert sender.send(block("e")) == 202
        sender.wait_judged()


def test_a_journal_at_its_bound_is_refused_while_the_worker_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    path = write_project(tmp_path / "project", config=config(folder, journal_max_bytes=4 * MIB))
    with Service(path, folder=folder) as service:
        sender = Sender(service)
        number = 0
        while (status := sender.send(block(f"a{number}", pad=4000))) == 202:
            number += 1
            assert number < 100
        assert status in (429, 507)
        assert service.client.get("/readyz").status_code == 503
        assert number > 5
        sender.wait_judged()
        shown = service.client.get("/metrics").text
        assert 'outrider_records_rejected_total{process="intake",reason="disk_full"} 50.0' in shown


DIE = """
import os, sys
from outrider.dataops.journal.journal import SqliteJournal
append = SqliteJournal.append
def die_once(journal, *arguments, **options):
    try:
        assert "outrider.monitor.intake" in sys.argv[0].replace("/", ".")
        os.unlink(os.environ["TEST_DIE"])
    except (AssertionError, FileNotFoundError):
        return append(journal, *arguments, **options)
    raise SystemExit("the test ends the writer")
SqliteJournal.append = die_once
"""


def test_a_locked_and_a_dead_writer_answer_503_and_a_fresh_one_takes_over(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.mkdir()
    (fault / "sitecustomize.py").write_text(DIE, encoding="utf-8")
    python_path = os.pathsep.join(filter(None, [str(fault), os.environ.get("PYTHONPATH", "")]))
    env = {"PYTHONPATH": python_path, "TEST_DIE": str(fault / "die")}
    with Service(write_project(tmp_path / "project"), env=env) as service:
        sender = Sender(service)
        assert sender.send(block("a")) == 202
        other = sqlite3.connect(service.folder / "journal.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert sender.send(block("b")) == 503  # SQLite waits 5 s for the lock
        assert "did not commit" in service.client.get("/readyz").json()["detail"]
        other.execute("ROLLBACK")
        other.close()
        wait_until(service.is_ready, "/readyz without the lock", service)
        assert sender.send(block("c")) == 202

        first = service.processes()["intake"]
        (fault / "die").touch()
        assert sender.send(block("d")) == 503
        assert service.client.get("/readyz").status_code == 503
        wait_until(lambda: service.processes().get("intake", first) != first, "a fresh intake", service)
        wait_until(service.is_ready, "/readyz of the fresh intake", service)
        assert sender.send(block("e")) == 202
        sender.wait_judged()
