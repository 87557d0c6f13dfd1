"""A running service erases a person: all processes stop for it, and nothing of the person is found again."""

import itertools
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from outrider.dataops.erasure import pending
from outrider.dataops.erasure.target import ErasureTarget
from tests.scan import needles, places

from .loop import Receiver
from .service import CONFIG, Service, wait_until, write_project

ENTITY, TEXT, NUMBER, DEVICE = "person-zq7f31", "secret zq7f32", 0.99731625, "device-zq7f33"
MARKERS = needles(ENTITY, TEXT, DEVICE, "zq7f", NUMBER)


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_running_service_erases_a_person_and_goes_on(tmp_path: Path) -> None:
    inbox = Receiver()
    with inbox.listen():
        hook = f'\n[[webhooks]]\nurl = "{inbox.url}"\nevents = ["incident.opened"]\nallow_private = true\n'
        hook += f'secret = "whsec_{"c2VjcmV0" * 4}"\n'
        hook += "\n[intake]\njoin_s = 600\n"  # or the half becomes a record of its own on a slow machine
        with Service(write_project(tmp_path / "project", config=CONFIG + hook)) as service:
            record_a_person(service)
            folder = service.folder
            found = places(folder, MARKERS)
            expected = ("block", "half", "record", "flag", "label", "live_answer", "dead_letter", "outbox")
            for table in expected:
                assert any(f".db {table}" in one for one in found), f"{table}: {found}"
            refusing = Refusing(service)
            counts = service.run_command("dataset", "erase", "--subject", ENTITY, "--dry-run")["would_go"]
            assert counts["records"] == 12
            assert {"flags", "labels", "live_answers", "dead_letters", "answers", "quotations"} <= set(counts)
            assert places(folder, MARKERS)
            told = service.run_command("dataset", "erase", "--subject", ENTITY, "--yes")
            assert told["counts"]["records"] == 12
            wait_until(service.is_ready, "a service that is back", service)
            refusing.stop()
            assert set(refusing.statuses) <= {202, 503}
            assert 202 in refusing.statuses[-1:]
            nothing_comes_again(service)
            assert service.client.get("/v1/erasures").json()["erasures"][0]["state"] == "done"
            written = service.client.get("/v1/log").json()["writes"]
            assert [one["path"] for one in written if one["action"] == "POST /v1/erasures"]
            assert "zq7f" not in json.dumps(written)
            listed = service.client.get("/v1/datasets").json()["datasets"]
            versions = {one["dataset"]: one["rows"] for one in listed}
            assert versions == {"toy-own": 2, "toy-flagged": 0}
            assert service.stop() == 0
        assert places(folder, MARKERS) == []
        with sqlite3.connect(folder / "journal.db") as journal:
            seqs = [row[0] for row in journal.execute("SELECT seq FROM block ORDER BY seq")]
        assert seqs == list(range(1, len(seqs) + 1))


def nothing_comes_again(service: Service) -> None:
    """Labels and repeats of erased records are refused; others of their requests are taken."""
    label = {"model": "toy", "id": "zq7f-1", "label": {"label": 1}}
    refused = service.client.post("/v1/labels", json=label)
    assert refused.status_code == 410
    assert "the record was erased" in refused.json()["detail"]
    about = {"model": "toy", "entity": ENTITY, "ts": "2026-01-05T10:00:00Z", "label": {"label": 1}}
    assert service.client.post("/v1/labels", json=about).status_code == 410
    both = service.post([own("zq7f-2", label=1), {"id": "new", "entity": "other", "inputs": {"x": 0.5}}])
    assert both.status_code == 202
    assert both.json()["accepted"] == 1
    assert [one["index"] for one in both.json()["rejected"]] == [0]
    assert service.post([{"id": "zq7f-3", "inputs": {"x": 0.5}}]).status_code == 410


