"""Uploaded versions: what is taken, what is refused, and whose token may send them."""

import hashlib
import json
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import save
from sqlalchemy import Engine, text

from outrider.assertions import Batch, Predictor
from outrider.dataops.datasets import changes
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.improvement import jobs
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.dataops.models import lineage
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, open_database, write
from outrider.dataops.uploads import job_tokens
from outrider.dataops.uploads.asking import ask_for_version, request_of
from outrider.monitor.registry.predictors import version_predictors
from outrider.monitor.registry.registration import Registration
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.job_process import run_job
from outrider.monitor.trainer.waiting_jobs import WaitingJobs
from tests.databases import migrated_for
from tests.keyrings import owner_key
from tests.requirements import require_package

from .test_access import Server

CODE = """
import torch

def net():
    return torch.nn.Linear(2, 2)

def deep():
    return torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
"""
CONFIG = """
[server]
port = 0
[storage]
min_free_bytes = 0
[limits]
uploads = 3
upload_bytes = 1000000
[models.m]
architecture = "model.py:net"
weights = "net.safetensors"
inputs = ["a", "b"]
classes = ["no", "yes"]
[models.m.retrain]
enabled = true
trainer = "external"
[models.deep]
architecture = "model.py:deep"
weights = "deep.safetensors"
inputs = ["a", "b"]
classes = ["no", "yes"]
[models.other]
predictor = "model.py:net"
"""
ROWS = Batch.from_columns({"inputs.a": np.array([1.0, -1.0]), "inputs.b": np.zeros(2)}, model="m")


def linear(sign: float, *, rows: int = 2, dtype: torch.dtype = torch.float32) -> bytes:
    weight = torch.zeros(rows, 2, dtype=dtype)
    weight[0, 0], weight[1, 0] = -sign, sign
    return dump_weights({"weight": weight, "bias": torch.zeros(rows, dtype=dtype)})


