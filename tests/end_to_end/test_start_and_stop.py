"""Start, restart and stop of the whole service, and the errors that end a start."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.soak import IS_SOAK, PATIENCE_S, promised

from .service import CONFIG, MODEL, Service, all_dead, kill, outrider, wait_until, write_project

SLOW_S = 5.0


def block(name: str, rows: int = 20) -> list[dict[str, Any]]:
    return [
        {"id": f"{name}-{row}", "inputs": {"x": row / rows}, "attrs": {"device": "a"}} for row in range(rows)
    ]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose model takes five seconds to load."""
    path = write_project(tmp_path_factory.mktemp("slow"))
    slow = f"import pathlib, time\ntime.sleep({SLOW_S})\npathlib.Path(__file__).with_name('loaded').touch()\n"
    (path.parent / "model.py").write_text(slow + MODEL, encoding="utf-8")
    with Service(path, is_new=True, is_started=True) as running:
        yield running


@pytest.mark.costly("processes are started as users start them, imports and all")
def test_records_are_taken_before_any_model_is_loaded(service: Service) -> None:
    loaded = service.config.parent / "loaded"
    assert not loaded.exists()
    assert service.post(block("early")).json()["accepted"] == 20
    assert not loaded.exists()
    service.wait_judged(20)
    assert loaded.exists()


def test_a_second_service_on_the_same_folder_ends_with_the_reason(service: Service) -> None:
    done = outrider(service.config.parent, "serve", "--port", "0")
    assert done.returncode == 3
    assert "in use by another `outrider serve`" in done.stderr
    assert "Traceback" not in done.stderr
    assert service.is_ready()
    assert (service.folder / "run" / "server.json").exists()  # the running one's address stays


def test_a_taken_port_ends_the_start_with_the_reason(service: Service, tmp_path: Path) -> None:
    write_project(tmp_path)
    port = str(service.client.base_url.port)
    done = outrider(tmp_path, "serve", "--port", port)
    assert done.returncode == 3
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port 0" in done.stderr
    assert "Traceback" not in done.stderr


BROKEN = {
    "unknown key": (CONFIG.replace("slice_by", "slize_by"), ("models.toy.slize_by", "slice_by")),
    "wrong value": (CONFIG.replace("port = 0", "port = 'web'"), ("server.port", "web")),
    "not TOML": (CONFIG + "\n[models.toy\n", ("outrider.toml", "line")),
    "no model": ("[server]\nport = 0\n", ("models", "at least one")),
    "no secret": (
        f'{CONFIG}\n[[webhooks]]\nurl = "http://a.example/"\nsecret_file = "hook.secret"\n',
        ("hook.secret", "cannot be read", "docs/events.md"),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_configuration_ends_the_start_naming_the_key(tmp_path: Path, name: str) -> None:
    text, said = BROKEN[name]
    write_project(tmp_path, config=text)
    done = outrider(tmp_path, "serve")
    assert done.returncode == 3
    assert all(words in done.stderr for words in said), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "outrider-data").exists()


def test_without_a_configuration_the_start_ends_and_says_how_to_get_one(tmp_path: Path) -> None:
    done = outrider(tmp_path, "serve")
    assert done.returncode == 3
    assert "outrider init" in done.stderr


@pytest.mark.costly("processes are started as users start them, imports and all")
def test_a_killed_child_is_started_again_and_nothing_is_lost(service: Service) -> None:
    before = service.count("records")
    roles = service.processes()
    for number, role in enumerate(("intake", "worker", "trainer")):
        kill(roles[role])
        deadline = time.monotonic() + PATIENCE_S
        while not sent(service, block(f"again{number}")):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def fresh() -> bool:
        now = service.processes()
        return all(now.get(role, roles[role]) != roles[role] for role in ("intake", "worker", "trainer"))

    wait_until(fresh, "three fresh processes", service)
    service.wait_judged(before + 60)
    assert service.count("records") == before + 60


def sent(service: Service, records: list[dict[str, Any]]) -> bool:
    try:
        return service.post(records).status_code == 202
    except httpx.TransportError:
        return False


@pytest.mark.costly("processes are started as users start them, imports and all")
def test_sigterm_drains_within_ten_seconds_and_leaves_no_process(service: Service) -> None:
    acknowledged: set[str] = set()
    stop = threading.Event()

    def load() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            records = block(f"last{number}")
            if sent(service, records):
                acknowledged.update(record["id"] for record in records)

    sender = threading.Thread(target=load)
    sender.start()
    wait_until(lambda: len(acknowledged) > 500, "acknowledged records", service)
    pids = list(service.processes().values())
    assert service.process is not None
    began = time.monotonic()
    os.kill(service.process.pid, signal.SIGTERM)
    code = service.process.wait(promised(20))
    seconds = time.monotonic() - began
    stop.set()
    sender.join()
    log = service.log.read_text(encoding="utf-8")[-3000:]
    assert code == 0, log
    assert seconds < promised(10), log
    if IS_SOAK:  # on a busy machine the seconds may be over before all is done
        assert "is killed" not in log
    assert "Traceback" not in log
    assert len(pids) == 6  # supervisor, intake, worker, its host and its engine, trainer
    assert all_dead(pids)
    assert acknowledged <= journal_ids(service.folder / "journal.db")
    assert not (service.folder / "run" / "server.json").exists()


def journal_ids(path: Path) -> set[str]:
    with sqlite3.connect(path) as journal:
        payloads = journal.execute("SELECT payload FROM block WHERE kind = 'records'").fetchall()
    journal.close()
    ids: set[str] = set()
    for (payload,) in payloads:
        with pa.ipc.open_stream(payload) as reader:
            ids.update(reader.read_all().column("id").to_pylist())
    return ids