def record_a_person(service: Service) -> None:
    """Everything that a record may leave in a data folder."""
    for block in range(12):
        rows: list[dict[str, Any]] = [
            {
                "id": f"{block}-{n}",
                "entity": f"p{n}",
                "inputs": {"x": ((block + n) % 20) / 20, "note": f"note {n}"},
                "attrs": {"device": "web"},
            }
            for n in range(4)
        ]
        rows[block % 4] |= own(f"zq7f-{block}", label=block % 2)
        assert service.post(rows).status_code == 202
    service.wait_judged(48)
    again = {**own("zq7f-0", label=0), "inputs": {"x": 0.5, "note": TEXT}}
    assert service.post([again]).status_code == 202  # another content: a dead letter
    waiting = {"model": "toy", **own("zq7f-half", label=None)}
    assert service.client.post("/v1/records?join=true", json=[waiting]).status_code == 202
    labels = [
        {"model": "toy", "id": "zq7f-1", "label": {"label": 1}, "source": "zq7f-expert"},
        {"model": "toy", "entity": ENTITY, "ts": "2036-01-05T10:00:00Z", "label": {"label": 0}},
    ]
    sent = service.client.post("/v1/labels", json=labels)
    assert sent.json()["accepted"] == 2, sent.text

    numbers = itertools.count()

    def is_stored() -> bool:
        # The checkpoints of windows are made with traffic.
        service.post([{"id": f"later{next(numbers)}", "entity": "later", "inputs": {"x": 0.2, "note": "n"}}])
        time.sleep(0.2)
        with sqlite3.connect(service.folder / "state.db") as state:
            counts = [
                state.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("label", "dead_letter", "outbox", "window_checkpoint", "live_answer")
            ]
        return counts[0] >= 2 and all(counts)

    commit_datasets(service)
    wait_until(is_stored, "stored labels and an incident", service, 60.0)


def commit_datasets(service: Service) -> None:
    """A version of what is flagged and labelled, and a table of somebody's own with a row of the person."""
    columns = {
        "id": ["zq7f-imported", "row-2", "row-3"],
        "entity": [ENTITY, "p1", "p2"],
        "inputs.x": [NUMBER, 0.25, 0.75],
        "inputs.note": [TEXT, "note 1", "note 2"],
        "label.label": [1, 0, 1],
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    sent = service.client.post(
        "/v1/datasets/toy-own/versions?model=toy",
        content=sink.getvalue().to_pybytes(),
        headers={"content-type": "application/vnd.apache.arrow.stream"},
    )
    assert sent.json().get("rows") == 3, sent.text
    flagged = service.client.post("/v1/datasets/toy-flagged/versions", json={"model": "toy", "from": "flags"})
    assert flagged.json().get("rows") == 2, flagged.text


def own(id_: str, *, label: int | None) -> dict[str, Any]:
    """Record of the person who goes."""
    given = {
        "id": id_,
        "entity": ENTITY,
        "inputs": {"x": NUMBER, "note": TEXT},
        "attrs": {"device": DEVICE},
    }
    return given if label is None else {**given, "outputs": {"label": label, "said": TEXT}}


class Refusing:
    """Sends records of somebody else all the time; keeps what they were answered with."""

    def __init__(self, service: Service) -> None:
        self.statuses: list[int] = []
        self._service = service
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def stop(self) -> None:
        """End, behind one that was taken."""
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set() or self.statuses[-1] != 202:
            record = {"id": f"other-{number}", "entity": "other", "inputs": {"x": 0.25, "note": "other"}}
            try:
                self.statuses.append(self._service.post([record]).status_code)
                number += 1
            except Exception:  # noqa: BLE001 - the process ended with the request in hand: it is sent again
                time.sleep(0.05)
            time.sleep(0.05)


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_start_finishes_an_erasure_that_was_killed(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    with Service(config) as service:
        assert service.post([own(f"zq7f-{n}", label=0) for n in range(5)]).status_code == 202
        service.wait_judged(5)
        assert service.stop() == 0
    assert places(service.folder, MARKERS)
    pending.ask(service.folder, ErasureTarget((ENTITY,)), who="owner", now_us=1)
    with Service(config) as again:
        (one,) = again.client.get("/v1/erasures").json()["erasures"]
        assert (one["state"], one["counts"]["records"]) == ("done", 5)
        assert again.post([{"id": "a", "inputs": {"x": 0.5}}]).status_code == 202
        again.wait_judged(6)
        assert again.stop() == 0
    assert places(service.folder, MARKERS) == []