class World(Server):
    """A server whose model has a champion, without its processes."""

    def __init__(self, folder: Path) -> None:
        (folder / "model.py").write_text(CODE)
        (folder / "net.safetensors").write_bytes(linear(1.0))
        torch.manual_seed(0)
        deep = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        (folder / "deep.safetensors").write_bytes(dump_weights(deep.state_dict()))
        (folder / "outrider.toml").write_text(CONFIG)
        self.settings: Settings = load_settings(folder / "outrider.toml")
        self.folder = self.settings.data_folder
        migrated_for(self.settings).dispose()
        self.engine: Engine = open_database(self.settings.database_url)
        self.objects = LocalObjects(self.folder / "objects")
        Registration(self.settings, self.engine, self.objects).update()
        self.process = ServerProcess(self.settings)
        self.process.writer.start()
        self.process.add_routers()
        self.owner = owner_key(self.folder)
        self.context = JobContext(self.settings, self.engine, self.objects, journal=None)  # type: ignore[arg-type]  # not read
        with write(self.engine) as connection:
            draft = changes.prepare(
                connection, self.objects, dataset="m-flagged", append=True,
                batch=Batch.from_records(
                    [{"id": n, "inputs": {"a": 1.0, "b": 0.0}, "label": {"label": "yes"}} for n in "abc"],
                    model="m",
                ),
                provenance=[
                    Provenance("a", "none", "human", "train"), Provenance("b", "none", "human", "train"),
                    Provenance("c", "none", "human", "held_out"),
                ],
            )  # fmt: skip
            changes.commit(connection, draft, validation={}, now_us=now_us(), made_from=[])

    def predictors(self, model: str, *versions: str) -> tuple[Predictor, ...]:
        with self.engine.connect() as connection:
            return version_predictors(self.settings, connection, model, *versions)

    def waiting_job(self) -> tuple[str, str]:
        """A job that waits for a version, and its token."""
        with write(self.engine) as connection:
            job = jobs.add(connection, model="m", kind="retrain", params={}, now_us=now_us())
            found = jobs.claim(connection, now_us=now_us())
        assert found is not None
        ask_for_version(
            self.engine,
            found,
            {"seed": 0, "deadline_s": 60.0, "replay": None},
            {"dataset": "m-flagged@1"},
            service="http://service",
            targets=[],
        )
        with self.engine.connect() as connection:
            return job, job_tokens.token_of(connection, job)

    def begin(
        self,
        files: Mapping[str, bytes],
        kind: str = "safetensors",
        key: str = "",
        model: str = "m",
        **more: Any,
    ) -> httpx.Response:
        told = [
            {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        ]
        body = {"kind": kind, "files": told} | more
        return self.ask("POST", f"/v1/models/{model}/versions", key or self.owner, json=body)

    def send(
        self,
        files: Mapping[str, bytes],
        kind: str = "safetensors",
        key: str = "",
        model: str = "m",
        **more: Any,
    ) -> httpx.Response:
        """Begin, send and complete."""
        begun = self.begin(files, kind, key, model, **more)
        assert begun.status_code == 201, begun.text
        for file in begun.json()["files"]:
            assert self.put(file["url"], files[file["name"]], key).status_code == 200
        return self.ask("POST", begun.json()["complete"], key or self.owner, json={})

    def put(self, url: str, data: bytes, key: str = "", offset: int = 0) -> httpx.Response:
        return self.ask("PUT", f"{url}?offset={offset}", key or self.owner, content=data)

    def version(self, name: str, model: str = "m") -> models.Model:
        with self.engine.connect() as connection:
            return models.get(connection, model, name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("uploads"))
    yield made
    made.process.close()
    made.engine.dispose()


@pytest.fixture(autouse=True)
def _nothing_open(world: World) -> Iterator[None]:
    yield
    with write(world.engine) as connection:
        connection.execute(text("DELETE FROM version_upload WHERE status = 'open'"))
        connection.execute(text("UPDATE job SET status = 'failed' WHERE finished_us IS NULL"))


@pytest.mark.costly("folders of models are opened by the libraries that users have")
def test_weights_become_a_challenger_before_the_gate(world: World) -> None:
    done = world.send({"net.safetensors": linear(-1.0)}, dataset="m-flagged@1", note="elsewhere")
    assert done.status_code == 201, done.text
    version, job = done.json()["version"], done.json()["job"]
    found = world.version(version)
    assert (found.status, found.note) == ("challenger", "elsewhere")
    labels = world.predictors("m", version)[0](ROWS)["label"]
    assert list(labels) == ["no", "yes"]  # the champion says the opposite
    with world.engine.connect() as connection:
        queued = jobs.get(connection, job)
        tree = lineage.trace(connection, "m", version)
    assert (queued.status, queued.params["candidate"]) == ("queued", version)
    assert {(p["kind"], p["id"], p["role"]) for p in tree["parents"]} == {
        ("dataset", "m-flagged@1", "fresh"), ("model", "m@1", "weights"),
    }  # fmt: skip
    assert list((world.folder / "uploads").iterdir()) == []


def test_pieces_go_on_where_they_were_cut(world: World) -> None:
    data = linear(2.0)
    begun = world.begin({"net.safetensors": data}).json()
    url = begun["files"][0]["url"]
    assert world.put(url, data[:10]).json() == {"name": "net.safetensors", "received": 10}
    wrong = world.put(url, data[20:], offset=20)
    assert (wrong.status_code, wrong.json()["received"]) == (409, 10)
    [file] = world.ask("GET", f"/v1/uploads/{begun['upload']}", world.owner).json()["files"]
    assert file["received"] == 10
    early = world.ask("POST", begun["complete"], world.owner, json={})
    assert early.status_code == 422
    assert early.json()["got"] == 10
    assert world.put(url, data[10:] + b"more", offset=10).status_code == 413
    assert world.put(url, data[10:], offset=10).status_code == 200
    done = world.ask("POST", begun["complete"], world.owner, json={})
    again = world.ask("POST", begun["complete"], world.owner, json={})
    assert done.status_code == again.status_code == 201
    assert done.json() == again.json()
    assert world.put(url, b"", offset=len(data)).status_code == 409


@pytest.mark.parametrize(
    ("data", "tensor", "expected", "got"),
    [
        (linear(1.0, rows=3), "bias", "F32 [2]", "F32 [3]"),
        (linear(1.0, dtype=torch.float64), "bias", "F32 [2]", "F64 [2]"),
        (dump_weights({"weight": torch.zeros(2, 2)}), "bias", "F32 [2]", "no such tensor"),
        (
            dump_weights({"weight": torch.zeros(2, 2), "bias": torch.zeros(2), "more": torch.zeros(1)}),
            "more", "no such tensor", "F32 [1]",
        ),
        (
            dump_weights({"weight": torch.full((2, 2), float("nan")), "bias": torch.zeros(2)}),
            "weight", "finite numbers", "NaN or infinity",
        ),
    ],
)  # fmt: skip
def test_a_wrong_upload_names_its_tensor(
    world: World, data: bytes, tensor: str, expected: str, got: str
) -> None:
    refused = world.send({"net.safetensors": data})
    assert refused.status_code == 422
    told = refused.json()
    assert (told["tensor"], told["expected"], told["got"]) == (tensor, expected, got)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04 a pickle in a zip",
        b"\x80\x04\x95 a pickle",
        (2**40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}tail",
        linear(1.0)[:-1],
        (58).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}    0000',
        (9000).to_bytes(8, "little") + b"[" * 9000,
    ],
)
def test_what_is_no_safetensors_file_is_refused(world: World, data: bytes) -> None:
    refused = world.send({"net.safetensors": data})
    assert refused.status_code == 422, refused.text
    assert "a safetensors file expected" in refused.json()["detail"]


