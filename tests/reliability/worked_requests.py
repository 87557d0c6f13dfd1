"""A request of each kind that needs more than names: bodies and addresses that fit what a service holds."""

import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
from sqlalchemy import text

from outrider.assertions import Batch
from outrider.assertions.learn import learn
from outrider.dataops.datasets import changes
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.erasure import pending
from outrider.dataops.erasure.target import ErasureTarget
from outrider.dataops.improvement import jobs
from outrider.dataops.learned.proposals import Learned, learned_path, save_learned
from outrider.dataops.models.registry import register
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, open_database, write
from outrider.monitor.views.suites.published import OutcomeGiven
from tests.comparison_reports import report
from tests.model_sources import FUNCTION
from tests.monitor.web.sample import MODEL
from tests.monitor.web.test_api_types import ALERTS, Api
from tests.soak import PATIENCE_S

from .mutations import Request

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
DATASET = "worked"
OUTCOME = "4/test_digits/inv_shift"
RETIRED = "7"
PICTURE = [[0.0, 0.25, 0.5, 0.75]] * 4
LOOK_S = 0.1


def complete(api: Api) -> None:
    """Give a sample what routes serve from files: weights, rows, pictures of flags, proposals."""
    settings = api.intake.settings
    objects, engine = LocalObjects(settings.data_folder / "objects"), open_database(settings.database_url)
    with write(engine) as connection:
        for ids in ("ab", "abc"):
            draft = changes.prepare(
                connection, objects, dataset=DATASET, batch=_rows(ids), append=True,
                provenance=[Provenance(one, "none", "human", "train") for one in ids],
            )  # fmt: skip
            docs = {"data_docs": objects.put(gzip.compress(b"<p>docs</p>", mtime=0))}
            changes.commit(connection, draft, validation=docs, now_us=now_us(), made_from=[])
        connection.execute(
            text("UPDATE model_version SET weights = :to WHERE version IN ('3', '4')"),
            {"to": objects.put(b"weights")},
        )
        register(
            connection, model=MODEL, version=RETIRED, status="challenger", digest="7" * 64,
            weights=None, now_us=now_us(), source=FUNCTION,
        )  # fmt: skip
        connection.execute(
            text("UPDATE flag SET evidence = :to"), {"to": json.dumps({"inputs": {"image": PICTURE}})}
        )
    engine.dispose()
    known = Batch.from_columns({"inputs.x": np.linspace(0.0, 1.0, 400)}, model=MODEL)
    found = Learned(now_us(), known.rows, 1.0, tuple(learn(known)))
    assert found.proposals
    save_learned(learned_path(settings.data_folder, MODEL), found)


