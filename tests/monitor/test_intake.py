"""The intake as its clients see it: in process through ASGI, and as a real process on a loopback port."""

import asyncio
import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from outrider.assertions.batch import Batch
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.monitor.client import Client
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from tests.databases import place_database
from tests.forked import forks
from tests.keyrings import link_of
from tests.soak import PATIENCE_S, promised

CONFIG = """
[server]
port = 0
[storage]
min_free_bytes = 0
{more}
[models.churn]
[models.digits.columns]
"inputs.image" = "tensor(2, 2)"
"""
ONE = {"model": "churn", "id": "a1", "inputs": {"age": 41}, "outputs": {"score": 0.9}}


def write_config(folder: Path, more: str = "") -> Path:
    path = folder / "outrider.toml"
    path.write_text(CONFIG.format(more=more))
    return path


class Caller:
    """In-process client of an intake, with its key."""

    def __init__(self, intake: ServerProcess) -> None:
        self.intake = intake
        self.key = (intake.settings.data_folder / "key").read_text().strip()

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}"} | options.pop("headers", {})
        return self.many([(method, path, options | {"headers": headers})])[0]

    def many(self, requests: list[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
        async def call() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.intake.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await asyncio.gather(*(client.request(m, p, **o) for m, p, o in requests))

        return asyncio.run(call())


@contextmanager
def running(folder: Path, more: str = "") -> Iterator[Caller]:
    intake = ServerProcess(load_settings(write_config(folder, more)))
    intake.writer.start()
    try:
        yield Caller(intake)
    finally:
        intake.close()


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Caller]:
    with running(tmp_path) as caller:
        yield caller


def ids(path: Path) -> list[str]:
    journal = SqliteJournal(path, read_only=True)
    blocks = [block for block in journal.read(0, limit=10_000) if block.kind == "records"]
    journal.close()
    return [key for block in blocks for key in Batch.from_ipc(block.payload).keys]


def ipc(table: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def test_202_means_it_is_in_the_journal(call: Caller) -> None:
    response = call("POST", "/v1/records", json=ONE)
    assert (response.status_code, response.json()) == (202, {"accepted": 1, "rejected": []})
    assert ids(call.intake.settings.journal_path) == ["a1"]


def test_every_form_is_taken(call: Caller) -> None:
    lines = (
        b'{"model":"churn","id":"l1","inputs":{"age":1}}\n{"model":"churn","id":"l2","inputs":{"age":2}}\n'
    )
    arrow = ipc(pa.record_batch({"id": ["r1"], "inputs.age": [3]}))
    stream = "application/vnd.apache.arrow.stream"
    answers = [
        call("POST", "/v1/records", json=[ONE, ONE | {"id": "a2"}]),
        call("POST", "/v1/records", content=lines, headers={"content-type": "application/x-ndjson"}),
        call("POST", "/v1/records?model=churn", content=arrow, headers={"content-type": stream}),
        call("POST", "/v1/records", content=gzip.compress(lines),
             headers={"content-type": "application/jsonl", "content-encoding": "gzip"}),
        call("POST", "/v1/records", content=json.dumps(ONE),
             headers={"content-type": "application/x-www-form-urlencoded"}),
    ]  # fmt: skip
    assert [answer.json()["accepted"] for answer in answers] == [2, 2, 1, 2, 1]
    assert ids(call.intake.settings.journal_path) == ["a1", "a2", "l1", "l2", "r1", "l1", "l2", "a1"]


def test_a_bad_record_is_named_and_the_rest_is_taken(call: Caller) -> None:
    response = call("POST", "/v1/records", json=[ONE, ONE | {"id": "b2", "outputs": {"score": "high"}}])
    assert response.status_code == 202
    assert response.json()["accepted"] == 1
    [rejected] = response.json()["rejected"]
    assert (rejected["index"], rejected["id"], rejected["field"]) == (1, "b2", "outputs.score")
    assert rejected["reason"] == "expected float, got text 'high'"


def test_labels_are_journal_rows_of_their_own(call: Caller) -> None:
    response = call("POST", "/v1/labels", json={"model": "churn", "id": "a1", "label": {"label": 0}})
    assert response.status_code == 202
    [block] = call.intake.journal.read(0)
    assert (block.kind, block.model, block.rows) == ("labels", "churn", 1)
    with pa.ipc.open_stream(block.payload) as reader:
        assert reader.read_all().to_pylist()[0]["label.label"] == 0


def test_a_null_label_which_withdraws_is_taken_alone_and_beside_others(call: Caller) -> None:
    null: dict[str, Any] = {"model": "churn", "id": "a1", "label": {"label": None}}
    for body in (null, [null, null | {"id": "a2", "label": {"label": 1}}], null):
        response = call("POST", "/v1/labels", json=body)
        assert (response.status_code, response.json()["rejected"]) == (202, [])
    found = []
    for block in call.intake.journal.read(0):
        with pa.ipc.open_stream(block.payload) as reader:
            found += [row.get("label.label") for row in reader.read_all().to_pylist()]
    assert found == [None, None, 1, None]


HOSTILE: list[tuple[str, dict[str, Any], int, str]] = [
    ("an 11 MB body", {"content": b" " * 11_000_000}, 413, "limits.body_bytes"),
    ("a gzip bomb", {"content": gzip.compress(bytes(50_000_000)), "headers": {"content-encoding": "gzip"}},
     413, "limits"),
    ("NaN", {"content": b'{"model":"churn","inputs":{"age":NaN}}'}, 422, "nan is not a finite number"),
    ("malformed JSON", {"content": b'{"model":'}, 400, "at byte 9"),
    ("deep nesting", {"content": b"[" * 100_000}, 400, "limits.depth"),
    ("a wrong field", {"json": ONE | {"input": {}}}, 422, "did you mean 'inputs'"),
    ("an unknown model", {"json": ONE | {"model": "chrun"}}, 422, "did you mean 'churn'"),
    ("not UTF-8", {"content": b'{"model":"\xff\xfe"}'}, 400, "not UTF-8"),
    ("truncated Arrow", {"content": ipc(pa.record_batch({"inputs.x": [1]}))[:-20],
     "headers": {"content-type": "application/vnd.apache.arrow.stream"}}, 400, "truncated"),
    ("an unknown content type", {"content": b"x", "headers": {"content-type": "text/csv"}}, 415, "text/csv"),
    ("an unknown encoding", {"content": b"x", "headers": {"content-encoding": "br"}}, 415, "gzip"),
    ("an empty body", {"content": b""}, 400, "malformed JSON"),
    ("lines that are not said to be lines", {"content": b'{"model":"m"}\n{"model":"m"}'}, 400, "x-ndjson"),
    ("an empty array", {"json": []}, 422, "no records"),
]  # fmt: skip


@pytest.mark.parametrize(("_", "options", "status", "detail"), HOSTILE, ids=[case[0] for case in HOSTILE])
def test_hostile_input_gets_a_clear_answer_and_loses_nothing_else(
    call: Caller, _: str, options: dict[str, Any], status: int, detail: str
) -> None:
    auth = {"authorization": f"Bearer {call.key}"}
    hostile = options | {"headers": auth | options.get("headers", {})}
    fine = [("POST", "/v1/records", {"json": ONE | {"id": f"f{i}"}, "headers": auth}) for i in range(6)]
    answers = call.many([*fine[:3], ("POST", "/v1/records", hostile), *fine[3:]])
    bad = answers.pop(3)
    assert bad.status_code == status
    assert bad.headers["content-type"] == "application/problem+json"
    assert detail in bad.json()["detail"]
    assert [answer.status_code for answer in answers] == [202] * 6
    assert sorted(ids(call.intake.settings.journal_path)) == [f"f{i}" for i in range(6)]
    assert call("GET", "/readyz").status_code == 200


def test_every_route_but_the_open_ones_wants_the_key(call: Caller) -> None:
    for method, path in (("POST", "/v1/records"), ("POST", "/v1/labels"), ("GET", "/v1/flags"), ("GET", "/"),
                         ("GET", "/openapi.json"), ("GET", "/nothing")):  # fmt: skip
        response = call(method, path, headers={"authorization": ""})
        assert response.status_code == 401, path
        assert response.headers["content-type"] == "application/problem+json"
    for path in ("/healthz", "/readyz", "/metrics"):
        assert call("GET", path, headers={"authorization": ""}).status_code == 200
    assert ids(call.intake.settings.journal_path) == []


def test_metrics_are_keyed_away_from_loopback(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    config.write_text(config.read_text().replace("port = 0", 'port = 0\nhost = "0.0.0.0"'))
    intake = ServerProcess(load_settings(config))
    intake.writer.start()
    assert Caller(intake)("GET", "/metrics", headers={"authorization": ""}).status_code == 401
    intake.close()


def test_unknown_routes_are_problems_too(call: Caller) -> None:
    response = call("GET", "/v1/nothing")
    assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")
    assert call("GET", "/v1/records").status_code == 405


def test_the_hot_routes_stand_in_the_openapi_document(tmp_path: Path) -> None:
    (tmp_path / "outrider-data").mkdir()
    place_database(tmp_path / "outrider-data" / "state.db")
    with running(tmp_path) as call:
        call.intake.add_routers()
        paths = call("GET", "/openapi.json").json()["paths"]
    assert {"/v1/records", "/v1/labels", "/healthz", "/readyz"} <= set(paths)
    assert "application/vnd.apache.arrow.stream" in paths["/v1/records"]["post"]["requestBody"]["content"]


def test_a_one_time_link_opens_the_page(tmp_path: Path) -> None:
    (tmp_path / "outrider-data").mkdir()
    place_database(tmp_path / "outrider-data" / "state.db")
    with running(tmp_path) as call:
        call.intake.add_routers()
        open_page_by_link(call)


def open_page_by_link(call: Caller) -> None:
    token = link_of(call.intake.keyring, call.key)
    form = {"authorization": "", "content-type": "application/x-www-form-urlencoded"}
    assert call("GET", f"/login?token={token}", headers={"authorization": ""}).status_code == 200
    response = call("POST", "/login", headers=form, content=f"token={token}")
    assert response.status_code == 303
    cookie = response.headers["set-cookie"].partition(";")[0]
    assert call("GET", "/openapi.json", headers={"authorization": "", "cookie": cookie}).status_code == 200
    assert call("POST", "/login", headers=form, content=f"token={token}").status_code == 401


def test_a_full_journal_is_507_and_not_ready_until_there_is_room(tmp_path: Path) -> None:
    with running(tmp_path, "journal_max_bytes = 900000") as call:
        big = [ONE | {"id": str(i), "inputs": {"text": str(i) * 3000}} for i in range(30)]
        accepted, status = 0, 202
        while status == 202:
            response = call("POST", "/v1/records", json=big)
            status = response.status_code
            accepted += 30 * (status == 202)
        assert accepted > 0
        assert status == 507
        assert "journal_max_bytes" in response.json()["detail"]
        assert int(response.headers["retry-after"]) > 0
        ready = call("GET", "/readyz")
        assert (ready.status_code, ready.headers["content-type"]) == (503, "application/problem+json")
        assert call("GET", "/healthz").status_code == 200
        assert len(ids(call.intake.settings.journal_path)) == accepted
        call.intake.journal.expire(range(1, call.intake.journal.last_seq()))
        deadline = time.monotonic() + PATIENCE_S  # nobody sends: it must notice by itself
        while call("GET", "/readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert call("POST", "/v1/records", json=big).status_code == 202


def test_too_little_free_disk_is_507(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    config.write_text(config.read_text().replace("min_free_bytes = 0", f"min_free_bytes = {1 << 60}"))
    intake = ServerProcess(load_settings(config))
    intake.writer.start()
    response = Caller(intake)("POST", "/v1/records", json=ONE)
    assert response.status_code == 507
    assert "min_free_bytes" in response.json()["detail"]
    intake.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_death_of_the_writer_is_503_never_a_hang(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(entries: list[Entry], received_us: int) -> list[int]:
        raise SystemExit(1)

    monkeypatch.setattr(call.intake.journal, "append", die)
    began = time.monotonic()
    response = call("POST", "/v1/records", json=ONE)
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/problem+json"
    assert call("POST", "/v1/records", json=ONE).status_code == 503
    assert call("GET", "/readyz").status_code == 503
    assert time.monotonic() - began < promised(5)


def test_a_request_that_breaks_us_is_a_500_of_its_own(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("outrider.monitor.intake.decode.Decoder.build", fail)
        response = call("POST", "/v1/records", json=ONE)
    assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
    assert "a bug" not in response.text
    assert call("POST", "/v1/records", json=ONE).status_code == 202


def test_large_and_small_bodies_at_once_all_arrive(call: Caller) -> None:
    auth = {"authorization": f"Bearer {call.key}"}
    large = [[ONE | {"id": f"{n}-{i}"} for i in range(5000)] for n in range(4)]
    small = [[ONE | {"id": f"s{i}", "inputs": {"age": 1, f"new{i}": 1}}] for i in range(40)]
    bodies = [*large[:2], *small, *large[2:]]
    answers = call.many([("POST", "/v1/records", {"json": body, "headers": auth}) for body in bodies])
    assert [answer.json()["accepted"] for answer in answers] == [len(body) for body in bodies]
    assert len(set(ids(call.intake.settings.journal_path))) == sum(map(len, bodies))


def test_what_is_taken_and_refused_is_counted(call: Caller) -> None:
    call("POST", "/v1/records", json=[ONE, ONE | {"model": "x"}, ONE | {"inputs": {"age": "x"}}])
    call("POST", "/v1/records", content=b"{")
    text = call("GET", "/metrics").text
    for line in (
        'outrider_records_accepted_total{model="churn",process="intake"} 1.0',
        'outrider_records_rejected_total{process="intake",reason="unknown_model"} 1.0',
        'outrider_records_rejected_total{process="intake",reason="schema"} 1.0',
        'outrider_records_rejected_total{process="intake",reason="malformed"} 1.0',
        'outrider_responses_total{process="intake",route="records",status="2xx"} 1.0',
    ):
        assert line in text.splitlines()


def test_the_schema_survives_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as call:
        call("POST", "/v1/records", json=ONE)
    with running(tmp_path) as call:
        response = call("POST", "/v1/records", json=[ONE, ONE | {"inputs": {"age": "x"}}])
        assert response.json()["rejected"][0]["reason"] == "expected int, got text 'x'"
        assert len(call.intake.journal.schemas()) == 1


# ---- as a real process ---------------------------------------------------------------------------------


@contextmanager
def process(folder: Path, more: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The intake as the supervisor starts it; its URL."""
    config = write_config(folder, more)
    with forks():
        started = subprocess.Popen(
            [sys.executable, "-m", "outrider.monitor.intake", "--config", str(config)],
            stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.getcwd()},
        )  # fmt: skip
    with started as child:
        assert child.stderr is not None
        try:
            for line in child.stderr:
                if "listening on " in line:
                    break
            else:
                raise AssertionError("it ended before it listened")
            yield child, line.split("listening on ")[1].strip()
        finally:
            if child.poll() is None:
                child.kill()


def key_of(folder: Path) -> str:
    return (folder / "outrider-data" / "key").read_text().strip()


def test_sigterm_drains_and_exits_with_0(tmp_path: Path) -> None:
    with process(tmp_path) as (child, url):
        client = Client(url, key_of(tmp_path), model="churn")
        for i in range(500):
            client.capture({"age": i}, {"score": 0.5})
        assert client.flush(PATIENCE_S)
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0
        client.close(timeout=0)
    assert len(ids(tmp_path / "outrider-data" / "journal.db")) == client.counts.acknowledged == 500


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    for attempt in range(3):
        with process(tmp_path) as (child, url):
            headers = {"authorization": f"Bearer {key_of(tmp_path)}"}
            with httpx.Client(base_url=url, headers=headers) as client:
                for i in range(20 + 30 * attempt):
                    id = f"{attempt}-{i}"
                    assert client.post("/v1/records", json=ONE | {"id": id}).status_code == 202
                    acknowledged.append(id)
                child.send_signal(signal.SIGKILL)
                child.wait(PATIENCE_S)
    assert set(acknowledged) <= set(ids(tmp_path / "outrider-data" / "journal.db"))


def test_a_real_server_survives_oversized_and_chunked_bodies(tmp_path: Path) -> None:
    with process(tmp_path) as (_, url):
        headers = {"authorization": f"Bearer {key_of(tmp_path)}"}
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S) as client:

            def chunks() -> Iterator[bytes]:
                yield b"["
                for _ in range(300):
                    yield b" " * 50_000
                yield b"]"

            for content in (b" " * 11_000_000, chunks()):
                # That the server closes before all of it is sent is an answer too.
                with contextlib.suppress(httpx.WriteError, httpx.ReadError):
                    assert client.post("/v1/records", content=content).status_code == 413
            assert client.post("/v1/records", json=ONE).status_code == 202


def test_a_broken_config_is_exit_status_3(tmp_path: Path) -> None:
    (tmp_path / "outrider.toml").write_text("[servr]\n")
    done = subprocess.run(
        [sys.executable, "-m", "outrider.monitor.intake", "--config", str(tmp_path / "outrider.toml")],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.getcwd()}, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "did you mean 'server'" in done.stderr


def test_nothing_heavy_is_imported() -> None:
    code = "import sys; import outrider.monitor.intake; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert not {"torch", "great_expectations", "sklearn", "transformers", "sqlmodel"} & set(loaded.split())
