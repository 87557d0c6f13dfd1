"""SIGHUP and ``outrider reload``: what is good is taken up under load, what is bad changes nothing."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from outrider.monitor.settings.reload import read_state
from tests.soak import PATIENCE_S

from .service import CHECKS, CONFIG, MODEL, Service, outrider, wait_until, write_project

ALWAYS = (
    '\n\n@assertion\ndef always(batch):\n    """Every record."""\n    return batch.column("inputs.x") >= 0\n'
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    config = CONFIG.replace("port = 0\n", 'port = 0\nlog_format = "json"\n')
    with Service(write_project(tmp_path_factory.mktemp("reload"), config=config)) as running:
        running.post([{"id": "first", "inputs": {"x": 0.1}}])
        running.wait_judged(1)
        yield running


def records(name: str, rows: int = 10) -> list[dict[str, Any]]:
    return [{"id": f"{name}-{n}", "inputs": {"x": n / rows}} for n in range(rows)]


def hang_up(service: Service) -> None:
    assert service.process is not None
    os.kill(service.process.pid, signal.SIGHUP)


def test_a_bad_file_is_logged_and_shown_and_nothing_changes(service: Service) -> None:
    good = service.config.read_text()
    before = service.processes()
    service.config.write_text(good + "\n[nonsense]\nkey = 1\n")
    hang_up(service)
    wait_until(lambda: read_state(service.folder).problem != "", "refusal", service)
    assert "nonsense" in read_state(service.folder).problem
    assert service.client.get("/readyz").json()["config"]["refused"] is not None
    wait_until(lambda: "configuration was refused" in service.client.get("/m/toy").text, "notice", service)
    assert service.processes() == before
    # A process that dies now comes back with the last good configuration, not with the broken file.
    os.kill(before["worker"], signal.SIGKILL)
    service.post(records("bad"))
    service.wait_judged(11)
    service.config.write_text(good)


def test_assertions_that_do_not_load_are_refused_and_good_ones_are_taken_up(service: Service) -> None:
    checks = service.config.parent / "checks.py"
    checks.write_text("raise RuntimeError('half an edit')\n")
    done = outrider(service.config.parent, "reload")
    assert done.returncode == 3
    assert "half an edit" in done.stderr
    service.post(records("half"))
    service.wait_judged(21)
    before = service.processes()
    checks.write_text(CHECKS + ALWAYS)
    logged = service.log.stat().st_size
    loaded = service.run_command("reload")
    assert loaded["loaded"]
    assert loaded["versions"] == {"toy": "1"}
    assert service.query("SELECT 1 FROM assertion WHERE name = 'always' AND active"), "they are there"
    with service.log.open("rb") as log:
        log.seek(logged)
        said = [json.loads(line) for line in log]
    assert [line for line in said if line["level"] in ("warning", "error")] == []
    service.post(records("after"))
    service.wait_judged(31)
    assert service.query("SELECT count(*) FROM flag WHERE assertion = 'always'") == [(10,)]
    after = service.processes()
    assert after["worker"] != before["worker"]
    assert (after["supervisor"], after["intake"]) == (before["supervisor"], before["intake"])


def test_challengers_are_named_and_one_that_cannot_be_loaded_is_told(service: Service) -> None:
    good = service.config.read_text()
    section = '\n[models.toy.challengers.{0}]\npredictor = "model_{0}.py:predict"\n'
    (service.config.parent / "model_2.py").write_text(MODEL)
    service.config.write_text(good + section.format(2))
    done = outrider(service.config.parent, "reload")
    assert done.stdout.endswith("; answering: toy 1 (challengers: 2)\n"), done.stderr
    (service.config.parent / "model_3.py").write_text(f"import nothing_like_it\n{MODEL}")
    service.config.write_text(good + section.format(2) + section.format(3))
    done = outrider(service.config.parent, "reload")
    assert done.returncode == 4
    assert "toy@3: " in done.stderr
    assert "nothing_like_it" in done.stderr
    service.config.write_text(good)
    assert service.run_command("reload")["challengers"] == {"toy": []}


def test_a_policy_is_taken_up_and_a_broken_one_refuses_candidates_alone(service: Service) -> None:
    good, policy = service.config.read_text(), service.config.parent / "gate.toml"
    (service.config.parent / "model_2.py").write_text(MODEL)
    tables = '[models.toy.challengers.2]\npredictor = "model_2.py:predict"\n'
    tables += '[models.toy.gate]\npolicy = "gate.toml"\n'
    policy.write_text("version = 1\nrequires = []\nshadow_rows = 1\n[latency]\np99_ms = 1000000\n")
    service.config.write_text(f"{good}\n{tables}")
    assert service.run_command("reload")["loaded"]

    def judged() -> dict[str, Any]:
        job = service.client.post("/v1/retrains", json={"model": "toy", "candidate": "2"}).json()["id"]
        wait_until(
            lambda: service.client.get(f"/v1/retrains/{job}").json()["finished"] is not None, "job", service
        )
        found: dict[str, Any] = service.client.get("/v1/gates", params={"model": "toy"}).json()["gates"][0]
        return found

    service.post(records("beside"))
    first = judged()  # a few records tell nothing of the slowest
    assert first["outcome"] == "undecided", first["reasons"]
    assert first["evidence"]["policy"]["text"] == policy.read_text()
    policy.write_text("version = 1\nmax_drop = nan\n")
    done = outrider(service.config.parent, "reload")
    assert done.returncode == 3
    assert "models.toy.gate.policy: gate.toml, line 2: max_drop: " in done.stderr
    trainer = service.processes()["trainer"]
    os.kill(trainer, signal.SIGKILL)
    wait_until(lambda: service.processes().get("trainer", trainer) != trainer, "trainer", service)
    second = judged()
    assert second["outcome"] == "refused"
    assert second["reasons"][0].startswith("failed: gate.toml, line 2: max_drop: ")
    service.config.write_text(good)
    assert service.run_command("reload")["challengers"] == {"toy": []}


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_new_model_is_taken_up_under_load_and_no_acknowledged_record_is_lost(service: Service) -> None:
    acknowledged: list[str] = []
    refused: list[int] = []
    stop = threading.Event()

    def load() -> None:
        number = 0
        url, headers = str(service.client.base_url), service.client.headers
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
            while not stop.is_set():
                number += 1
                block = [{"model": "toy", **record} for record in records(f"load{number}")]
                try:
                    answer = client.post("/v1/records", json=block)
                except httpx.TransportError:
                    continue  # a connection that was kept alive ended; its records were not acknowledged
                if answer.status_code == 202:
                    acknowledged.extend(record["id"] for record in block)
                else:
                    refused.append(answer.status_code)
                time.sleep(0.01)

    sender = threading.Thread(target=load)
    sender.start()
    try:
        before = service.processes()
        more = service.config.read_text() + '\n[models.second]\npredictor = "model.py:predict"\n'
        service.config.write_text(more)
        found = service.run_command("reload")
        assert set(found["versions"]) == {"toy", "second"}
        with httpx.Client(base_url=service.client.base_url, headers=service.client.headers) as client:
            record = {"model": "second", "id": "s", "inputs": {"x": 0.95}}
            assert client.post("/v1/records", json=record).status_code == 202
        assert service.processes()["intake"] != before["intake"]
    finally:
        stop.set()
        sender.join()
    assert set(refused) <= {503}  # not acknowledged, told to come again
    judged = "SELECT count(*) FROM record WHERE model = 'toy' AND id LIKE 'load%'"

    def all_judged() -> bool:
        return bool(service.query(judged)[0][0] >= len(acknowledged))

    wait_until(all_judged, "judged records", service)
    wait_until(lambda: bool(service.query("SELECT 1 FROM record WHERE model = 'second'")), "second", service)
    found = {row[0] for row in service.query("SELECT id FROM record WHERE model = 'toy'")}
    assert set(acknowledged) <= found
    assert len(acknowledged) > 100
    told = service.client.get("/v1/models/toy/series", params={"measure": "records"}).json()["events"]
    assert "reload" in {event["kind"] for event in told}


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_every_line_of_the_log_is_json_and_names_its_process(service: Service) -> None:
    refused = service.client.post("/v1/records", json=[{"model": "nobody", "id": "r1"}])
    assert refused.status_code == 422

    def rejected() -> list[dict[str, Any]]:
        return [line for line in lines() if line.get("event") == "rejected"]

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in service.log.read_text(encoding="utf-8").splitlines()]

    wait_until(lambda: bool(rejected()), "line of the rejected record", service)
    (line,) = rejected()
    assert (line["process"], line["model"], line["record_id"]) == ("intake", "nobody", "r1")
    assert line["reason"] == "unknown_model"
    assert {line["process"] for line in lines()} >= {"supervisor", "intake"}
    assert Path(service.folder / "run" / "outrider.toml").exists()