def worked_requests(api: Api) -> list[Request]:
    """Requests that are answered with success, in their order."""
    flag = api.ask("GET", f"/v1/flags?model={MODEL}").json()["flags"][0]
    outcome = api.ask("GET", f"/v1/suites/{MODEL}/outcomes/{OUTCOME}").json()["outcome"]
    given = {name: outcome[name] for name in OutcomeGiven.model_fields}
    image = {"image": [[0.0] * 8] * 8}
    record = {"model": MODEL, "id": "new", "inputs": image, "outputs": {"label": 3}}
    assertion = f"/assertions/{MODEL}/{flag['assertion']}"
    compared = report()
    comparison = api.ask("POST", "/v1/comparisons", compared).json()["id"]
    other = api.ask("POST", "/v1/comparisons", compared | {"seconds": 9.0}).json()["id"]
    target = ErasureTarget(records=(flag["record_id"],))
    erasure = pending.ask(api.intake.settings.data_folder, target, who="owner", now_us=now_us())
    waiting, failing = _waiting_jobs(api)
    endpoint = {"kind": "endpoint", "url": "http://1.1.1.1/v2/models/m"}
    file = {"name": "m.onnx", "bytes": 9, "sha256": "0" * 64}
    begun = [
        api.ask("POST", f"/v1/models/{MODEL}/versions", one).json()["upload"]
        for one in (endpoint, {"kind": "onnx", "files": [file]}, endpoint)
    ]
    pair = {"candidate": "faulty", "id": compared["candidates"][1]["to_label"][0]["id"], "right": "both"}
    return [
        _form("/login", key=api.key, next="/"),
        _json("/v1/records", [record, record | {"id": "other", "inputs": image | {"learnt": 1.5}}]),
        _json("/v1/labels", [{"model": MODEL, "id": "new", "label": {"label": 3}}]),
        _json("/v1/columns/forget", {"model": MODEL, "names": ["inputs.learnt"]}),
        _get("/static/outrider.css"),
        _get(f"/v2/models/{MODEL}/ready"),
        _form(f"/sessions/{api.open_session()}/end"),
        _json(f"/v1/sessions/{api.open_session()}/end", {}),
        _form("/reviews", flag=flag["id"], is_error="1"),
        _get("/incidents/inc_2"),
        _get(f"/incidents?model={MODEL}&kind=flags&assertion=track_agrees"),
        _form("/incidents/inc_2", action="acknowledge"),
        _json("/v1/incidents/inc_2", {"action": "mute", "for_s": 60}),
        _json("/v1/keys", {"name": "anna", "scopes": ["label"]}),
        _json("/v1/keys/anna/limits", {"bytes_per_day": 10}),
        _json("/v1/keys/anna/revoke", {}),
        _json(f"/v1/suites/{MODEL}/cases", {"flag": flag["id"], "mode": "mft", "label": 3}),
        _get(f"/v1/flags/{MODEL}/{flag['id']}"),
        _get("/v1/retrains/job-1"),
        _get("/v1/jobs/job-1"),
        _get(f"/v1/jobs?model={MODEL}&state=ended&kind=retrain"),
        _json("/v1/jobs/job-0/cancel", {}),
        _json("/v1/jobs/job-0/retry", {}),
        _form(f"/m/{MODEL}/jobs", job="job-0", action="retry"),
        _get(f"/v1/models/{MODEL}/versions/3/weights"),
        _get(f"/v1/models/{MODEL}/versions/champion?wait=0.1"),
        _json(f"/v1/models/{MODEL}/versions/3/retire", {"reason": "it hangs"}),
        _get(f"/v1/models/{MODEL}/history?limit=2&before=9"),
        _get(f"/v1/datasets/{DATASET}/versions/newest"),
        _get(f"/v1/datasets/{DATASET}/versions/newest/provenance"),
        _get(f"/v1/datasets/{DATASET}/versions/2/rows?part=train"),
        _get(f"/v1/datasets/{DATASET}/diff?old=1&new=2"),
        _get(f"/v1/datasets/{DATASET}/tags"),
        _get(f"/v1/models/{MODEL}/alarms?limit=2"),
        _get(f"/m/{MODEL}/alarms"),
        _get(f"/v1/models/{MODEL}/slices?outcome=flagged"),
        _get(f"/v1/models/{MODEL}/drift?since=2026-01-02T00:00:00Z&until=2026-01-03T00:00:00Z&reference=7d"),
        _get(f"/m/{MODEL}/behavior/{OUTCOME}"),
        _get(f"/m/{MODEL}/images/behavior/{OUTCOME}?case=0&name=image&part=after"),
        _get(f"/m/{MODEL}/images/flags/{flag['id']}/inputs.image"),
        _form(f"/m/{MODEL}/labels", record=flag["record_id"], value="3"),
        _form(f"/m/{MODEL}/cases", flag=flag["id"], mode="mft", label="3"),
        _get(assertion),
        _get(f"/v1{assertion}"),
        _json(f"/v1{assertion}/suspend", {"for_s": 60}),
        _json(f"/v1{assertion}/resume", {}),
        _form(f"{assertion}/suspend", for_s="60"),
        _form(f"{assertion}/resume"),
        _get(f"/v1/suites/{MODEL}/matrix"),
        _get(f"/v1/suites/{MODEL}/outcomes/{OUTCOME}"),
        _get(f"/v1/flags?model={MODEL}"),
        _get(f"/v1/records?model={MODEL}&limit=3"),
        _get(f"/v1/weak-labels?model={MODEL}"),
        _get(f"/v1/fairness?model={MODEL}&by=device&positive=3"),
        _form(f"/m/{MODEL}/proposals/learn"),
        _json("/v1/proposals", {"model": MODEL}),
        _get(f"/m/{MODEL}/images/records/inputs.image/{flag['record_id']}"),
        _json(f"/v1/suites/{MODEL}/outcomes", {"version": "3", "source": "cli", "outcomes": [given]}),
        Request(f"/v1/datasets/{DATASET}/versions?model={MODEL}&wait_s=0", ARROW, _arrow(_rows("d"))),
        _json(f"/v1/datasets/{MODEL}-flagged/versions?wait_s=0", {"model": MODEL, "from": "flags"}),
        _json("/v1/retrains", {"model": MODEL, "candidate": "4"}),
        _json("/v1/alerts", ALERTS),
        _get(f"/v1/models/{MODEL}/triggers?limit=3"),
        _json(f"/v1/models/{MODEL}/promote", {"version": "4", "force": True, "reason": "seen"}),
        _json(f"/v1/models/{MODEL}/rollback", {}),
        _json(f"/v1/models/{MODEL}/versions/{RETIRED}/retire", {"reason": "hangs"}),
        _form(f"/m/{MODEL}/rollback", to="4", reason="back"),
        _json("/v1/pauses", {"what": "shadow", "model": MODEL}),
        _json("/v1/pauses/resume", {"what": "shadow", "model": MODEL}),
        _get(f"/v1/lineage/{MODEL}?start=dataset:digits-flagged@1"),
        _get(f"/v1/quarantine?model={MODEL}&state=all"),
        _json("/v1/quarantine/drop", {"dataset": "digits-flagged", "records": ["card-00001-f1"]}),
        _form(f"/m/{MODEL}/quarantine", action="retry", record="card-00001-f1"),
        _get(f"/m/{MODEL}/datasets/{DATASET}/2"),
        _get(f"/m/{MODEL}/datasets/{DATASET}"),
        _get(f"/m/{MODEL}/datasets/{DATASET}/diff?old=1&new=2"),
        _json(f"/v1/datasets/{DATASET}/tags", {"tag": "worked", "version": "1"}),
        _json(f"/v1/datasets/{DATASET}/tags/worked/remove", {}),
        _json("/v1/erasures", {"records": [flag["record_id"]], "dry_run": True}),
        _get(f"/v1/erasures/{erasure}"),
        _get(f"/m/{MODEL}/datasets/{DATASET}/2/data-docs"),
        _json("/v1/comparisons", compared),
        _get(f"/v1/comparisons/{comparison}"),
        _get(f"/compare/{comparison}"),
        _form(f"/compare/{comparison}/labels", **pair),
        _form(f"/compare/{comparison}/remove", labels="1"),
        Request(
            f"/v1/comparisons/{'a' * 16}", {}, json.dumps(compared | {"ended": "running"}).encode(), "PUT"
        ),
        Request(f"/v1/comparisons/{other}?labels=true", {}, b"", "DELETE"),
        _get(f"/v1/retrains/{waiting}/task"),
        _get(f"/v1/retrains/{waiting}/datasets/fresh"),
        _get(f"/v1/retrains/{waiting}/champion/model.safetensors"),
        _json(f"/v1/retrains/{waiting}/progress", {"loss": 0.5, "step": 1, "steps": 9}),
        _json(f"/v1/retrains/{failing}/failure", {"error": "out of memory", "log": ["a", "b"]}),
        _json(f"/v1/models/{MODEL}/versions", endpoint),
        _get(f"/v1/uploads/{begun[0]}"),
        Request(f"/v1/uploads/{begun[1]}/files/m.onnx?offset=0", {}, b"123456789", "PUT"),
        _json(f"/v1/uploads/{begun[0]}/complete", {}),
        Request(f"/v1/uploads/{begun[2]}", {}, b"", "DELETE"),
        _json("/v1/proposals/accept", {"model": MODEL}),
        _form(f"/m/{MODEL}/proposals/accept"),
    ]


