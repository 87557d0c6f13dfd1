"""A running service lets payloads expire by itself; `doctor` and a backup of it know."""

import itertools
import time
from pathlib import Path

import pytest

from .service import CONFIG, Service, wait_until, write_project


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_payloads_expire_while_the_service_runs(tmp_path: Path) -> None:
    config = CONFIG + "\n[storage]\nkeep_days = 1e-5\nkeep_around_rows = 0\n"
    with Service(write_project(tmp_path, config=config)) as service:
        rows = [{"id": f"a{n}", "inputs": {"x": n / 20}, "attrs": {"device": "d"}} for n in range(20)]
        assert service.post(rows).status_code == 202
        service.wait_judged(20)

        numbers = itertools.count()

        def has_expired() -> bool:
            # The checkpoints of windows must pass the block as well: they are made with traffic.
            service.post([{"id": f"later{next(numbers)}", "inputs": {"x": 0.2}}])
            time.sleep(0.2)
            return bool(service.client.get("/v1/records/toy/a4").json()["payload_expired"])

        wait_until(has_expired, "expired payload", service)
        flagged = service.client.get("/v1/records/toy/a19").json()
        assert flagged["payload_expired"] is False
        assert flagged["record"]["inputs"] == {"x": 0.95}
        metrics = service.client.get("/metrics").text
        assert 'outrider_payloads_expired_total{model="toy",process="intake"}' in metrics
        facts = service.run_command("doctor")["data"]
        assert facts["records_kept_of_expired_blocks"] > 0
        made = service.run_command("backup", str(tmp_path / "copy"))
        assert made["tables"]["record"] >= 20
        pauses_rest(service)


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_rows_expire_while_the_service_runs(tmp_path: Path) -> None:
    config = CONFIG + "\n[storage]\nkeep_days = 1e-5\nkeep_rows_days = 1e-5\nkeep_around_rows = 0\n"
    with Service(write_project(tmp_path, config=config)) as service:
        rows = [{"id": f"a{n}", "inputs": {"x": n / 20}, "attrs": {"device": "d"}} for n in range(20)]
        assert service.post(rows).status_code == 202
        service.wait_judged(20)
        numbers = itertools.count()

        def has_gone() -> bool:
            service.post([{"id": f"later{next(numbers)}", "inputs": {"x": 0.2}}])
            time.sleep(0.2)
            return service.client.get("/v1/records/toy/a4").status_code == 410

        wait_until(has_gone, "expired rows", service)
        assert "has expired" in service.client.get("/v1/records/toy/a4").json()["detail"]
        before = service.count("duplicates")
        label = {"model": "toy", "id": "a4", "label": {"label": 1}}
        assert service.client.post("/v1/labels", json=label).status_code == 202
        assert service.post(rows[4:5]).status_code == 202
        wait_until(lambda: service.count("duplicates") > before, "a known repeat", service)
        late = "SELECT count(*) FROM dead_letter WHERE record_id = 'a4' AND reason = 'expired'"
        wait_until(lambda: service.query(late) == [(1,)], "a late label", service)
        assert service.query("SELECT count(*) FROM record WHERE id = 'a4'") == [(0,)]


def pauses_rest(service: Service) -> None:
    """`outrider pause` and `resume` act on the running service, and capture goes on."""
    assert service.run_command("pause", "shadow", "--who", "ann")["who"] == "ann"
    assert "Shadow models are paused" in service.client.get("/m/toy").text
    time.sleep(1.0)  # the worker looks every quarter of a second
    before = service.count("records")
    assert service.post([{"id": f"paused{n}", "inputs": {"x": 0.2}} for n in range(5)]).status_code == 202
    time.sleep(1.0)
    assert service.count("records") == before
    assert [row["what"] for row in service.run_command("resume", "shadow")["pauses"]] == ["shadow"]
    service.wait_judged(before + 5)