def test_a_pickle_that_is_called_a_tokenizer_is_refused(world: World) -> None:
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": linear(1.0)}
    refused = world.send({**files, "tokenizer.model": pickle.dumps(print)}, "hf", inputs=["text"])
    assert refused.status_code == 422, refused.text
    told = refused.json()
    assert (told["file"], told["expected"], told["got"]) == (
        "tokenizer.model", "a sentencepiece model", "a pickle",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "names", "why"),
    [
        ("safetensors", ["a.safetensors", "b.safetensors"], "one file NAME.safetensors"),
        ("safetensors", ["../a.safetensors"], "below the folder"),
        ("hf", ["config.json", "pytorch_model.bin"], "a pickle or code is never read"),
        ("hf", ["config.json", "modeling.py"], "a pickle or code is never read"),
        ("hf", ["tokenizer.json"], "config.json expected"),
        ("hf", ["config.json", "adapter_config.json"], "an adapter is uploaded as kind adapter"),
        ("adapter", ["adapter_config.json"], "adapter_model.safetensors expected"),
        ("onnx", ["a.pt"], "a pickle or code is never read"),
        ("endpoint", [], "an address expected"),
    ],
)
def test_what_can_be_no_version_is_refused_before_a_byte_comes(
    world: World, kind: str, names: list[str], why: str
) -> None:
    refused = world.begin(dict.fromkeys(names, b"x"), kind)
    assert refused.status_code == 422
    assert why in refused.json()["detail"]


def test_another_digest_is_sent_again(world: World) -> None:
    data = linear(3.0)
    begun = world.begin({"net.safetensors": data}).json()
    url = begun["files"][0]["url"]
    world.put(url, bytes(len(data)))
    assert "send it again" in world.ask("POST", begun["complete"], world.owner, json={}).json()["detail"]
    assert world.put(url, data).status_code == 200
    assert world.ask("POST", begun["complete"], world.owner, json={}).status_code == 201


def test_unfinished_uploads_of_one_key_block_no_other_key_and_no_job(world: World) -> None:
    _, token = world.waiting_job()
    other = world.make_key("other", "promote")
    for _ in range(3):
        assert world.begin({"net.safetensors": linear(1.0)}).status_code == 201
    refused = world.begin({"net.safetensors": linear(1.0)})
    assert (refused.status_code, "uploads of 'owner'" in refused.json()["detail"]) == (429, True)
    assert world.begin({"net.safetensors": linear(1.0)}, key=other).status_code == 201
    assert world.begin({"net.safetensors": linear(1.0)}, key=token).status_code == 201
    assert world.begin({"net.safetensors": linear(2.0)}, key=token).status_code == 201  # in place of it


