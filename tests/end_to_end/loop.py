"""A small project whose model is fine-tuned, and the traffic, labels and webhooks that take it once round."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.forked import TRAINING

from .service import Service, kill, wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SHADOW_ROWS = 100
TRIGGER = 60

CONFIG = """
[models.sign]
architecture = "model.py:Net"
weights = "champion.safetensors"
inputs = ["value", "faulty"]
classes = [0, 1]
assertions = ["checks.py"]
behavior = ["suite.py"]
slice_by = "device"

[models.sign.judges.second]
predictor = "second.py:judge"
budget_per_day = 1_000_000  # tests of one loop send traffic for as long as a busy machine needs
reads = ["inputs.value"]
answer = {{ verdict = ["positive", "negative"] }}
rate = 0.5

[models.sign.retrain]
enabled = true
labelled_flags = {trigger}
replay = "sign-train"
epochs = 70
learning_rate = 0.03
replay_ratio = 1.0
held_out_share = 0.3
augment = "model.py:slowly"

[models.sign.gate]
held_out = "sign-heldout"
max_drop = 0.05
min_gain = 0.2
shadow_rows = {shadow_rows}
shadow_timeout_s = 60

[[webhooks]]
url = "{url}"
secret = "{secret}"
events = ["retrain.requested", "gate.refused", "model.promoted", "model.rolled_back"]
allow_private = true

[worker]
device = "cpu"
"""

MODEL = """
import time

import torch


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


def slowly(inputs, generator):
    time.sleep(0.01)  # so that the training can be met while it runs
    return inputs
"""

SECOND = '''
import numpy as np


def judge(batch):
    """What the sign is, by the number itself."""
    return {"verdict": np.where(batch.column("inputs.value") > 0, "positive", "negative").astype(object)}
'''

CHECKS = '''
from outrider.assertions import assertion


@assertion(level="critical")
def faulty_device(batch):
    """The device says that it is broken."""
    return batch.column("inputs.faulty") > 0.5


@assertion
def unsure(batch):
    """Score below 0.6."""
    score = batch.column("outputs.score")
    return (score < 0.6) * (0.6 - score)
'''

SUITE = """
from outrider.behavioral_tests import INV, MFT

cases = [{"inputs": {"value": value, "faulty": 0.0}} for value in (-3.0, 3.0)]
test_clear = MFT(cases=cases, labels=[0, 1], capability="basics")


def nudge(batch, rng):
    return batch.with_columns({"inputs.value": batch.column("inputs.value") + 0.02})


test_nudge = INV(perturb=nudge, live=0.5, tolerance=0.1, capability="robustness")
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request that the receiver got."""

    headers: dict[str, str]
    body: bytes
    status: int


@dataclass(slots=True)
class Receiver:
    """A webhook address that refuses every message once before it takes it."""

    url: str = ""
    deliveries: list[Delivery] = field(default_factory=list)

    @contextlib.contextmanager
    def listen(self) -> Iterator["Receiver"]:
        """Serve on a free port."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                known = {delivery.headers["webhook-id"] for delivery in receiver.deliveries}
                status = 204 if headers["webhook-id"] in known else 503
                receiver.deliveries.append(Delivery(headers, body, status))
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Be quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_address[1]}/hooks"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


@dataclass(slots=True)
class Traffic:
    """Records of a device that turns the sign round when it is faulty, and their truth."""

    service: Service
    truth: dict[str, int] = field(default_factory=dict)
    faulty: set[str] = field(default_factory=set)
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def send(self, rows: int, *, faulty: bool) -> list[str]:
        """Send records; returns their ids."""
        values = self._rng.normal(0, 1, rows)
        first = len(self.truth)
        keys = [f"r{first + row}" for row in range(rows)]
        records = [
            {
                "model": "sign",
                "id": key,
                "inputs": {"value": float(-value if faulty else value), "faulty": float(faulty)},
                "attrs": {"device": "broken" if faulty else "whole"},
            }
            for key, value in zip(keys, values, strict=True)
        ]
        answer = self.service.client.post("/v1/records", json=records)
        assert answer.status_code == 202, answer.text
        assert answer.json()["accepted"] == rows, answer.text
        self.truth |= {key: int(value > 0) for key, value in zip(keys, values, strict=True)}
        if faulty:
            self.faulty |= set(keys)
        return keys

    def label(self, keys: list[str]) -> None:
        """Say what is true of records, all in one request."""
        labels = [{"model": "sign", "id": key, "label": {"label": self.truth[key]}} for key in keys]
        answer = self.service.client.post("/v1/labels", json=labels)
        assert answer.json()["accepted"] == len(keys), answer.text


