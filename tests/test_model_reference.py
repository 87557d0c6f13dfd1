import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from outrider.assertions import Batch
from outrider.errors import ConfigError, ServerError
from outrider.model_reference import load_predictor

BATCH = Batch.from_records([{"inputs": {"x": 1.0}}, {"inputs": {"x": -2.0}}], model="m")
MODEL = """
import torch

def predict(batch):
    return {"label": (batch.column("inputs.x") > 0).astype(int)}

def net():
    return torch.nn.Linear(1, 2)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    return tmp_path


def config(folder: Path, *models: str) -> None:
    text = "".join(f'[models.{name}]\npredictor = "model.py:predict"\n' for name in models)
    (folder / "outrider.toml").write_text(text, encoding="utf-8")


def test_a_file_and_function(folder: Path) -> None:
    assert load_predictor("model.py:predict", folder=folder)(BATCH)["label"].tolist() == [1, 0]


def test_a_module_and_function(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (folder / "model.py").rename(folder / "a_module_of_this_test.py")
    assert load_predictor("a_module_of_this_test:predict", folder=folder)(BATCH)["label"].tolist() == [1, 0]


def test_a_project_with_one_model_or_a_named_one(folder: Path) -> None:
    config(folder, "one")
    assert load_predictor(".", folder=folder)(BATCH)["label"].tolist() == [1, 0]
    config(folder, "one", "two")
    assert load_predictor(f"{folder}#two")(BATCH)["label"].tolist() == [1, 0]
    with pytest.raises(ConfigError, match="has models one, two; name one"):
        load_predictor(str(folder))
    with pytest.raises(ConfigError, match="no model 'three'"):
        load_predictor(f"{folder}#three")


def test_a_project_with_a_torch_model(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    weights = {"weight": torch.tensor([[-1.0], [1.0]]), "bias": torch.zeros(2)}
    save_file(weights, folder / "net.safetensors")
    lines = [
        "[models.m]",
        'architecture = "model.py:net"',
        'weights = "net.safetensors"',
        'inputs = ["x"]',
        'classes = ["no", "yes"]',
        "[worker]",
        'device = "cpu"',
    ]
    (folder / "outrider.toml").write_text("\n".join(lines), encoding="utf-8")
    assert load_predictor(".", folder=folder)(BATCH)["label"].tolist() == ["yes", "no"]
    (folder / "net.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"net\.safetensors does not exist"):
        load_predictor(".", folder=folder)


@pytest.mark.parametrize(
    "reference", ["nonsense", "no_such_module_at_all:predict", "model.py:net2", "gone.py:f"]
)
def test_what_cannot_be_found_is_said(folder: Path, reference: str) -> None:
    with pytest.raises(ConfigError, match=r"is no model|cannot be imported|not defined|does not exist"):
        load_predictor(reference, folder=folder)


class Answering(BaseHTTPRequestHandler):
    """Labels by the sign of x; other paths answer wrongly in one way each."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers = [{"label": int(each["x"] > 0), "score": 0.75} for each in body["instances"]]
        status = 200
        match self.path:
            case "/bare":
                answers = [int(each["x"] > 0) for each in body["instances"]]  # type: ignore[misc]
            case "/short":
                answers = answers[:1]
            case "/broken":
                status = 500
            case "/strict":
                status = 422
        payload = json.dumps({"predictions": answers}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answering) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_an_endpoint_answers_blocks(server: str) -> None:
    answers = load_predictor(f"{server}/predict")(BATCH)
    assert answers["label"].tolist() == [1, 0]
    assert answers["score"].tolist() == [0.75, 0.75]
    assert load_predictor(f"{server}/bare")(BATCH)["label"].tolist() == [1, 0]


def test_an_endpoint_that_answers_otherwise_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match="with 2 entries expected"):
        load_predictor(f"{server}/short")(BATCH)
    with pytest.raises(ValueError, match="status 422"):
        load_predictor(f"{server}/strict")(BATCH)
    with pytest.raises(ServerError, match="status 500"):
        load_predictor(f"{server}/broken")(BATCH)
    with pytest.raises(ServerError, match="no answer: Connection refused"):
        load_predictor("http://127.0.0.1:9/")(BATCH)
