"""Time from a rollback to former champions until production knows and records are judged by them.

A real service with four versions of a model, each champion for a while; records come all the time. Production
waits at the pointer (``GET …/versions/champion?wait=60`` with ``If-None-Match``).
"""

import os
import sqlite3
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import torch
from safetensors.torch import save

from benchmarks.figure import Figure
from benchmarks.shadow.path import CASES, Service, service
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import open_database, write

ALLOWED_S = 5.0
VERSIONS = ("2", "3", "4")
BACK = ("1", "3", "2", "4", "1", "2")
"""Former champions, none of them the one before."""
CASE = CASES[0]
JSON = {"content-type": "application/json"}


class Traffic(threading.Thread):
    """Small blocks, one after another."""

    def __init__(self, running: Service) -> None:
        super().__init__(daemon=True)
        self._running = running
        self.is_over = False

    def run(self) -> None:
        """Send until it is over."""
        inputs = CASE.inputs(7)[:16]
        while not self.is_over:
            self._running.run(inputs, len(inputs))
            time.sleep(0.02)


def add_versions(data: Path) -> None:
    """Register challengers, weights of their own."""
    engine, objects = open_database(f"sqlite:///{data / 'state.db'}"), LocalObjects(data / "objects")
    with engine.connect() as connection:
        first = models.get(connection, "m", "1")
    for number, version in enumerate(VERSIONS):
        state = CASE.module().state_dict()
        changed = {name: values + 0.01 * torch.randn(values.shape) * number for name, values in state.items()}
        digest = objects.put(save(changed))
        with write(engine) as connection:
            models.register(
                connection, model="m", version=version, status="challenger", digest=digest, weights=digest,
                now_us=time.time_ns() // 1000, source=first.source,
            )  # fmt: skip
    engine.dispose()


def judges(data: Path) -> str:
    """Version that the newest judged block was judged by."""
    with sqlite3.connect(f"file:{data / 'state.db'}?mode=ro", uri=True) as state:
        border = "SELECT version, seq FROM champion_border ORDER BY seq DESC LIMIT 1"
        version, after = state.execute(border).fetchone()
        answered = "SELECT 1 FROM answer WHERE version = ? AND seq > ? LIMIT 1"
        return str(version) if state.execute(answered, (version, after)).fetchone() else ""


def changed(client: httpx.Client, data: Path, path: str, body: dict[str, object]) -> tuple[float, float]:
    """Seconds until production knows of a change, and until records are judged by the new champion."""
    pointer = "/v1/models/m/versions/champion"
    known = client.get(pointer).headers["etag"]
    told: list[float] = []
    wanted: list[str] = []

    def wait() -> None:
        with httpx.Client(base_url=client.base_url, headers=client.headers, timeout=90) as production:
            answer = production.get(f"{pointer}?wait=60", headers={"if-none-match": known})
            told.append(time.perf_counter())
            wanted.append(answer.raise_for_status().json()["version"])

    production = threading.Thread(target=wait)
    production.start()
    time.sleep(0.3)
    began = time.perf_counter()
    version = client.post(path, json=body, headers=JSON).raise_for_status().json()["version"]
    production.join()
    assert wanted == [version]
    until = began + 120
    while judges(data) != version:
        if time.perf_counter() > until:
            raise RuntimeError(f"no record was judged by version {version} in 120 s")
        time.sleep(0.01)
    return told[0] - began, time.perf_counter() - began


def measure() -> None:
    """Roll back to each former champion, while records come."""
    torch.manual_seed(0)
    with service(CASE, 64) as running:
        data, client = running.data, running.client
        running.run(np.concatenate([CASE.inputs(1)[:256]]), 256)
        add_versions(data)
        traffic = Traffic(running)
        traffic.start()
        for version in VERSIONS:
            body = {"version": version, "force": True, "reason": "benchmark"}
            changed(client, data, "/v1/models/m/promote", body)
        found = []
        for version in BACK:
            body = {"to": version, "reason": "benchmark"}
            found.append(changed(client, data, "/v1/models/m/rollback", body))
            print(f"to {version}: {found[-1]}", file=sys.stderr)
        traffic.is_over = True
        traffic.join()
    data_text = f"{len(BACK)} rollbacks to former champions, torch on {os.cpu_count()} cores, worst of all"
    for name, seconds in zip(("known", "judged"), map(max, zip(*found, strict=True)), strict=True):
        unit = {
            "known": "s until production has the version from the pointer",
            "judged": "s until records are judged by it",
        }[name]
        Figure(
            f"improvement.rollback.{name}", seconds, unit, f"{ALLOWED_S:g} s", ALLOWED_S / seconds, 1.0,
            len(BACK), min(row[name == "judged"] for row in found), seconds, data_text,
        ).show()  # fmt: skip


if __name__ == "__main__":
    measure()