def test_a_key_of_a_model_goes_on_with_its_uploads_alone(world: World) -> None:
    mine, theirs = (world.make_key(f"of-{model}", "promote", models=[model]) for model in ("m", "deep"))
    begun = world.begin({"net.safetensors": linear(1.0)}, key=mine).json()
    for key, status in ((theirs, 403), (mine, 200)):
        assert world.ask("GET", f"/v1/uploads/{begun['upload']}", key).status_code == status
        assert world.put(begun["files"][0]["url"], linear(1.0)[:9], key).status_code == status
    assert world.ask("DELETE", f"/v1/uploads/{begun['upload']}", theirs).status_code == 403
    assert world.ask("POST", begun["complete"], theirs, json={}).status_code == 403
    learned = {"key": theirs, "model": "deep", "dataset": "m-flagged@1"}
    assert world.begin({"deep.safetensors": linear(1.0)}, **learned).status_code == 403


def test_one_sender_has_at_most_half_of_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    free = type("Usage", (), {"free": 3000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)
    other = world.make_key("half", "promote")

    def begin(size: int, key: str) -> tuple[int, str]:
        body = {
            "kind": "safetensors",
            "files": [{"name": "a.safetensors", "bytes": size, "sha256": "0" * 64}],
        }
        answer = world.ask("POST", "/v1/models/m/versions", key, json=body)
        return answer.status_code, answer.json().get("detail", "")

    assert begin(1501, other)[0] == 507
    assert begin(1000, other)[0] == 201
    status, why = begin(501, other)
    assert (status, "of 'half' would have more than half of the 3000 bytes" in why) == (507, True)
    assert begin(1500, world.owner)[0] == 201
    assert begin(400, world.make_key("third", "promote"))[0] == 201
    assert "fewer than 3001 bytes" in begin(101, world.make_key("fourth", "promote"))[1]


def test_bounds_of_files_and_of_uploads(world: World) -> None:
    large = {
        "kind": "safetensors",
        "files": [{"name": "a.safetensors", "bytes": 2_000_000, "sha256": "0" * 64}],
    }
    refused = world.ask("POST", "/v1/models/m/versions", world.owner, json=large)
    assert (refused.status_code, "limits.upload_bytes" in refused.text) == (422, True)
    for _ in range(3):
        begun = world.begin({"net.safetensors": linear(1.0)})
        assert begun.status_code == 201
    assert world.begin({"net.safetensors": linear(1.0)}).status_code == 429
    assert world.ask("DELETE", f"/v1/uploads/{begun.json()['upload']}", world.owner).status_code == 204
    assert world.begin({"net.safetensors": linear(1.0)}).status_code == 201
    with write(world.engine) as connection:
        connection.execute(text("UPDATE version_upload SET until_us = 1 WHERE status = 'open'"))
    assert world.begin({"net.safetensors": linear(1.0)}).status_code == 201  # the others have expired


def test_a_job_goes_on_with_the_version_of_its_token(world: World) -> None:
    job, token = world.waiting_job()
    task = world.ask("GET", f"/v1/retrains/{job}/task", token).json()
    assert (task["dataset"]["name"], task["dataset"]["version"]) == ("m-flagged", 1)
    rows = world.ask("GET", task["dataset"]["url"], token)
    assert rows.status_code == 200
    (world.folder / "rows.parquet").write_bytes(rows.content)
    import pyarrow.parquet as pq

    assert pq.read_table(world.folder / "rows.parquet").column("id").to_pylist() == ["a", "b"]  # not c
    part = world.ask("GET", task["dataset"]["url"], token, headers={"range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, rows.content[5:10])
    [file] = task["champion"]["files"]
    weights = world.ask("GET", file["url"], token).content
    assert hashlib.sha256(weights).hexdigest() == file["sha256"]
    told = world.ask("POST", f"/v1/retrains/{job}/progress", token, json={"loss": 0.5, "step": 1, "steps": 9})
    assert told.json() == {"job": job, "status": "waiting", "kept": True}
    done = world.send({"net.safetensors": linear(4.0)}, key=token)
    assert done.json()["job"] == job, done.text
    with world.engine.connect() as connection:
        found = jobs.get(connection, job)
        tree = lineage.trace(connection, "m", done.json()["version"])
    assert (found.status, found.result["candidate"]) == ("queued", done.json()["version"])
    assert found.result["progress"]["loss"] == 0.5
    assert "waits" not in found.result
    assert {(p["kind"], p["id"], p["role"]) for p in tree["parents"]} == {
        ("job", job, "trained by"), ("dataset", "m-flagged@1", "fresh"), ("model", "m@1", "weights"),
    }  # fmt: skip
    again = world.begin({"net.safetensors": linear(5.0)}, key=token)
    assert again.status_code == 401
    assert "one is all" in again.json()["detail"]
    assert world.ask("GET", f"/v1/retrains/{job}/task", token).status_code == 401


def test_a_token_is_for_its_job_alone(world: World) -> None:
    job, token = world.waiting_job()
    with write(world.engine) as connection:
        other = jobs.add(connection, model="m", kind="retrain", params={}, now_us=now_us())
    begun = world.begin({"net.safetensors": linear(1.0)}).json()
    refused = [
        world.ask("GET", f"/v1/retrains/{other}/task", token),
        world.ask("POST", f"/v1/retrains/{other}/failure", token, json={"error": "x"}),
        world.begin({"net.safetensors": linear(1.0)}, key=token, job=other),
        world.ask(
            "POST", "/v1/models/other/versions", token, json={"kind": "endpoint", "url": "http://1.1.1.1"}
        ),
        world.ask("GET", f"/v1/uploads/{begun['upload']}", token),
        world.put(begun["files"][0]["url"], b"x", token),
        world.ask("GET", "/v1/models", token),
        world.ask("POST", "/v1/models/m/promote", token, json={"version": "1"}),
        world.ask("POST", "/v1/records", token, json=[{"model": "m", "inputs": {}}]),
        world.ask("GET", "/v1/retrains/x/task", "orj_" + "a" * 43),
    ]
    for answer in refused:
        assert answer.status_code == 401, answer.text
        assert answer.json()["detail"].startswith("the job token is not valid here: ")
    assert job in refused[0].json()["detail"]


def test_a_token_begins_one_upload(world: World) -> None:
    _, token = world.waiting_job()
    first = world.begin({"net.safetensors": linear(6.0)}, key=token).json()
    assert world.begin({"net.safetensors": linear(6.0)}, key=token).json()["upload"] == first["upload"]
    other = world.begin({"net.safetensors": linear(7.0)}, key=token).json()
    assert other["upload"] != first["upload"]
    assert world.ask("GET", f"/v1/uploads/{first['upload']}", token).status_code == 404


def test_a_late_version_fails_the_job(world: World) -> None:
    job, token = world.waiting_job()
    with write(world.engine) as connection:
        found = jobs.get(connection, job)
        waits = {"for": "version", "until_us": 1}
        connection.execute(
            text("UPDATE job SET result = :result WHERE id = :job"),
            {"result": json.dumps(found.result | {"waits": waits}), "job": job},
        )
        connection.execute(text("UPDATE job_token SET until_us = 1 WHERE job = :job"), {"job": job})
    late = world.begin({"net.safetensors": linear(1.0)}, key=token)
    assert (late.status_code, "it is late" in late.json()["detail"]) == (401, True)
    WaitingJobs(world.context).look()
    with write(world.engine) as connection:
        queued = jobs.claim(connection, now_us=now_us())
    assert queued is not None
    assert queued.id == job
    assert "no version came until its deadline" in str(run_job(world.context, queued))


def test_a_failure_is_told_with_its_log(world: World) -> None:
    job, token = world.waiting_job()
    told = world.ask("POST", f"/v1/retrains/{job}/failure", token, json={"error": "OOM", "log": ["a", "b"]})
    assert told.json() == {"job": job, "status": "failed"}
    with world.engine.connect() as connection:
        found = jobs.get(connection, job)
    assert (found.result["error"], found.result["log"]) == ("OOM", ["a", "b"])
    assert world.ask("GET", f"/v1/retrains/{job}/task", token).status_code == 401


def test_the_event_gets_its_token_when_it_is_sent(world: World) -> None:
    job, token = world.waiting_job()
    with world.engine.connect() as connection:
        found = jobs.get(connection, job)
        data = request_of(connection, found, found.result, service="http://service", until_us=1_000_000)
        payload = json.dumps({"type": "retrain.requested", "data": data})
        assert token not in payload
        assert json.loads(job_tokens.with_token(connection, payload))["data"]["token"] == token
        stored = str(connection.execute(text("SELECT * FROM job_token")).all())
    assert token not in stored
    assert data["budget"]["deadline"] == "1970-01-01T00:00:01Z"
    assert data["dataset"]["parquet"].endswith(f"/v1/retrains/{job}/datasets/fresh")


def lora(*, width: int = 4, layer: str = "0", **more: object) -> dict[str, bytes]:
    """Files of an adapter, as PEFT writes them."""
    tensors = {
        f"base_model.model.{layer}.lora_A.weight": torch.ones(1, 2),
        f"base_model.model.{layer}.lora_B.weight": torch.full((width, 1), -3.0),
    }
    config = {"peft_type": "LORA", "lora_alpha": 1, "r": 1, **more}
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": save(tensors)}


@pytest.mark.costly("folders of models are opened by the libraries that users have")
def test_an_adapter_is_kept_in_pieces_and_answers_over_its_base(world: World) -> None:
    done = world.send(lora(), "adapter", model="deep")
    assert done.status_code == 201, done.text
    version = done.json()["version"]
    found = world.version(version, "deep")
    source = json.loads(found.source or "")
    assert (source["adapter"], source["adapted_from"]) == (None, "deep@1")
    assert found.weights == world.version("1", "deep").weights
    rows = Batch.from_columns({"inputs.a": np.array([2.0]), "inputs.b": np.array([2.0])}, model="deep")
    probs = [predict(rows)["probs"] for predict in world.predictors("deep", "1", version)]
    assert not np.allclose(probs[0], probs[1])
    opened = list((world.folder / "folders").iterdir())
    assert [sorted(p.name for p in one.iterdir()) for one in opened] == [sorted(lora())]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (lora(width=5), "a width of 4 or 2 expected as its layer in deep@1 has, got [5, 1]"),
        (lora(layer="7"), "deep@1 has no layer '7'"),
        (lora(alpha_pattern={"(.*)*X": 1}), "adapter_config.json: alpha_pattern: '(.*)*X' is a regular"),
        (lora() | {"adapter_config.json": b"{}"}, "peft_type expected"),
        (lora() | {"adapter_config.json": b"[" * 10_000}, "adapter_config.json"),
        (lora(lora_alpha="8"), "adapter_config.json: lora_alpha: a finite number expected, got str"),
    ],
)
def test_an_adapter_that_fits_no_layer_is_refused(world: World, files: dict[str, bytes], why: str) -> None:
    refused = world.send(files, "adapter", model="deep")
    assert refused.status_code == 422, refused.text
    assert why in refused.json()["detail"]


def onnx_file(columns: int, *, outputs: int = 2) -> bytes:
    """A linear classifier as an ONNX file."""
    onnx: Any = require_package("onnx", "pip install outrider[onnx]")
    helper, kinds = onnx.helper, onnx.TensorProto
    weight = helper.make_tensor("w", kinds.FLOAT, [columns, outputs], [0.5] * (columns * outputs))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])], "g",
        [helper.make_tensor_value_info("x", kinds.FLOAT, ["n", columns])],
        [helper.make_tensor_value_info("logits", kinds.FLOAT, ["n", outputs])],
        [weight],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    made: bytes = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    return made


