"""A project of ``outrider init`` works at once, and with a model of one's own after editing one file."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from outrider.connection import Connection, connect
from outrider.monitor.client import Client
from tests.forked import TRAINING, forks
from tests.guides import as_a_terminal, section
from tests.requirements import require_package
from tests.soak import IS_SOAK

from .service import Service, outrider, wait_until
from .walks import Walk, on_free_ports

SKLEARN = """
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FEATURES = ["radius", "texture", "smoothness", "concavity"]
data = load_breast_cancer(as_frame=True)
X = data.data[[f"mean {name}" for name in FEATURES]].set_axis(FEATURES, axis=1)
y = np.array(["malignant", "benign"])[data.target]
MODEL = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)


def predict(batch):
    frame = batch.inputs[FEATURES].fillna(X.mean())
    probs = MODEL.predict_proba(frame)
    return {
        "label": MODEL.classes_[probs.argmax(1)],
        "score": probs.max(1),
        "margin": np.diff(np.sort(probs, axis=1)[:, -2:]).ravel(),
        "probs": probs.astype("float32"),
    }
"""

TORCH = """
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

torch.set_num_threads(1)
torch.manual_seed(0)
CLASSES = ["benign", "malignant"]
FEATURES = ["radius", "texture", "smoothness", "concavity"]
data = load_breast_cancer(as_frame=True)
X = torch.tensor(data.data[[f"mean {name}" for name in FEATURES]].to_numpy("float32"))
y = torch.tensor(1 - data.target.to_numpy())
mean, scale = X.mean(0), X.std(0)
NET = torch.nn.Linear(4, 2)
step = torch.optim.Adam(NET.parameters(), 0.1)
for _ in range(200):
    step.zero_grad()
    torch.nn.functional.cross_entropy(NET((X - mean) / scale), y).backward()
    step.step()


def predict(batch):
    x = torch.tensor(batch.inputs[FEATURES].to_numpy("float32"))
    with torch.inference_mode():
        probs = NET(torch.nan_to_num((x - mean) / scale)).softmax(-1).numpy()
    return {
        "label": np.array(CLASSES)[probs.argmax(1)],
        "score": probs.max(1),
        "margin": np.diff(np.sort(probs, axis=1)[:, -2:]).ravel(),
        "probs": probs,
    }
"""


NEEDS: Mapping[str, tuple[str, ...]] = {
    "tabular": ("sklearn.datasets", "sklearn.linear_model"),
    "words": ("sklearn.feature_extraction.text", "sklearn.linear_model"),
    "bert": ("transformers.models.bert.modeling_bert", "peft"),
    "image": ("sklearn.datasets",),
    "chat": ("sklearn.feature_extraction.text",),
}
"""Modules that processes of a project import, beside those of the service."""
TEXTS = ("words", "bert")


def made(folder: Path, project: str) -> Path:
    folder.mkdir()
    wanted = ("text", "--starter", project) if project in TEXTS else (project,)
    with forks(*NEEDS[project]):
        done = outrider(folder, "init", "--modality", *wanted)
    assert done.returncode == 0, done.stderr
    return folder


ODD_CLIENT = """
class Client(Client):
    def capture(self, inputs, outputs, *, id, **about):
        more = {"note": "asked twice"} if sum(id.encode()) % 7 == 0 else {}
        return super().capture(inputs | more, outputs, id=id, **about)


"""
ODD_END = """
import json
import pathlib
import urllib.request

if __name__ == "__main__" and "--label" not in sys.argv:
    data = pathlib.Path("outrider-data")
    url = json.loads((data / "run" / "server.json").read_text())["url"]
    texts = {"gen_ai.operation.name": "chat", "retrieval.documents.0.document.content": "Anything may be."}
    span = {
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
        "spanId": "0000000000000001",
        "startTimeUnixNano": "1760000000000000000",
        "endTimeUnixNano": "1760000001000000000",
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in texts.items()],
    }
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    headers = {"Authorization": "Bearer " + (data / "key.ingest").read_text().strip()}
    headers["Content-Type"] = "application/json"
    urllib.request.urlopen(urllib.request.Request(url + "/v1/traces", body, headers)).close()
    client.label("expired", {"label": "late"})
    client.flush(60)
