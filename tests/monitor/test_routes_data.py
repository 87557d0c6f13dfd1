"""The data API in process, with the trainer's jobs run by a thread."""

import asyncio
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, insert, text

from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets.erased import erase_rows
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import improvement_tables
from outrider.dataops.state.database import write
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.gate_sections import GateSettings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import LimitSettings, StorageSettings
from outrider.monitor.trainer.context import JobContext
from tests.databases import migrated
from tests.declared_bodies import check_body
from tests.gate_evidence import kept_evidence
from tests.model_sources import section_source
from tests.monitor.services import every_app
from tests.running_jobs import run_until

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


class Client:
    """Asks an application in process, one request at a time."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    def get(self, url: str, *, headers: dict[str, str] | None = None) -> httpx.Response:
        return asyncio.run(self._ask(httpx.Request("GET", f"http://test{url}", headers=headers)))

    def post(
        self,
        url: str,
        *,
        json: object = None,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        request = httpx.Request("POST", f"http://test{url}", json=json, content=content, headers=headers)
        return asyncio.run(self._ask(request))

    def put(self, url: str, *, json: object) -> httpx.Response:
        return asyncio.run(self._ask(httpx.Request("PUT", f"http://test{url}", json=json)))

    def delete(self, url: str) -> httpx.Response:
        return asyncio.run(self._ask(httpx.Request("DELETE", f"http://test{url}")))

    async def _ask(self, request: httpx.Request) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app)) as client:
            answer = await client.send(request)
        check_body(self.app, answer)
        return answer


class NoBlocks:
    def get(self, seq: int) -> "NoBlocks":
        raise KeyError(seq)

    @property
    def payload(self) -> bytes:
        return b""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = migrated(tmp_path / "state.db")
    yield engine
    engine.dispose()


@pytest.fixture
def client(engine: Engine, tmp_path: Path) -> Iterator[Client]:
    model = ModelSettings(
        architecture="model.py:Net", weights="w", inputs=("x",), classes=(0, 1), gate=GateSettings()
    )
    settings = Settings(
        base=tmp_path,
        models={"m": model, "f": ModelSettings(predictor="model.py:predict")},
        limits=LimitSettings(dataset_bytes=100_000),
    )
    objects = LocalObjects(tmp_path / "objects")
    with write(engine) as connection:
        models.register_initial(
            connection,
            objects,
            model="m",
            version="1",
            content=b"weights",
            is_weights=True,
            now_us=1_000_000,
            source=section_source(settings, "m"),
        )
        models.register(
            connection,
            model="m",
            version="2",
            status="challenger",
            digest="d",
            weights=None,
            now_us=2,
            source=section_source(settings, "m"),
        )
    shop = JobContext(settings, engine, objects, NoBlocks(), poll_s=0.01)
    thread = threading.Thread(target=run_until, args=(shop,))
    thread.start()
    app = every_app(engine, settings=settings, objects=objects)
    yield Client(app)
    shop.stop.set()
    thread.join()


def arrow(labels: list[int]) -> bytes:
    table = pa.table(
        {"id": [f"r{row}" for row in range(len(labels))], "x": np.arange(float(len(labels))), "label": labels}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow publishes no types


def arrow_that_states(size: int) -> bytes:
    """A stream whose batch says that it is so many bytes long."""
    stream = arrow([0] * 9)
    messages = pa.ipc.MessageReader.open_stream(stream)
    [_, batch] = [messages.read_next_message() for _ in range(2)]
    stated = struct.pack("<q", batch.body.size)
    assert stream.count(stated) == 1
    return stream.replace(stated, struct.pack("<q", size))


def test_a_version_is_found_by_its_digest_and_an_erased_one_names_the_next(
    client: Client, engine: Engine, tmp_path: Path
) -> None:
    at = "/v1/datasets/train/versions"
    made = client.post(f"{at}?model=m", content=arrow([0, 1, 1]), headers=ARROW).json()
    assert client.get(f"{at}/{made['digest']}").json()["number"] == 1
    erased = erase_rows(engine, LocalObjects(tmp_path / "objects"), ["r1"])
    ((_, _, before, now),) = erased.versions
    for path in ("", "/rows", "/provenance"):
        gone = client.get(f"{at}/{made['digest']}{path}")
        assert gone.status_code == 410
        assert f"train@1 had digest {before} until 1 of its rows were erased" in gone.json()["detail"]
        assert f"its digest is now {now}" in gone.json()["detail"]
        assert client.get(f"{at}/{now}{path}").status_code == 200
    compared = client.get(f"/v1/datasets/train/diff?old={before}&new=1")
    assert (compared.status_code, f"now {now}" in compared.json()["detail"]) == (410, True)
    found = client.get(f"{at}/1").json()
    assert (found["digest"], found["rows"], found["manifest"]["erased"]) == (now, 2, 1)
    assert "data_docs" not in found["manifest"]["validation"]
    assert Batch.from_ipc(client.get(f"{at}/1/rows").content).keys.tolist() == ["r0", "r2"]
    assert client.get(f"{at}/{'0' * 64}").status_code == 404


def test_a_table_is_imported_validated_and_read_back(client: Client) -> None:
    answer = client.post("/v1/datasets/train/versions?model=m", content=arrow([0, 1, 1]), headers=ARROW)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["number"], answer.json()["rows"]) == (1, 3)
    listed = client.get("/v1/datasets").json()["datasets"]
    assert [(item["dataset"], item["digest"]) for item in listed] == [("train", answer.json()["digest"])]
    rows = client.get("/v1/datasets/train/versions/newest/rows")
    assert Batch.from_ipc(rows.content).column("label.label").tolist() == [0, 1, 1]
    assert client.get("/v1/datasets/train/versions/1").json()["manifest"]["columns"]["inputs.x"] == "double"
    provenance = client.get("/v1/datasets/train/versions/1/provenance").json()["rows"]
    assert provenance[0] == {
        "record_id": "r0",
        "assertion": None,
        "label_source": "import",
        "part": "train",
        "label_seq": None,
        "label_row": None,
        "model_version": None,
        "flags": [],
        "reviewer": None,
        "weight": None,
    }
    again = client.post("/v1/datasets/train/versions?model=m", content=arrow([0, 1, 0]), headers=ARROW)
    assert again.json()["number"] == 2
    difference = client.get("/v1/datasets/train/diff?old=1&new=2").json()
    assert difference == {"added": [], "removed": [], "changed": ["r2"], "rows": []}


def test_rows_are_streamed_in_batches_of_some_columns(engine: Engine, tmp_path: Path) -> None:
    rows = 20_000
    objects = LocalObjects(tmp_path / "objects")
    columns: dict[str, Any] = {
        "id": [f"r{row:05}" for row in range(rows)],
        "inputs.x": np.arange(float(rows)),
    }
    batch = Batch.from_columns(columns | {"label.label": [0] * rows}, model="m")
    origin = [Provenance(key, part="held_out" if row % 4 else "train") for row, key in enumerate(batch.keys)]
    with write(engine) as connection:
        draft = changes.prepare(
            connection, objects, dataset="d", batch=batch, provenance=origin, append=False
        )
        changes.commit(connection, draft, validation={}, now_us=1)
    settings = Settings(base=tmp_path, models={"m": ModelSettings(predictor="model.py:predict")})
    app = every_app(engine, settings=settings, objects=objects)
    answer = Client(app).get("/v1/datasets/d/versions/1/rows?part=train&column=inputs.x&column=id")
    assert "content-length" not in answer.headers, "it is sent while it is read"
    with pa.ipc.open_stream(answer.content) as reader:
        found = list(reader)
    assert max(one.num_rows for one in found) <= 8192 < rows
    assert found[0].schema.names == ["inputs.x", "id"]
    assert pa.Table.from_batches(found).column("id").to_pylist() == columns["id"][::4]


def test_a_dataset_leaves_the_disk_what_records_need(engine: Engine, tmp_path: Path) -> None:
    settings = Settings(
        base=tmp_path,
        models={"m": ModelSettings(predictor="model.py:predict")},
        storage=StorageSettings(min_free_bytes=2**60),
    )
    app = every_app(engine, settings=settings)
    answer = Client(app).post("/v1/datasets/d/versions?model=m", content=arrow([0]), headers=ARROW)
    assert (answer.status_code, "min_free_bytes" in answer.text) == (507, True)


@pytest.mark.parametrize(
    ("url", "content", "status", "detail"),
    [
        ("/v1/datasets/d/versions?model=m", arrow([0, 7]), 422, "expect_column_values_to_be_in_set"),
        ("/v1/datasets/d/versions?model=m", b"not arrow", 400, "a message does not begin"),
        ("/v1/datasets/d/versions?model=m", arrow([0] * 9)[:-200], 400, "not an Arrow IPC stream"),
        ("/v1/datasets/d/versions?model=m", arrow_that_states(2**60), 400, "1152921504606846976 bytes"),
        ("/v1/datasets/d/versions", arrow([0]), 422, "?model= is needed"),
        ("/v1/datasets/%2e%2e/versions?model=m", arrow([0]), 422, "dataset '..': a name expected that"),
        ("/v1/datasets/%2e/versions?model=m", arrow([0]), 422, "dataset '.': a name expected that"),
        ("/v1/datasets/a%5Cb/versions?model=m", arrow([0]), 422, "a name expected without slashes"),
        ("/v1/datasets/d@1/versions?model=m", arrow([0]), 422, "a name expected without '@'"),
        ("/v1/datasets/a%0Ab/versions?model=m", arrow([0]), 422, "printable characters"),
        (f"/v1/datasets/{'d' * 201}/versions?model=m", arrow([0]), 422, "of at most 200"),
        ("/v1/datasets/d/versions?model=x", arrow([0]), 404, "no model 'x' in the configuration"),
        ("/v1/datasets/d/versions?model=m", bytes(100_001), 413, "100001 bytes"),
    ],
)
def test_what_cannot_be_imported_is_explained(
    client: Client, url: str, content: bytes, status: int, detail: str
) -> None:
    answer = client.post(url, content=content, headers=ARROW)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert detail in answer.json()["detail"]


def test_committing_flags_needs_new_ones_and_the_right_name(client: Client) -> None:
    body = {"model": "m", "from": "flags"}
    assert client.post("/v1/datasets/m-flagged/versions", json=body).status_code == 409
    assert "go to dataset 'm-flagged'" in client.post("/v1/datasets/d/versions", json=body).json()["detail"]
    assert client.post("/v1/datasets/d/versions", json={"from": "flags"}).json()["field"] == "model"


def test_models_are_listed_and_weights_downloaded(client: Client) -> None:
    listed = client.get("/v1/models?model=m").json()["models"]
    assert [(item["version"], item["status"], item["has_weights"]) for item in listed] == [
        ("2", "challenger", False),
        ("1", "champion", True),
    ]
    assert listed[1]["created"] == "1970-01-01T00:00:01Z"
    weights = client.get("/v1/models/m/versions/champion/weights")
    assert (weights.content, weights.headers["x-outrider-version"]) == (b"weights", "1")
    assert client.get("/v1/models/m/versions/2/weights").status_code == 404
    assert client.get("/v1/models/x/versions/champion").status_code == 404


def verdict(engine: Engine, *, passed: bool) -> None:
    with write(engine) as connection:
        row = {"id": f"v{passed}", "model": "m", "candidate": "2", "champion": "1", "promoted": False}
        more = {
            "reasons": ["failed: worse"],
            "evidence": kept_evidence(passed=passed),
            "created_us": int(passed),
        }
        connection.execute(insert(improvement_tables.GateVerdict), [{**row, **more}])


def test_promotion_needs_the_gate_or_force_and_rolls_back(client: Client, engine: Engine) -> None:
    url = "/v1/models/m/promote"
    unjudged = client.post(url, json={"version": "2"})
    assert (unjudged.status_code, "not judged" in unjudged.json()["detail"]) == (409, True)
    verdict(engine, passed=False)
    assert (
        "the promotion gate refused m@2: failed: worse"
        in client.post(url, json={"version": "2"}).json()["detail"]
    )
    speechless = client.post(url, json={"version": "2", "force": True})
    assert (speechless.status_code, "says why" in speechless.json()["detail"]) == (409, True)
    forced = client.post(url, json={"version": "2", "force": True, "reason": "we know better"})
    assert (forced.json()["status"], forced.json()["replaced"]) == ("champion", "1")
    assert forced.json()["note"] == "we know better"
    assert client.post("/v1/models/m/rollback").json()["version"] == "1"
    nowhere = client.post("/v1/models/m/rollback")
    assert (nowhere.status_code, "former champions: 2" in nowhere.json()["detail"]) == (409, True)
    verdict(engine, passed=True)
    assert client.post(url, json={"version": "2"}).status_code == 200
    assert client.get("/v1/lineage/m").json()["id"] == "m@2"
    assert [item["evidence"]["passed"] for item in client.get("/v1/gates?model=m").json()["gates"]] == [
        True,
        False,
    ]
    assert client.post(url, json={"version": "2", "forse": True}).json()["errors"][0]["field"] == "body.forse"


def test_who_asks_again_for_the_champion_waits_for_another(client: Client, engine: Engine) -> None:
    url = "/v1/models/m/versions/champion"
    first = client.get(url)
    assert (first.status_code, first.json()["version"]) == (200, "1")
    known = {"if-none-match": f'"another", W/{first.headers["etag"]}'}
    same = client.get(url, headers=known)
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", first.headers["etag"])

    def promote() -> None:
        with write(engine) as connection:
            models.promote(connection, "m", "2", now_us=9_000_000, reason="", by="ann")

    assert client.get(url, headers={"if-none-match": "*"}).status_code == 304

    later = threading.Timer(0.5, promote)
    later.start()
    other = client.get(f"{url}?wait=60", headers=known)
    later.join()
    assert (other.status_code, other.json()["version"]) == (200, "2")
    assert client.get(f"{url}?wait=61").json()["errors"][0]["field"] == "query.wait"
    assert client.get("/v1/models/none/versions/champion").status_code == 404
    client.app.is_ending = lambda: True  # type: ignore[attr-defined]
    assert client.get(f"{url}?wait=60", headers={"if-none-match": other.headers["etag"]}).status_code == 304


def test_the_history_says_who_was_champion_when(client: Client) -> None:
    asked = {"version": "2", "force": True, "reason": "seen in production"}
    long = asked | {"reason": "x" * 2001}
    assert client.post("/v1/models/m/promote", json=long).json()["errors"][0]["field"] == "body.reason"
    assert client.post("/v1/models/m/promote", json=asked).status_code == 200
    assert client.post("/v1/models/m/rollback", json={"to": "1"}).status_code == 200
    found = client.get("/v1/models/m/history?limit=2").json()
    told = [(row["version"], row["action"], row["reason"]) for row in found["changes"]]
    assert told == [("1", "rolled_back", "asked for"), ("2", "overridden", "seen in production")]
    assert found["changes"][1]["until"] == found["changes"][0]["at"]
    rest = client.get(f"/v1/models/m/history?before={found['next']}").json()
    assert client.get(f"/v1/models/m/history?before={2**63}").status_code == 422
    assert [row["action"] for row in rest["changes"]] == ["registered"]
    assert rest["next"] is None
    assert client.get("/v1/models/none/history").status_code == 404


def test_a_deep_lineage_is_answered_in_parts(client: Client, engine: Engine) -> None:
    edges = [("model", "m@1", "records", "0")] + [
        ("records", str(number), "records", str(number + 1)) for number in range(1_200)
    ]
    names = ("child_kind", "child", "parent_kind", "parent")
    with write(engine) as connection:
        connection.execute(
            insert(improvement_tables.LineageEdge),
            [dict(zip(names, edge, strict=True)) | {"role": "rows", "created_us": 1} for edge in edges],
        )

    def last(start: str) -> tuple[dict[str, Any], int]:
        root = node = client.get(f"/v1/lineage/m{start}").json()
        while node["parents"]:
            (node,) = node["parents"]
        return node, root.get("more", 0)

    node, more = last("")
    assert (node["cut"], more) == (True, 1_200 - int(node["id"]))
    node, left = last(f"?start={node['kind']}:{node['id']}")
    assert left == 1_200 - int(node["id"]) < more
    unknown = client.get("/v1/lineage/m?start=dataset:d@1")
    assert unknown.status_code == 404


def test_a_challenger_that_was_retired_unjudged_is_not_taken_for_a_former_champion(
    client: Client, engine: Engine
) -> None:
    url = "/v1/models/m/promote"
    with write(engine) as connection:
        models.set_status(connection, "m", "2", "retired", now_us=3, note="its section is gone")
    refused = client.post(url, json={"version": "2"})
    assert (refused.status_code, "not judged" in refused.json()["detail"]) == (409, True)
    assert client.post(url, json={"version": "2", "force": True, "reason": "seen"}).status_code == 200
    assert client.post(url, json={"version": "1"}).json()["status"] == "champion"
    assert client.post(url, json={"version": "2"}).json()["status"] == "champion"  # now it was one before


def test_a_retraining_is_queued_with_its_own_settings(client: Client, engine: Engine) -> None:
    answer = client.post("/v1/retrains", json={"model": "m", "from_scratch": True, "epochs": 1})
    assert answer.status_code == 202
    assert answer.json()["params"] == {"from_scratch": True, "epochs": 1, "upto_seq": None}
    assert client.get(f"/v1/retrains/{answer.json()['id']}").json()["model"] == "m"
    assert len(client.get("/v1/retrains?model=m").json()["retrains"]) == 1
    assert client.post("/v1/retrains", json={"model": "m", "epochs": 0}).status_code == 422
    assert client.post("/v1/retrains", json={"model": "f"}).status_code == 409
    assert client.post("/v1/retrains", json={"model": "x"}).status_code == 404
    assert client.get("/v1/retrains/job_x").status_code == 404


def test_a_training_is_repeated_from_its_record_alone(client: Client, engine: Engine) -> None:
    job = client.post("/v1/retrains", json={"model": "m", "epochs": 1}).json()["id"]
    body = {"model": "m", "repeat": job}
    refused = client.post("/v1/retrains", json=body)
    assert (refused.status_code, refused.json()["field"]) == (409, "repeat")
    assert "has no record of a training that ended" in refused.json()["detail"]
    with write(engine) as connection:
        connection.execute(text("""UPDATE job SET status = 'done', result = '{"run": {"digest": "ab"}}'"""))
    other = client.post("/v1/retrains", json={**body, "seed": 3})
    assert (other.status_code, other.json()["field"]) == (422, "seed")
    assert client.post("/v1/retrains", json={**body, "model": "f"}).status_code == 422
    queued = client.post("/v1/retrains", json=body)
    assert (queued.status_code, queued.json()["params"]["repeat"]) == (202, job)


def test_labels_are_asked_for(client: Client, engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(
            text(
                "INSERT INTO record (model, id, seq, row, ts_us, digest, weight)"
                " VALUES ('m', 'a', 1, 0, 0, 0, 1)"
            )
        )
    refused = client.post("/v1/label-requests", json={"model": "m", "budget": 1, "policy": "best"})
    assert refused.status_code == 422
    asked = client.post("/v1/label-requests", json={"model": "m", "budget": 1, "policy": "random"})
    assert [item["record_id"] for item in asked.json()["requests"]] == ["a"]
    assert [item["is_labelled"] for item in client.get("/v1/label-requests").json()["requests"]] == [False]
    assert client.get("/v1/label-requests?status=labelled").json() == {"requests": []}


def test_rounds_are_full_and_labels_of_everything_give_the_truth(client: Client, engine: Engine) -> None:
    """Three cameras at a record a second, one in ten flagged: groups run out before the budget does."""
    record = (
        "INSERT INTO record (model, id, seq, row, ts_us, digest, weight, entity, predicted)"
        " VALUES ('m', :id, 1, :row, :ts_us, 0, 1, :entity, '0')"
    )
    flag = (
        "INSERT INTO flag (id, model, record_id, assertion, revision, slot, severity, level, seq, row, ts_us)"
        " VALUES (:id, 'm', :id, 'odd', '1', 'champion', 1, 'info', 1, :row, 0)"
    )
    rows = [
        {"id": f"r{row:02}", "row": row, "ts_us": row * 1_000_000, "entity": f"camera {row % 3}"}
        for row in range(60)
    ]
    with write(engine) as connection:
        connection.execute(text(record), rows)
        connection.execute(text(flag), [row for row in rows if row["row"] in range(0, 60, 10)])
    label = (
        "INSERT INTO label (seq, row, model, record_id, source, value, label, ts_us, received_us)"
        " VALUES (:round, :position, 'm', :record_id, 'human', :value, '{}', 0, 0)"
    )
    for _ in range(3):
        body = {"model": "m", "budget": 20, "policy": "uniform"}
        asked = client.post("/v1/label-requests", json=body).json()["requests"]
        assert len(asked) == 20
        by_policy = [item["record_id"] for item in asked if not item["is_audit"]]
        assert len({int(name[1:]) % 3 for name in by_policy}) == len(by_policy)  # one of a camera
        wrong = [item | {"value": str(int(int(item["record_id"][1:]) < 6))} for item in asked]
        with write(engine) as connection:
            connection.execute(text(label), wrong)
    assert client.post("/v1/label-requests", json=body).json() == {"requests": []}
    accuracy = client.get("/v1/models/m/estimates").json()["accuracy"]
    assert accuracy["value"] == pytest.approx(0.9)
    assert (accuracy["labels"], accuracy["method"]) == (60, "weighted")


def test_estimates_need_labels_that_were_asked_for(client: Client) -> None:
    found = client.get("/v1/models/m/estimates").json()
    assert found["precision"] == {}
    assert (found["accuracy"]["value"], found["accuracy"]["low"], found["accuracy"]["high"]) == (
        None,
        0.0,
        1.0,
    )
    assert client.get("/v1/models/x/estimates").status_code == 404
