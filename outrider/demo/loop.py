"""One turn of the loop, stage by stage: starts everything, says when traffic changes, waits, and reads back.

What happens in between is the service's doing: nothing here trains, judges or promotes.
"""

import base64
import json
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from outrider.commands.api import Api
from outrider.errors import ServerError

from .children import Child, Children
from .figures import Facts
from .labeller import late_labels
from .truth import Truth

MODEL = "digits"
PORT = 8470
STAGE_TIMEOUT_S = 240.0
POLL_S = 0.1
LOOK_S = 0.4
PROJECT = Path(__file__).with_name("project")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    folder: Path
    seed: int
    is_control: bool = False
    """Label at random, and learn from all labelled records."""


@dataclass(slots=True)
class State:
    """What is known so far; the display reads it while the loop writes it."""

    truth: Truth
    seconds: dict[str, float] = field(default_factory=dict)
    stage: str = ""
    note: str = ""
    judged: int = 0
    flagged: int = 0
    labels: int = 0
    url: str = ""
    first_flag_s: float | None = None
    """From the command to the first flagged record."""


class Loop:
    """A run; ``state`` may be watched from another thread.

    Parameters
    ----------
    began
        Time of the command, on the monotonic clock.
    tick
        Called often while waiting: the display.
    """

    def __init__(
        self, plan: Plan, children: Children, *, began: float, tick: Callable[[State], None]
    ) -> None:
        self.plan = plan
        self.children = children
        self.state = State(Truth(plan.folder / "truth.jsonl"))
        self._began = began
        self._tick = tick
        self._service_port = 0
        self._imports: threading.Thread | None = None
        self._import_error: str | None = None
        self._looked = 0.0
        self._label_counts: dict[str, int] = {}

    def start(self, port: int) -> None:
        """Start all processes at once; they wait for each other."""
        children = self.children
        self._service_port = free_port()
        write_project(self.plan, port=port, service_port=self._service_port)
        self.state.url = f"http://127.0.0.1:{port}"
        children.environment["OUTRIDER_URL"] = self.state.url
        seed, truth = str(self.plan.seed), str(self.state.truth.path)
        children.start("train", ["train.py", "--seed", seed], may_end=True)
        children.start("serve", ["-m", "outrider", "serve", "--config", "outrider.toml"])
        service = ["--folder", ".", "--port", str(self._service_port)]
        children.start("service", ["-m", "outrider.demo.service", *service])
        driver = ["--port", str(self._service_port), "--seed", seed, "--truth", truth]
        self._driver = children.start("driver", ["-m", "outrider.demo.driver", *driver])
        self._labels = ["-m", "outrider.demo.labeller", "--seed", seed, "--truth", truth]

    @property
    def api(self) -> Api:
        """The service, with the key that it made."""
        return Api(self.state.url, (self.plan.folder / "outrider-data" / "key").read_text().strip())

    @property
    def driver(self) -> Child:
        """The process that sends traffic."""
        return self._driver

    def run(self) -> Facts:
        """All stages; returns what the service says at the end.

        Raises
        ------
        OutriderError
            If a process dies, or a stage takes too long.
        """
        with self._stage("start"):
            self.driver.say("healthy")
            self._until(self._has_traffic, "traffic")
        with self._stage("healthy traffic"):
            self._wait_for_phase("healthy")
        with self._stage("faulty traffic"):
            self._imports = threading.Thread(target=self._import_datasets, daemon=True)
            self._imports.start()
            self.children.start("labeller", self._labels)
            self.driver.say("faulty")
            self._wait_for_phase("faulty")
            self._wait_judged()
            late = len(late_labels(self.state.truth.of("faulty"), self.plan.seed))
            self._until(lambda: self.state.labels >= late, "late labels")
            self._join_imports()
        with self._stage("labels"):
            policy = "random" if self.plan.is_control else None
            asked = self.api.post("/v1/label-requests", {"model": MODEL, "policy": policy})["requests"]
            self.state.note = f"{len(asked)} requested"
            self._label_counts = {"bought": len(asked), "late": late}
            self.driver.say("flow")  # cameras go on failing while the model is being mended
            self._until(lambda: self.state.labels >= late + len(asked), "bought labels")
        with self._stage("retrain and gate"):
            job = self._automatic_job()
        promoted = str(job["result"].get("candidate", ""))
        if job["status"] != "done":
            reasons = job["result"].get("reasons") or [job["result"].get("error", "")]
            raise ServerError(f"the automatic candidate was not promoted ({job['status']}): {reasons[0]}")
        with self._stage("promotion reaches production"):
            self._until(lambda: self._service()["version"] == promoted, f"version {promoted} in production")
        with self._stage("a candidate from scratch"):
            refused = None if self.plan.is_control else self._retrain_badly()
        with self._stage("final traffic"):
            self.driver.say("final")
            self._wait_for_phase("final")
            self._wait_judged()
        with self._stage("reading back"):
            return self._facts(promoted, refused)

    # ---- stages ----------------------------------------------------------------------------------------

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.state.stage, self.state.note = name, ""
        began = time.monotonic()
        self._tick(self.state)
        yield
        self.state.seconds[name] = round(time.monotonic() - began, 2)
        self._tick(self.state)

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STAGE_TIMEOUT_S
        while True:
            self.children.check()
            self.state.truth.read()
            self._look()
            self._tick(self.state)
            if is_so():
                return
            if time.monotonic() > deadline:
                raise ServerError(
                    f"no {what} after {STAGE_TIMEOUT_S:.0f} s in stage {self.state.stage!r}; "
                    f"logs are in {self.plan.folder / 'logs'}"
                )
            time.sleep(POLL_S)

    def _look(self) -> None:
        """Read the counters, now and then; a service that is still starting has none."""
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        try:
            view = self.api.get("/v1/overview", model=MODEL)["models"][0]
        except (ServerError, OSError):
            return
        self.state.judged, self.state.flagged = view["records"], view["flagged"]
        self.state.labels = view["labels"]
        if self.state.first_flag_s is None and view["flagged"]:
            self.state.first_flag_s = round(time.monotonic() - self._began, 2)

    def _has_traffic(self) -> bool:
        return bool(self.state.truth.answers)

    def _wait_for_phase(self, phase: str) -> None:
        self._until(lambda: phase in self.state.truth.done, f"end of the {phase} phase")

    def _wait_judged(self) -> None:
        self._until(lambda: self.state.judged >= len(self.state.truth.answers), "verdicts on all records")

    def _import_datasets(self) -> None:
        """As a user would: ``outrider dataset import``."""
        for name, file in (("digits-train", "train.parquet"), ("digits-heldout", "heldout.parquet")):
            done = self._command("dataset", "import", name, file, "--model", MODEL)
            if done.returncode:
                self._import_error = f"outrider dataset import {name}: {done.stderr.strip()}"
                return

    def _join_imports(self) -> None:
        assert self._imports is not None
        thread = self._imports
        self._until(lambda: not thread.is_alive(), "imported datasets")
        if self._import_error is not None:
            raise ServerError(self._import_error)

    def _automatic_job(self) -> dict[str, Any]:
        """The retraining that the trigger of ``outrider.toml`` started, once it has ended."""
        found: list[dict[str, Any]] = []

        def has_ended() -> bool:
            jobs = self.api.get("/v1/retrains", model=MODEL)["retrains"]
            if jobs:
                self.state.note = jobs[0]["stage"] or jobs[0]["status"]
            if len(jobs) > 1:
                raise ServerError(f"one automatic retraining expected, got {len(jobs)}")
            found[:] = [job for job in jobs if job["status"] not in ("queued", "running")]
            return bool(found)

        self._until(has_ended, "verdict on the automatic retraining")
        return found[0]

    def _retrain_badly(self) -> dict[str, Any]:
        """As a user might: one epoch, from scratch."""
        done: list[subprocess.CompletedProcess[str]] = []
        arguments = ("retrain", MODEL, "--from-scratch", "--epochs", "1", "--wait", "--json")
        thread = threading.Thread(target=lambda: done.append(self._command(*arguments)), daemon=True)
        thread.start()
        self._until(lambda: not thread.is_alive(), "verdict on the candidate from scratch")
        try:
            job: dict[str, Any] = json.loads(done[0].stdout)
        except (IndexError, ValueError):
            said = done[0].stderr.strip() if done else "nothing"
            raise ServerError(f"outrider retrain gave no verdict; it said: {said}") from None
        return job

    def _command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "outrider", *arguments]
        return subprocess.run(
            command,
            cwd=self.plan.folder,
            env=self.children.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=STAGE_TIMEOUT_S,
        )

    def _service(self) -> dict[str, Any]:
        found: dict[str, Any] = Api(f"http://127.0.0.1:{self._service_port}", None).get("/healthz")
        return found

    # ---- reading back ----------------------------------------------------------------------------------

    def _facts(self, promoted: str, refused: dict[str, Any] | None) -> Facts:
        api, answers = self.api, self.state.truth.answers
        view = api.get("/v1/overview", model=MODEL)["models"][0]
        phase_of = {answer.id: answer.phase for answer in answers}
        flags: dict[str, Counter[str]] = {}
        for flag in read_flags(api):
            flags.setdefault(phase_of.get(flag["record_id"], "?"), Counter())[flag["assertion"]] += 1
        trained = trained_rows(api, promoted)
        return Facts(
            answers=tuple(answers),
            flags=flags,
            precision={
                row["name"]: (row["precision"]["hits"], row["precision"]["trials"])
                for row in view["assertions"]
            },
            judged=view["records"],
            duplicates=view["duplicates"],
            conflicts=view["conflicts"],
            dead_letters=len(view["dead_letters"]),
            trained_on={name: len(rows) for name, rows in trained.items()},
            trained_cards=frozenset(card for rows in trained.values() for card in rows),
            verdicts=api.get("/v1/gates", model=MODEL)["gates"][::-1],
            refused_job=refused,
            promoted=promoted,
            serving=self._service()["version"],
            labels=self._label_counts,
            datasets=api.get("/v1/datasets", model=MODEL)["datasets"],
            deliveries=self._deliveries(),
            seconds=dict(self.state.seconds),
            first_flag_s=self.state.first_flag_s,
        )

    def _deliveries(self) -> dict[str, Any]:
        found: dict[str, Any] = Api(f"http://127.0.0.1:{self._service_port}", None).get("/hooks")
        return found


