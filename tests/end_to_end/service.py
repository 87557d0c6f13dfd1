"""A real service in processes of its own, for tests: started by the command line, driven over HTTP."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from tests.databases import place_database
from tests.forked import forks
from tests.soak import PATIENCE_S

EMPTY: Mapping[str, str] = MappingProxyType({})

CONFIG = """
[server]
port = 0

[models.toy]
predictor = "model.py:predict"
inputs = ["x"]
target = "label"
classes = [0, 1]
assertions = ["checks.py"]
behavior = ["test_toy.py"]
slice_by = "device"
"""

MODEL = '''
"""A model that is certain above 0.5, and wrong about nothing else."""


def predict(batch):
    x = batch.column("inputs.x")
    return {"label": (x > 0.5).astype(int), "score": abs(x - 0.5) + 0.5}
'''

CHECKS = '''
from outrider.assertions import Window, assertion


@assertion(level="critical")
def too_high(batch):
    """x above 0.9, and an answer all the same."""
    return (batch.column("inputs.x") > 0.9) & batch.has("outputs.label")


@assertion
def unsure(batch):
    """Score below 0.55."""
    score = batch.column("outputs.score")
    return (score < 0.55) * (0.55 - score)


@assertion(window=Window(rows=3, columns=("outputs.label",)))
def flips(batch):
    """The label differs from the one before of the same entity."""
    label, entity = batch.column("outputs.label"), batch.column("entity")
    before = [False] + [
        bool(entity[i] is not None and entity[i] == entity[i - 1] and label[i] != label[i - 1])
        for i in range(1, batch.rows)
    ]
    return [float(value) for value in before]
'''

BEHAVIOR = """
from outrider.behavioral_tests import INV


def nudge(batch, rng):
    return batch.with_columns({"inputs.x": batch.column("inputs.x") + 0.05})


test_nudge = INV(perturb=nudge, live=0.5, capability="robustness")
"""


def write_project(folder: Path, *, config: str = CONFIG, checks: str = CHECKS) -> Path:
    """Write a small project; returns the path of its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"outrider.toml": config, "model.py": MODEL, "checks.py": checks, "test_toy.py": BEHAVIOR}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "outrider.toml"


class Service:
    """``outrider serve`` on a free port; use as a context manager.

    Parameters
    ----------
    folder
        Data folder, when it is not the one beside the configuration.
    is_new
        Whether the service makes its database itself, which takes it a second; else it finds an empty one.
    is_started
        Whether its processes are started as users start them, imports and all, as in a soak; else they are
        forks.
    needs
        Modules that are imported once before it is forked, where it would import them again and again.
    env
        Added to the environment of the service.
    arguments
        Further ones of ``outrider serve``.
    """

    def __init__(
        self,
        config: Path,
        *,
        folder: Path | None = None,
        is_new: bool = False,
        is_started: bool = False,
        needs: Sequence[str] = (),
        env: Mapping[str, str] = EMPTY,
        arguments: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.is_new = is_new
        self.is_started = is_started
        self.needs = needs
        self.folder = folder or config.parent / "outrider-data"
        self.env = env
        self.arguments = arguments
        self.log = config.parent / "serve.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.client = httpx.Client(timeout=PATIENCE_S)

    def start(self) -> "Service":
        """Start and wait until it is ready."""
        (self.folder / "run" / "server.json").unlink(missing_ok=True)
        if not self.is_new:
            self.folder.mkdir(parents=True, exist_ok=True)
            place_database(self.folder / "state.db")
        how = contextlib.nullcontext() if self.is_started else forks(*self.needs)
        with self.log.open("ab") as log, how:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "outrider", "serve"),
                    *("--config", str(self.config), "--port", "0", *self.arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.env,
            )
        wait_until(lambda: (self.folder / "run" / "server.json").exists(), "server.json", self)
        url = json.loads((self.folder / "run" / "server.json").read_text(encoding="utf-8"))["url"]
        wait_until(lambda: (self.folder / "key").exists(), "key", self)
        key = (self.folder / "key").read_text(encoding="utf-8").strip()
        self.client.close()
        headers = {"Authorization": f"Bearer {key}"}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S)
        wait_until(self.is_ready, "/readyz", self)
        return self

    def run_command(self, *arguments: str) -> Any:
        """Run ``outrider ARGUMENTS --json`` beside the configuration; its result, read."""
        done = outrider(self.config.parent, *arguments, "--json")
        assert done.returncode == 0, f"outrider {' '.join(arguments)}: {done.returncode}\n{done.stderr}"
        return json.loads(done.stdout)

    def is_ready(self) -> bool:
        """Whether ``/readyz`` answers 200."""
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> int:
        """SIGTERM, and wait for the drain."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> "Service":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.client.close()

    def post(self, records: list[dict[str, Any]]) -> httpx.Response:
        """Send records of model ``toy``."""
        return self.client.post("/v1/records", json=[{"model": "toy", **record} for record in records])

    def query(self, sql: str, *arguments: Any) -> list[Any]:
        """Read the database."""
        database = sqlite3.connect(f"file:{self.folder / 'state.db'}?mode=ro", uri=True, timeout=PATIENCE_S)
        try:
            return database.execute(sql, arguments).fetchall()
        finally:
            database.close()

    def count(self, name: str, slot: str = "champion") -> int:
        """Value of an exact counter."""
        rows = self.query("SELECT value FROM counter WHERE slot = ? AND name = ?", slot, name)
        return int(rows[0][0]) if rows else 0

    def wait_judged(self, records: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until so many records are judged."""
        wait_until(lambda: self.count("records") >= records, f"{records} judged records", self, timeout_s)

    def processes(self) -> dict[str, int]:
        """Process ids by role: supervisor, intake, worker, host, trainer, engine."""
        assert self.process is not None
        found = {"supervisor": self.process.pid}
        for pid in descendants(self.process.pid):
            command = command_line(pid)
            for role in ("intake", "worker", "trainer", "host", "engine"):
                if f"outrider.monitor.{role} " in command:  # not one of its jobs, a module below it
                    found[role] = pid
        return found


def outrider(
    folder: Path, *arguments: str, timeout_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder until it ends."""
    with forks():
        return subprocess.run(
            [sys.executable, "-m", "outrider", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def all_dead(pids: Iterable[int]) -> bool:
    """Whether none of these processes runs."""
    return not any(map(is_alive, pids))


def descendants(pid: int) -> list[int]:
    """Living processes below ``pid``, from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    below, frontier = [], [pid]
    while frontier:
        top = frontier.pop()
        children = [child for child, parent in parents.items() if parent == top]
        below += children
        frontier += children
    return below


def command_line(pid: int) -> str:
    """Arguments of a process, or empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def kill(pid: int) -> None:
    """kill -9, if it still lives."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_until(
    condition: Callable[[], bool], what: str, service: Service | None = None, timeout_s: float = PATIENCE_S
) -> None:
    """Poll a condition; on time-out the service's log is in the message."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        ended = service is not None and service.process is not None and service.process.poll() is not None
        if time.monotonic() > deadline or ended:
            log = service.log.read_text(encoding="utf-8")[-4000:] if service and service.log.exists() else ""
            raise AssertionError(f"no {what} within {timeout_s:.0f} s (ended: {ended})\n{log}")
        time.sleep(0.05)
