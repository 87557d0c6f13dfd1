"""A model that is trained outside: service, webhook, a trainer of its own, upload, gate and promotion."""

import ast
import contextlib
import hashlib
import importlib
import json
import os
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import pandas as pd
import pytest
from standardwebhooks import Webhook

from outrider.dataops.state.database import open_database
from outrider.dataops.uploads import job_tokens
from outrider.train import Job, JobRefused
from tests.nginx import free_port
from tests.requirements import require_data, require_package
from tests.soak import IS_FULL, PATIENCE_S

from .service import Service, wait_until, write_project

yaml: Any = importlib.import_module("yaml")  # comes with transformers, without types
EXAMPLE = Path(__file__).parents[2] / "examples" / "external_training"
RECORDS, OLD = 900, 200
LARGE_BYTES = 4_000_000_000 if IS_FULL else 200_000_000
MOST_GROWTH_BYTES = 200_000_000


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_package("skl2onnx", "pip install outrider[onnx]")
    data = require_data("adult_census") / "adult.parquet"
    folder = tmp_path_factory.mktemp("census") / "project"
    shutil.copytree(EXAMPLE, folder)
    text = (folder / "outrider.toml").read_text()
    own = 'mode = "suggest"\nreplay = "census-old"\ntrainer = "external"'  # no job by a trigger
    text = text.replace('trainer = "external"', own)
    (folder / "outrider.toml").write_text(text.replace(":8492", f":{free_port()}"))
    secret = "whsec_" + secrets.token_urlsafe(24).replace("-", "a").replace("_", "b")
    (folder / "webhook.secret").write_text(secret)
    (folder / "webhook.secret").chmod(0o600)
    subprocess.run([sys.executable, "census.py", str(data)], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def service(project: Path) -> Iterator[Service]:
    with Service(project / "outrider.toml") as service:
        everyone = pd.read_parquet(require_data("adult_census") / "adult.parquet")
        rows = everyone[500 : 500 + RECORDS]
        sys.path.insert(0, str(project))
        try:
            features = importlib.import_module("census").features
            inputs = features(rows).to_dict("records")
        finally:
            sys.path.remove(str(project))
            sys.modules.pop("census", None)
        old = features(everyone[:OLD]).assign(id=[f"old{n}" for n in range(OLD)], label=everyone.income[:OLD])
        old.to_parquet(project / "old.parquet", index=False)  # pandas 3 writes large strings
        service.run_command("dataset", "import", "census-old", "old.parquet", "--model", "census")
        records = [{"model": "census", "id": f"p{n}", "inputs": one} for n, one in enumerate(inputs)]
        labels = [
            {"model": "census", "id": f"p{n}", "label": {"label": value}, "source": "human"}
            for n, value in enumerate(rows["income"])
        ]
        assert service.client.post("/v1/records", json=records).json()["accepted"] == RECORDS
        assert service.client.post("/v1/labels", json=labels).json()["accepted"] == RECORDS
        service.wait_judged(RECORDS)
        wait_until(lambda: service.count("labels") == RECORDS, "labels", service)
        yield service


@contextlib.contextmanager
def receiver(project: Path) -> Iterator[None]:
    port = (project / "outrider.toml").read_text().partition('url = "http://127.0.0.1:')[2].partition("/")[0]
    with (project / "receiver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "receiver.py"],
            cwd=project,
            env=os.environ | {"PORT": port},
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(10)


def ended(service: Service, job: str, *, beside: Path | None = None) -> dict[str, Any]:
    def is_over() -> bool:
        return job_of(service, job)["status"] not in ("queued", "running", "waiting")

    try:
        wait_until(is_over, f"end of {job}", service)
    except AssertionError as error:
        told = "" if beside is None else (beside / "receiver.log").read_text()
        raise AssertionError(f"{error}\n{told}\n{job_of(service, job)}") from None
    return job_of(service, job)


def job_of(service: Service, job: str) -> dict[str, Any]:
    found: dict[str, Any] = service.client.get(f"/v1/retrains/{job}").json()
    return found


def begun(service: Service) -> str:
    answer = service.client.post("/v1/retrains", json={"model": "census"})
    assert answer.status_code == 202, answer.text
    job = str(answer.json()["id"])
    wait_until(lambda: job_of(service, job)["status"] == "waiting", f"{job} waits", service)
    return job


def token_of(service: Service, job: str) -> str:
    engine = open_database(f"sqlite:///{service.folder / 'state.db'}")
    try:
        with engine.connect() as connection:
            return job_tokens.token_of(connection, job)
    finally:
        engine.dispose()


class CuttingProxy:
    """Passes bytes on, and cuts each of the first connections after so many."""

    def __init__(self, port: int, *, cuts: int, after: int) -> None:
        self._port, self.cuts, self._after = port, cuts, after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            threading.Thread(target=copy, args=(server, client), daemon=True).start()
            passed = 0
            with contextlib.suppress(OSError):
                while data := client.recv(65536):
                    passed += len(data)
                    if passed > self._after and self.cuts > 0:
                        self.cuts -= 1
                        reset = struct.pack("ii", 1, 0)
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                        return
                    server.sendall(data)

    def close(self) -> None:
        self._listener.close()


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_an_event_becomes_a_better_champion(project: Path, service: Service) -> None:
    with receiver(project):
        job = begun(service)
        found = ended(service, job, beside=project)
    assert found["status"] == "done", found["result"]["reasons"]
    assert found["result"]["promoted"] is True
    assert found["result"]["progress"]["steps"] == 60
    version = found["result"]["candidate"]
    champion = service.client.get("/v1/models/census/versions/champion").json()
    assert champion["version"] == version
    tree = service.client.get("/v1/lineage/census", params={"version": version}).json()
    edges = {(p["kind"], p["role"]) for p in tree["parents"]}
    assert {("job", "trained by"), ("dataset", "fresh"), ("dataset", "replay"), ("model", "weights")} <= edges
    token = token_of(service, job)
    used = Job(str(service.client.base_url), job, token)
    with pytest.raises(
        JobRefused, match="401: the job token is not valid here: version 2 was uploaded"
    ) as refused:
        used.upload(project / "census_1.onnx")
    assert refused.value.status == 401


def test_a_cut_upload_goes_on_and_the_client_reports(project: Path, service: Service, tmp_path: Path) -> None:
    job = begun(service)
    port = service.client.base_url.port
    assert port is not None
    token = token_of(service, job)
    proxy = CuttingProxy(port, cuts=3, after=20_000)
    try:
        with Job.from_event(
            json.dumps(
                {
                    "type": "retrain.requested",
                    "data": {"job": job, "token": token, "task": f"{proxy.url}/v1/retrains/{job}/task"},
                }
            )
        ) as trained:
            champion = trained.champion(tmp_path / "champion") / "model.onnx"
            fetched = trained.fetch(tmp_path)
            assert fetched.stat().st_size > 1000
            trained.progress(loss=0.5, step=1, steps=2)
            assert job_of(service, job)["result"]["progress"]["loss"] == 0.5
            model = onnx.load(champion)
            model.doc_string = "long enough to be cut " * 5_000
            onnx.save(model, champion)
            made = trained.upload(champion, note="again")
    finally:
        proxy.close()
    assert proxy.cuts < 3  # the file was cut, and went on
    assert made["job"] == job
    assert ended(service, job)["status"] in ("refused", "undecided", "done")


def test_an_exception_fails_the_job_with_its_lines(service: Service) -> None:
    job = begun(service)
    token = token_of(service, job)
    with pytest.raises(ZeroDivisionError), Job(str(service.client.base_url), job, token):
        _ = 1 / 0
    found = ended(service, job)
    assert found["status"] == "failed"
    assert found["result"]["error"] == "ZeroDivisionError: division by zero"
    assert any("_ = 1 / 0" in line for line in found["result"]["log"])
    other = Job(str(service.client.base_url), job, token)
    with pytest.raises(JobRefused, match="is failed and waits for no version"):
        other.fail("again")


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_large_upload_leaves_memory_alone(tmp_path: Path) -> None:
    config = write_project(tmp_path / "toy")
    block = secrets.token_bytes(4_000_000)
    block = bytes(byte & 0x3F for byte in block[:1_000_000]) * 4  # small exponents: finite numbers
    count = LARGE_BYTES // len(block)
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [count * len(block) // 4], "data_offsets": [0, count * len(block)]}}
    ).encode()
    header = len(header).to_bytes(8, "little") + header
    digest = hashlib.sha256(header)
    for _ in range(count):
        digest.update(block)
    size = len(header) + count * len(block)
    files = [
        {"name": "model.safetensors", "bytes": size, "sha256": digest.hexdigest()},
        {"name": "config.json", "bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()},
    ]
    with Service(config) as service:
        service.post([{"id": "a", "inputs": {"x": 0.2}}])
        service.wait_judged(1)
        announced = service.client.post(
            "/v1/models/toy/versions", json={"kind": "hf", "files": files, "inputs": ["text"]}
        )
        assert announced.status_code == 201, announced.text
        upload = announced.json()
        large, small = (file["url"] for file in upload["files"])
        intake = service.processes()["intake"]
        rest = memory(intake, "VmRSS")
        Path(f"/proc/{intake}/clear_refs").write_text("5")  # the peak begins here

        def body(start: int, stop: int) -> Iterator[bytes]:
            at, whole = 0, [header] + [block] * count
            for part in whole:
                piece = part[max(0, start - at) : max(0, stop - at)]
                at += len(part)
                if piece:
                    yield piece

        half = size // 2
        assert service.client.put(large, content=body(0, half)).json()["received"] == half
        assert service.client.put(f"{large}?offset={half}", content=body(half, size)).status_code == 200
        assert service.client.put(small, content=b"{}").status_code == 200
        refused = service.client.post(upload["complete"], json={}, timeout=PATIENCE_S * 10)
        assert refused.status_code == 422  # all of it was read: the folder lacks a tokenizer
        assert "has no tokenizer" in refused.text
        grown = memory(intake, "VmHWM") - rest
        assert grown <= MOST_GROWTH_BYTES, f"{grown / 1e6:.0f} MB"


def memory(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of how it reads its schemas
def test_the_job_of_kubernetes_is_one_and_runs_the_script() -> None:
    validator: Any = require_package("kubernetes_validate", "pip install kubernetes-validate")
    [job] = yaml.safe_load_all((EXAMPLE / "kubernetes-job.yaml").read_text())
    for version in ("1.29", "1.34"):
        validator.validate(job, version, strict=True)
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "train.py"]
    assert {one["name"] for one in container["env"]} == {"OUTRIDER_EVENT", "OUTRIDER_URL"}
    assert not container["securityContext"]["allowPrivilegeEscalation"]


def test_the_workflow_runs_the_script_and_shows_no_token() -> None:
    workflow = yaml.safe_load((EXAMPLE / "github-workflow.yml").read_text())
    assert workflow[True]["repository_dispatch"]["types"] == ["outrider-retrain"]
    [job] = workflow["jobs"].values()
    step = job["steps"][-1]
    assert (step["run"], step["working-directory"]) == ("python train.py", "examples/external_training")
    assert step["env"]["OUTRIDER_JOB_TOKEN"] == "${{ secrets.OUTRIDER_JOB_TOKEN }}"
    assert set(step["env"]) == {"OUTRIDER_URL", "OUTRIDER_JOB", "OUTRIDER_JOB_TOKEN"}
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("name", ["ray_train.py", "airflow_dag.py"])
def test_other_schedulers_run_the_same_training(name: str) -> None:
    """Neither is installed here: their files are read, and call what the script has."""
    tree = ast.parse((EXAMPLE / name).read_text())
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "train"]
    assert [alias.name for node in taken for alias in node.names] == ["retrain"]
    called = {
        node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "id")
    }
    assert {"retrain"} <= called
    compile(tree, name, "exec")


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_the_receiver_refuses_a_wrong_signature(project: Path, service: Service) -> None:
    with receiver(project):
        port = (project / "outrider.toml").read_text().partition("127.0.0.1:")[2].partition("/")[0]
        url, body = f"http://127.0.0.1:{port}/events", json.dumps({"type": "retrain.failed", "data": {}})
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception), socket.create_connection(("127.0.0.1", int(port)), 1):
                break
            time.sleep(0.1)
        now = datetime.now(UTC)
        headers = {"webhook-id": "m", "webhook-timestamp": str(int(now.timestamp()))}
        right = Webhook((project / "webhook.secret").read_text()).sign("m", now, body)
        for signature, status in (("v1,AAAA", 401), (right, 204)):
            answer = service.client.post(
                url, content=body, headers=headers | {"webhook-signature": signature}
            )
            assert answer.status_code == status