def read_flags(api: Api) -> Iterator[dict[str, Any]]:
    """Every flag of the champion's slot, newest first."""
    after: str | None = None
    while True:
        page = api.get("/v1/flags", model=MODEL, slot="champion", limit=1000, after=after)
        yield from page["flags"]
        after = page["after"]
        if after is None:
            return


def trained_rows(api: Api, version: str) -> dict[str, list[str]]:
    """Card of every row that a version was trained on, by dataset version, from its lineage."""
    found = {}
    for node in api.get(f"/v1/lineage/{MODEL}", version=version)["parents"]:
        if node["kind"] != "dataset" or node["role"] not in ("fresh", "replay"):
            continue
        name, _, number = node["id"].rpartition("@")
        part = "train" if node["role"] == "fresh" else None
        stream = api.get_bytes(f"/v1/datasets/{name}/versions/{number}/rows", part=part)
        with pa.ipc.open_stream(stream) as reader:
            found[node["id"]] = reader.read_all().column("entity").to_pylist()
    return found


def write_project(plan: Plan, *, port: int, service_port: int) -> None:
    """Copy the project into the folder, with the ports and the seed of this run."""
    shutil.copytree(PROJECT, plan.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    config = plan.folder / "outrider.toml"
    text = config.read_text(encoding="utf-8")
    changes = {
        "port = 8470": f"port = {port}",
        "http://127.0.0.1:9000/": f"http://127.0.0.1:{service_port}/",
        "seed = 0 ": f"seed = {plan.seed} ",
    }
    if plan.is_control:
        changes |= {'rows = "flagged" ': 'rows = "labelled"'}
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"{config} has no {old!r}")
        text = text.replace(old, new)
    config.write_text(text, encoding="utf-8")
    secret = plan.folder / "webhook.secret"
    secret.touch(mode=0o600)
    secret.write_text("whsec_" + base64.b64encode(secrets.token_bytes(24)).decode(), encoding="ascii")


def free_port(wanted: int = 0) -> int:
    """``wanted`` if nobody has it, else one that is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