"""


def with_odd_traffic(folder: Path) -> None:
    """As in production: some calls have an undeclared field, one is traced, a label comes too late."""
    path = folder / "traffic.py"
    before, client, after = path.read_text(encoding="utf-8").partition("client = Client(")
    path.write_text(f"{before}{ODD_CLIENT}{client}{after}{ODD_END}", encoding="utf-8")


def readme_record(folder: Path) -> dict[str, Any]:
    """The record that the README sends with curl."""
    found = re.search(r"-d '(\{.*\})'", (folder / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    record: dict[str, Any] = json.loads(found[1])
    return record


def check_served(folder: Path) -> dict[str, Any]:
    """Send the README's record to the project's service; what is known of it once it is judged."""
    record = readme_record(folder)
    with Service(folder / "outrider.toml", is_new=True, needs=("torch", "sklearn.pipeline")) as service:
        answer = service.client.post("/v1/records", json=record)
        assert answer.status_code == 202, answer.text
        assert answer.json() == {"accepted": 1, "rejected": []}
        service.wait_judged(1)
        path = f"/v1/records/{record['model']}/{record['id']}"
        wait_until(lambda: service.client.get(path).status_code == 200, path, service)
        shown: dict[str, Any] = service.client.get(path).json()
        assert service.query("SELECT count(*) FROM dead_letter") == [(0,)]
        assert service.query("SELECT count(*) FROM strike") == [(0,)]
        assert service.query("SELECT count(*) FROM answer") == [(1,)], service.log.read_text()[-3000:]
        assert service.client.get(f"/m/{record['model']}/flags").status_code == 200
    return shown


def check_suite(folder: Path) -> None:
    """Run ``pytest behavior`` in the project; the plugin is named for a checkout that is not installed."""
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "outrider.pytest_plugin", "-W", "error", "behavior"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "capability" in done.stdout


@pytest.mark.costly("a guide is followed to its end on a running service")
@pytest.mark.parametrize("project", NEEDS)
def test_a_fault_is_flagged_labelled_learned_and_a_better_version_promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str
) -> None:
    if project == "bert":
        if not IS_SOAK:  # the verdict on so small a net hangs on which labels were asked for first
            pytest.skip("a soak trains the BERT of a project")
        require_package("peft", "pip install outrider[hf]")
    as_a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "200")
    folder = made(tmp_path / "mine", project)
    with_odd_traffic(folder)
    record = readme_record(folder)
    on_free_ports(folder, ["8470"])
    guide = section(folder / "README.md", "Once round: a fault, labels, a better version")
    with contextlib.closing(Walk(folder, needs=(*TRAINING, *NEEDS[project]))) as walk:
        assert walk.follow(guide) >= 6
        for command in ("outrider check-config", f"outrider test --model .#{record['model']}@2"):
            came = walk.ended(command)
            assert came.returncode == 0, came.stdout + came.stderr
        check_record(walk, record)
        check_labels_by_lot(walk, record["model"])


def connected(walk: Walk) -> Connection:
    """The service of a walk."""
    data = walk.folder / "outrider-data"
    url = json.loads((data / "run" / "server.json").read_text(encoding="utf-8"))["url"]
    return connect(url, (data / "key").read_text(encoding="utf-8").strip())


def check_record(walk: Walk, record: Mapping[str, Any]) -> None:
    """The README's record is one that an assertion flags."""
    service = connected(walk)
    key = (walk.folder / "outrider-data" / "key.ingest").read_text(encoding="utf-8").strip()
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{service.url}/v1/records", json=record, headers=headers)
    assert answer.json() == {"accepted": 1, "rejected": []}, answer.text
    wait_until(lambda: bool((service.flags()["record_id"] == record["id"]).any()), "its flag")