@contextlib.contextmanager
def flowing(
    traffic: Traffic, *, labels: bool = False, rows: int = 10, pause_s: float = 0.2
) -> Iterator[None]:
    """Send traffic, half of it faulty, until the block ends."""
    stop = threading.Event()

    def run() -> None:
        faulty = False
        while not stop.wait(pause_s):
            faulty = not faulty
            with contextlib.suppress(httpx.TransportError):
                keys = traffic.send(rows, faulty=faulty)
                if labels and not faulty:  # never flagged and labelled: no retraining comes of them
                    traffic.label(keys[:2])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@dataclass(slots=True)
class Loop:
    """A running service that has gone once round, and what was done to it."""

    service: Service
    receiver: Receiver
    traffic: Traffic
    labelled: set[str] = field(default_factory=set)
    job: dict[str, Any] = field(default_factory=dict)
    killed_in: str = ""

    def retrains(self) -> list[dict[str, Any]]:
        """Jobs, newest first."""
        found: list[dict[str, Any]] = self.service.client.get("/v1/retrains").json()["retrains"]
        return found

    def go_round(self) -> None:
        """Import, send, label; kill the trainer while it trains; wait for the verdict."""
        service, traffic = self.service, self.traffic
        for number, name in enumerate(("sign-train", "sign-heldout")):
            file = service.config.parent / f"{name}.parquet"
            write_table(file, seed=number + 1)
            service.run_command("dataset", "import", name, str(file), "--model", "sign")
        whole, broken = traffic.send(150, faulty=False), traffic.send(200, faulty=True)
        service.wait_judged(350)
        service.run_command("label", "request", "sign", "--budget", "20")
        assert self.retrains() == []
        self.labelled = {*whole[:40], *broken[:110]}
        traffic.label(sorted(self.labelled))  # one block: all of them are there when the job is made
        wait_until(self._trains, "a training that runs", service)
        (job,) = self.retrains()
        self.killed_in = str(job["stage"])
        kill(service.processes()["trainer"])
        with flowing(traffic):
            wait_until(self._is_over, "a verdict", service)
        (self.job,) = self.retrains()

    def _trains(self) -> bool:
        found = self.retrains()
        return bool(found) and found[0]["stage"] == "train" and "progress" in found[0]["result"]

    def _is_over(self) -> bool:
        return all(job["status"] not in ("queued", "running") for job in self.retrains())

    def wait_delivered(self, event: str) -> list[Delivery]:
        """Every delivery of an event, once the receiver has taken it."""

        def found() -> list[Delivery]:
            kind = f'"type": "{event}"'.encode()
            return [delivery for delivery in self.receiver.deliveries if kind in delivery.body]

        wait_until(lambda: any(d.status == 204 for d in found()), f"{event} delivered", self.service)
        return found()


def write_table(file: Path, *, seed: int, rows: int = 200) -> None:
    """Records of a whole device with their truth."""
    value = np.random.default_rng(seed).normal(0, 1, rows)
    columns = {
        "id": [f"{file.stem}-{row}" for row in range(rows)],
        "value": value,
        "faulty": np.zeros(rows),
        "label": (value > 0).astype(int),
    }
    pq.write_table(pa.table(columns), file)


def write_project(folder: Path, url: str) -> Path:
    """Write the project with a champion that knows whole devices only; the path of its configuration."""
    import torch

    from outrider.dataops.model_kinds.torch_models import dump_weights
    from tests.training_rows import trained

    def net() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    torch.set_num_threads(1)
    value = torch.from_numpy(np.random.default_rng(1).normal(0, 1, 200)).float()
    data = torch.stack([value, torch.zeros(200)], 1)
    champion = trained(net, data, (value > 0).long(), epochs=30, rate=0.02)
    settings = CONFIG.format(url=url, secret=SECRET, trigger=TRIGGER, shadow_rows=SHADOW_ROWS)
    files = {"outrider.toml": settings, "model.py": MODEL, "checks.py": CHECKS, "suite.py": SUITE}
    files["second.py"] = SECOND
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "champion.safetensors").write_bytes(dump_weights(champion))
    return folder / "outrider.toml"


@contextlib.contextmanager
def run_loop(folder: Path) -> Iterator[Loop]:
    """A service that has gone once round."""
    with (
        Receiver().listen() as receiver,
        Service(write_project(folder, receiver.url), needs=TRAINING) as service,
    ):
        wait_until(lambda: service.client.get("/v1/retrains").status_code == 200, "the whole API", service)
        loop = Loop(service, receiver, Traffic(service))
        loop.go_round()
        yield loop
