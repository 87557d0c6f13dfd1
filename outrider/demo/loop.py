"""Demo's stages: start, change the traffic, wait, read back.

What happens in between is the service's doing: nothing here trains, judges or promotes.
"""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from outrider.commands.api import Api
from outrider.errors import OutriderError, ServerError

from .cards import FRAMES, TRACKS
from .children import Children, DemoProcess
from .figures import RunFacts
from .files import Plan, free_port, write_project
from .labeller import late_labels, misread
from .readback import MODEL, read_facts
from .truth import Truth

PORT = 8470
PERSON = "ann"
"""Key of the person who overrides the gate."""
HURRY = "the release is due"
CONTROL = "what random labels are worth is measured"
SECOND_LOOK = "second look"
"""Source of the labels that correct others."""
STALL_S = 600.0
"""Without any progress in what is waited for: a crowded machine takes its time, and is not given up."""
POLL_S = 0.1
LOOK_S, MOST_LOOK_S = 0.4, 10.0
LOOK_SHARE = 0.1
"""Part of the time that goes into reading the counters, which are read every ``MOST_LOOK_S`` at least: the
cores are wanted by the service."""


class NotClosed(OutriderError):  # noqa: N818 - reads as the state it is
    """Loop ended early: a candidate was not promoted as expected."""