def check_labels_by_lot(walk: Walk, model: str) -> None:
    """Learned with labels by lot and judged by the careful ones, the same records make no better version."""
    key = (walk.folder / "outrider-data" / "key").read_text(encoding="utf-8").strip()
    service = connected(walk)
    client = Client(service.url, key, model=model)
    rows = service.dataset(f"{model}-flagged", part="train")
    (target,) = (column for column in map(str, rows) if column.startswith("label."))
    labels = rows[target].sample(frac=1, random_state=1).tolist()
    for name, label in zip(rows["id"], labels, strict=True):
        client.label(name, {target.removeprefix("label."): label}, source="lot")
    client.flush(60)
    last = rows["id"].iloc[-1]
    wait_until(lambda: service.record(last)["labels"][0]["source"] == "lot", "labels by lot")
    came = walk.ended(f"outrider retrain {model}")
    assert came.returncode in (1, 6), came.stdout + came.stderr
    assert re.search(rf"version 3 of {model}: (refused|undecided)", came.stdout)
    versions = service.models()
    assert versions.loc[versions["status"] == "champion", "version"].tolist() == ["2"]


def test_a_new_chat_project_judges_what_production_answered_through_an_openai_mirror(tmp_path: Path) -> None:
    folder = made(tmp_path / "mine", "chat")
    answers = {
        "refuses": "I'm sorry, but I can't help with that request.",
        "tells": "The card on file is 4111 1111 1111 1111, shall I charge it?",
        "well": "It ships on Monday.",
    }
    with Service(folder / "outrider.toml") as service:
        for number, (name, answer) in enumerate(answers.items()):
            asked = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Where is my parcel?"}]}
            headers = {"x-outrider-mirror": "1", "x-request-id": name}
            assert service.client.post("/v1/chat/completions", json=asked, headers=headers).is_success
            told = {"model": "helpdesk", "id": name, "outputs": {"answer": answer, "finish_reason": "stop"}}
            joined = service.client.post("/v1/records?join=true", json=[told])
            assert joined.status_code == 202, joined.text
            service.wait_judged(number + 1)
        # Nobody can ever say what production answered to a request without an id: the replica's is judged.
        headers = {"x-outrider-mirror": "1"}
        assert service.client.post("/v1/chat/completions", json=asked, headers=headers).is_success
        # A record with an output that production never sends changes nothing for those behind it.
        odd = {"model": "helpdesk", "id": "odd", "inputs": {"prompt": "?"}, "outputs": {"topic": "other"}}
        assert service.client.post("/v1/records", json=[odd]).status_code == 202
        service.wait_judged(5)
        found = service.query(
            "SELECT record_id, assertion, version FROM flag WHERE record_id IN "
            "('refuses', 'tells', 'well') AND assertion NOT LIKE 'test_%'"
        )
        assert {row[:2] for row in found} == {("refuses", "refusal"), ("tells", "personal_data")}
        record = service.client.get("/v1/records/helpdesk/refuses").json()
        assert record["predicted"] == answers["refuses"]
        assert record["by_replica"] is False
        (lost,) = service.query("SELECT id, predicted FROM record WHERE by_replica")
        assert "Delivery takes 2 to 4 working days" in lost[1]
        page = service.client.get(f"/m/helpdesk/records/{lost[0]}").text
        assert "answered by the replica" in page
        assert "answered by the replica" not in service.client.get("/m/helpdesk/records/refuses").text


@pytest.mark.costly("a guide is followed to its end on a running service")
@pytest.mark.parametrize("source", [SKLEARN, TORCH], ids=["scikit-learn", "torch"])
def test_a_model_of_ones_own_takes_one_file(tmp_path: Path, source: str) -> None:
    folder = made(tmp_path / "mine", "tabular")
    (folder / "model.py").write_text(source, encoding="utf-8")
    check_served(folder)
    check_suite(folder)