def test_an_onnx_file_is_loaded_in_a_process_before_it_is_taken(world: World) -> None:
    done = world.send({"net.onnx": onnx_file(2)}, "onnx")
    assert done.status_code == 201, done.text
    (predict,) = world.predictors("m", done.json()["version"])
    assert len(predict(ROWS)["label"]) == 2
    for data, why in (
        (onnx_file(3), "input 'x': 2 columns expected (a, b), got 3"),
        (onnx_file(2, outputs=3), "(rows, 2) scores, one per class, expected; it declares logits float"),
        (b"\x80\x04 a pickle", "an ONNX file expected"),
    ):
        refused = world.send({"net.onnx": data}, "onnx")
        assert refused.status_code == 422, refused.text
        assert why in refused.json()["detail"]


def test_rows_that_were_erased_meanwhile_are_not_learned(world: World) -> None:
    job, token = world.waiting_job()
    assert world.ask("GET", f"/v1/retrains/{job}/datasets/fresh", token).status_code == 200
    with write(world.engine) as connection:
        jobs.note_waiting(connection, job, {"sent": {"m-flagged@1": "0" * 64}})  # as an erasure leaves it
    refused = world.send({"net.safetensors": linear(8.0)}, key=token)
    assert refused.status_code == 422
    assert "rows were erased from m-flagged@1" in refused.json()["detail"]