@dataclass(slots=True)
class State:
    """State of the loop; the display reads while the loop writes."""

    truth: Truth
    seconds: dict[str, float] = field(default_factory=dict)
    stage: str = ""
    note: str = ""
    judged: int = 0
    flagged: int = 0
    labels: int = 0
    url: str = ""
    link: str = ""
    """To the page; works once. Empty until the service has printed it."""
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
        self._serve: DemoProcess | None = None
        self._imports: threading.Thread | None = None
        self._import_error: str | None = None
        self._next_look = 0.0
        self._label_counts: dict[str, int] = {}

    def start(self, port: int) -> None:
        """Train the model, then start all processes, to wait for each other."""
        children = self.children
        self._service_port = free_port()
        write_project(self.plan, port=port, service_port=self._service_port)
        self.state.url = f"http://127.0.0.1:{port}"
        children.environment["OUTRIDER_URL"] = self.state.url
        seed, truth = str(self.plan.seed), str(self.state.truth.path)
        train = children.start("train", ["train.py", "--seed", seed], may_end=True)
        with self._stage("training of version 1"):  # who loads the checks reads what it measured
            self._until(lambda: train.process.poll() is not None, "trained model", lambda: train.cpu_s)
        self._serve = children.start("serve", ["-m", "outrider", "serve", "--config", "outrider.toml"])
        service = ["--folder", ".", "--port", str(self._service_port)]
        children.start("service", ["-m", "outrider.demo.service", *service])
        driver = ["--port", str(self._service_port), "--seed", seed, "--truth", truth]
        self._driver = children.start("driver", ["-m", "outrider.demo.driver", *driver])
        self._labels = ["-m", "outrider.demo.labeller", "--seed", seed, "--truth", truth]

    @property
    def api(self) -> Api:
        """Connection to the service, with its own key."""
        return Api(self.state.url, (self.plan.folder / "outrider-data" / "key").read_text().strip())

    @property
    def driver(self) -> DemoProcess:
        """The process that sends traffic."""
        return self._driver

    def run(self) -> RunFacts:
        """Run all stages and return the service's facts.

        Raises
        ------
        NotClosed
            If the gate refuses the automatic candidate.
        ServerError
            If a process dies, or what is waited for stands still.
        """
        self.go_wrong()
        self.label()
        promoted = self.improve()
        if not self.plan.is_control:
            with self._stage("corrected labels"):
                self._correct()
        with self._stage("a candidate from scratch"):
            refused = None if self.plan.is_control else self._retrain_badly()
        with self._stage("final traffic"):
            self.driver.say("final")
            self._wait_for_phase("final")
            self._wait_judged()
        if refused is not None:
            with self._stage("a bad promotion, rolled back"):
                self._promote_badly(str(refused["result"].get("candidate", "")), promoted)
        with self._stage("reading back"):
            return read_facts(
                self.api,
                self._production,
                answers=self.state.truth.answers,
                promoted=promoted,
                refused=refused,
                labels=self._label_counts,
                seconds=self.state.seconds,
                first_flag_s=self.state.first_flag_s,
            )

    def go_wrong(self) -> None:
        """Send healthy, then faulty traffic, until judged and late labels arrive."""
        with self._stage("start"):
            self.driver.say("healthy")
            self._until(lambda: bool(self._sent()), "traffic", self._sent)
        with self._stage("healthy traffic"):
            self._wait_for_phase("healthy")
        with self._stage("faulty traffic"):
            self.children.start("labeller", self._labels)
            self.driver.say("faulty")
            self._until(lambda: self.state.first_flag_s is not None, "flagged record", self._judged)
            self._imports = threading.Thread(target=self._import_datasets, daemon=True)
            self._imports.start()
            self._wait_for_phase("faulty")
            self._wait_judged()
            late = len(late_labels(self.state.truth.of("faulty"), self.plan.seed))
            self._label_counts = {"late": late}
            self._until(lambda: self.state.labels >= late, "late labels", self._labelled)
            self._join_imports()

    def label(self) -> None:
        """Request labels within budget, given by a human while cameras fail."""
        with self._stage("labels"):
            policy = "random" if self.plan.is_control else None
            asked = self.api.post("/v1/label-requests", {"model": MODEL, "policy": policy})["requests"]
            self.state.note = f"{len(asked)} requested"
            self._label_counts["bought"] = len(asked)
            self.driver.say("flow")
            wanted = sum(self._label_counts.values())
            self._until(lambda: self.state.labels >= wanted, "bought labels", self._labelled)

    def improve(self) -> str:
        """Wait until the service retrains, judges and promotes; return the version.

        What random labels are worth is measured whatever the gate says of it.
        """
        with self._stage("retrain and gate"):
            job = self._automatic_job()
        promoted = str(job["result"].get("candidate", ""))
        if self.plan.is_control and job["status"] in ("refused", "undecided"):
            self._force(promoted, CONTROL)
        elif job["status"] != "done":
            reasons = job["result"].get("reasons") or [job["result"].get("error", "")]
            raise NotClosed(f"the automatic candidate was not promoted ({job['status']}): {reasons[0]}")
        with self._stage("promotion reaches production"):
            self._until(lambda: self._serves(promoted), f"version {promoted} in production")
        return promoted

    # ---- stages ----------------------------------------------------------------------------------------

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.state.stage, self.state.note = name, ""
        began = time.monotonic()
        self._tick(self.state)
        yield
        self.state.seconds[name] = round(time.monotonic() - began, 2)
        self._tick(self.state)

    def _until(
        self,
        is_so: Callable[[], bool],
        what: str,
        progress: Callable[[], object] = lambda: None,
        *,
        every_s: float = POLL_S,
    ) -> None:
        """Wait for as long as ``progress`` changes, and ``STALL_S`` after that."""
        at, reached, away = time.monotonic(), progress(), ""
        while True:
            self.children.check()
            self.state.truth.read()
            self._find_link()
            self._look()
            self._tick(self.state)
            try:
                if is_so():
                    return
                away = ""
            except (ServerError, OSError) as error:  # busy, or starting again
                away = f": {error}"
            if (now := progress()) != reached:
                at, reached = time.monotonic(), now
            if time.monotonic() - at > STALL_S:
                stands = "" if reached is None else f", which stands still at {reached}"
                raise ServerError(
                    f"no {what} in stage {self.state.stage!r} for {STALL_S:.0f} s{stands}{away}; "
                    f"logs are in {self.plan.folder / 'logs'}"
                )
            time.sleep(every_s)

    def _find_link(self) -> None:
        """The one-time link that ``outrider serve`` prints."""
        if not self.state.link and self._serve is not None:
            found = re.search(r"page\s+(http\S+)", self._serve.log.read_text(encoding="utf-8"))
            self.state.link = found[1] if found else ""

    def _look(self) -> None:
        """Read the counters, now and then; a service that is still starting has none."""
        if not self.state.truth.answers or (began := time.monotonic()) < self._next_look:
            return
        self._next_look = began + LOOK_S
        try:
            view = self.api.get("/v1/overview", model=MODEL)["models"][0]
        except (ServerError, OSError):
            return
        ended = time.monotonic()
        self._next_look = ended + min(max(LOOK_S, (ended - began) / LOOK_SHARE), MOST_LOOK_S)
        self.state.judged, self.state.flagged = view["records"], view["flagged"]
        self.state.labels = view["labels"]
        if self.state.first_flag_s is None and view["flagged"]:
            self.state.first_flag_s = round(time.monotonic() - self._began, 2)

    def _sent(self) -> int:
        return len(self.state.truth.answers)

    def _judged(self) -> int:
        return self.state.judged

    def _labelled(self) -> int:
        return self.state.labels

    def _noted(self) -> str:
        return self.state.note

    def _wait_for_phase(self, phase: str) -> None:
        self._until(lambda: phase in self.state.truth.done, f"end of the {phase} phase", self._sent)

    def _wait_judged(self) -> None:
        self._until(lambda: self._judged() >= self._sent(), "verdicts on all records", self._judged)

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
            jobs = self._note_job()
            if len(jobs) > 1:
                raise NotClosed(f"one automatic retraining expected, got {len(jobs)}")
            found[:] = [job for job in jobs if job["finished"]]
            return bool(found)

        self._until(has_ended, "verdict on the automatic retraining", self._noted, every_s=LOOK_S)
        return found[0]

    def _note_job(self) -> list[dict[str, Any]]:
        """Retrainings, newest first; notes how far the newest is."""
        jobs: list[dict[str, Any]] = self.api.get("/v1/retrains", model=MODEL)["retrains"]
        if jobs:
            epoch = jobs[0]["result"].get("epoch")
            stage = jobs[0]["stage"] or jobs[0]["status"]
            self.state.note = stage if epoch is None else f"{stage}, epoch {epoch}"
        return jobs

    def _correct(self) -> None:
        """A second look at the labels that were bought; the next dataset version takes what it corrects."""
        requests = self.api.get("/v1/label-requests", model=MODEL, status="all")["requests"]
        digits = {answer.id: answer.digit for answer in self.state.truth.answers}
        wrong = misread((request["record_id"] for request in requests), self.plan.seed)
        self._label_counts["corrected"] = len(wrong)
        for record in wrong:
            label = {"model": MODEL, "id": record, "label": {"label": digits[record]}, "source": SECOND_LOOK}
            self.api.post("/v1/labels", label)
        self._until(lambda: all(map(self._is_corrected, wrong)), "corrected labels", every_s=LOOK_S)

    def _is_corrected(self, record: str) -> bool:
        labels = self.api.get(f"/v1/records/{MODEL}/{record}")["labels"]
        return bool(labels[0]["source"] == SECOND_LOOK)

    def _retrain_badly(self) -> dict[str, Any]:
        """As a user might: one epoch, from scratch."""
        done: list[subprocess.CompletedProcess[str]] = []
        arguments = ("retrain", MODEL, "--from-scratch", "--epochs", "1", "--wait", "--json")
        thread = threading.Thread(target=lambda: done.append(self._command(*arguments)), daemon=True)
        thread.start()
        self._until(
            lambda: bool(self._note_job()) and not thread.is_alive(),
            "verdict on the candidate from scratch", self._noted, every_s=LOOK_S,
        )  # fmt: skip
        try:
            job: dict[str, Any] = json.loads(done[0].stdout)
        except (IndexError, ValueError):
            said = done[0].stderr.strip() if done else "nothing"
            raise ServerError(f"outrider retrain gave no verdict; it said: {said}") from None
        return job

    def _promote_badly(self, version: str, good: str) -> None:
        """As a user might: the refused candidate, past the gate. The watch returns to ``good`` by itself."""
        self._force(version, HURRY)
        self._until(lambda: self._serves(version), f"version {version} in production")
        self.driver.say("watched")
        self._until(self._is_watched, "evidence of the watch", self._noted, every_s=LOOK_S)
        self._wait_for_phase("watched")
        self._next_look = 0.0
        self._wait_judged()
        if self._newest_watch()["ended"]:
            self._until(lambda: self._serves(good), f"version {good} in production")

    def _force(self, version: str, reason: str) -> None:
        """Promote a version past the gate, with a key of a person's."""
        made = self.api.post("/v1/keys", {"name": PERSON, "scopes": ["read", "promote"]})
        done: list[subprocess.CompletedProcess[str]] = []
        arguments = ("promote", MODEL, version, "--force", "--reason", reason)
        thread = threading.Thread(
            target=lambda: done.append(self._command(*arguments, key=made["key"])), daemon=True
        )
        thread.start()
        self._until(lambda: not thread.is_alive(), "forced promotion")
        if not done or done[0].returncode:
            said = done[0].stderr.strip() if done else "nothing"
            raise ServerError(f"outrider promote --force failed; it said: {said}")

    def _is_watched(self) -> bool:
        """True once the watch has ended, or has seen all that it was to see."""
        newest = self._newest_watch()
        self.state.note = newest["sentence"]
        return newest["ended"] is not None or newest["records"] >= FRAMES * TRACKS["watched"]

    def _newest_watch(self) -> dict[str, Any]:
        (newest,) = self.api.get(f"/v1/models/{MODEL}/watch", limit=1)["watches"]
        return dict(newest)

    def _serves(self, version: str) -> bool:
        return bool(self._production.get("/healthz")["version"] == version)

    def _command(self, *arguments: str, key: str | None = None) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "outrider", *arguments]
        return subprocess.run(
            command,
            cwd=self.plan.folder,
            env=self.children.environment | ({} if key is None else {"OUTRIDER_KEY": key}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def _production(self) -> Api:
        return Api(f"http://127.0.0.1:{self._service_port}", None)
