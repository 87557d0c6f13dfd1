"""Jobs beside a training that does not end: starts of dataset jobs, webhooks, and a cancellation.

A real service; the training is a job of the same model. An event's time is that of the transaction that wrote
it, its arrival that at the receiver.
"""

import io
import json
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figure import Figure
from benchmarks.shadow.path import CASES, Service, service
from outrider.assertions import Batch
from outrider.monitor.process.memory import own_bytes

IMPORTS = 12
START_S, LEAVE_S, CANCEL_S = 2.0, 1.0, 10.0
CASE = CASES[0]
JSON = {"content-type": "application/json"}
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
CONFIG = """
[models.m.retrain]
replay = "m-old"
epochs = 100000000

[[webhooks]]
url = "http://127.0.0.1:{port}/"
events = ["dataset.committed"]
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
allow_private = true
"""


class Receiver(ThreadingHTTPServer):
    """Receiver of events, and the seconds that each was on its way."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        super().__init__(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answer(BaseHTTPRequestHandler):
    """Handler that notes when an event came."""

    def do_POST(self) -> None:
        """Note an event."""
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert isinstance(self.server, Receiver)
        self.server.seconds.append(time.time() - datetime.fromisoformat(event["timestamp"]).timestamp())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def table(name: str) -> bytes:
    """Labelled rows as an Arrow stream."""
    inputs = CASE.inputs(3)[:500]
    columns = {"id": [f"{name}-{row}" for row in range(len(inputs))], "inputs.x": inputs}
    labelled = Batch.from_columns(columns | {"label.label": np.arange(len(inputs)) % 10}, model="m")
    rows = pa.Table.from_batches([labelled.to_arrow()])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def imported(running: Service, name: str) -> float:
    """Seconds from the request to the start of the dataset job's process, once its version is there."""
    path = f"/v1/datasets/{name}/versions?model=m&wait_s=60"
    made = running.client.post(path, content=table(name), headers=ARROW).raise_for_status().json()
    job = running.client.get(f"/v1/jobs/{made['job']}").raise_for_status().json()
    started, created = (datetime.fromisoformat(job[key]) for key in ("started", "created"))
    return (started - created).total_seconds()


def children(pid: int, module: str) -> list[int]:
    """Processes that a process has started, of a module."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(child) for child in found if module in Path(f"/proc/{child}/cmdline").read_text("utf-8")]


def main() -> None:
    """Import beside a training, then cancel it."""
    receiver = Receiver()
    with service(CASE, 64, CONFIG.format(port=receiver.server_address[1])) as running:
        running.run(CASE.inputs(1)[:64], 64)
        (trainer,) = children(running.process.pid, "outrider.monitor.trainer")
        rest = own_bytes(trainer)
        alone = [imported(running, "m-old"), *(imported(running, f"before-{n}") for n in range(2))]
        asked = {"model": "m", "from_scratch": True}
        job = running.client.post("/v1/retrains", json=asked, headers=JSON).raise_for_status().json()["id"]
        while running.client.get(f"/v1/jobs/{job}").json()["stage"] != "train":
            time.sleep(0.05)
        receiver.seconds.clear()
        beside = [imported(running, f"beside-{number}") for number in range(IMPORTS)]
        assert running.client.get(f"/v1/jobs/{job}").json()["status"] == "running"
        training = children(trainer, "job_process")
        began = time.perf_counter()
        running.client.post(f"/v1/jobs/{job}/cancel", json={}, headers=JSON).raise_for_status()
        while set(training) <= set(children(trainer, "job_process")):
            time.sleep(0.05)
        cancelled = time.perf_counter() - began
    data = f"{IMPORTS} imports of 500 rows beside a training of the same model, worst of all"
    for name, unit, value, most in (
        ("start", "s until a dataset job has its process", max(beside), START_S),
        ("webhook", "s until an event is received", max(receiver.seconds), LEAVE_S),
        ("cancel", "s until a cancelled training is gone", cancelled, CANCEL_S),
    ):
        Figure(
            f"improvement.jobs.{name}", value, unit, f"{most:g} s", most / value, 1.0, IMPORTS,
            data=data if name != "cancel" else "one training",
        ).show()  # fmt: skip
    Figure(
        "improvement.jobs.rest", rest / 1e6, "MB of the trainer at rest, without mapped files", "200 MB",
        200e6 / rest, 1.0, 1, data=f"starts without a training: at most {max(alone):.2f} s",
    ).show()  # fmt: skip


if __name__ == "__main__":
    main()