def _waiting_jobs(api: Api) -> list[str]:
    """Two jobs that wait for a version from outside."""
    engine, made = open_database(api.intake.settings.database_url), []
    with write(engine) as connection:
        for _ in range(2):
            job = jobs.add(connection, model=MODEL, kind="retrain", params={}, now_us=now_us())
            connection.execute(text("UPDATE job SET status = 'running' WHERE id = :job"), {"job": job})
            result = {"dataset": f"{DATASET}@1", "settings": {"seed": 0}}
            jobs.wait(connection, job, "version", until_us=now_us() + 10**12, result=result)
            made.append(job)
    engine.dispose()
    return made


@contextlib.contextmanager
def jobs_that_fail(api: Api) -> Iterator[None]:
    """End every job, as no trainer runs: a request that waits for its dataset goes on."""
    engine, stop = open_database(api.intake.settings.database_url), threading.Event()

    def run() -> None:
        while not stop.wait(LOOK_S):
            with write(engine) as connection:
                while (job := jobs.claim(connection, now_us=now_us())) is not None:
                    jobs.fail(connection, job.id, "no trainer runs in this test", targets=(), now_us=now_us())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        engine.dispose()


def _rows(ids: str) -> Batch:
    images = np.zeros((len(ids), 8, 8), dtype=np.float32)
    return Batch.from_columns(
        {"id": list(ids), "inputs.image": images, "label.label": [3] * len(ids)}, model=MODEL
    )


def _arrow(batch: Batch) -> bytes:
    sink = pa.BufferOutputStream()
    table = batch.to_arrow()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    return bytes(sink.getvalue())


def _get(path: str) -> Request:
    return Request(path, {}, b"", "GET")


def _json(path: str, body: object) -> Request:
    return Request(path, {"content-type": "application/json"}, json.dumps(body).encode())


def _form(path: str, **fields: str) -> Request:
    return Request(path, {"content-type": "application/x-www-form-urlencoded"}, urlencode(fields).encode())
