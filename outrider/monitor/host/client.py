"""Assertion host's client in the worker: start, deadline, kill, restart."""

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Findings, Group, Window
from outrider.assertions.windows.state import View
from outrider.errors import OutriderError
from outrider.monitor.metrics.channel import SEND_FD
from outrider.monitor.process import wire
from outrider.monitor.process.batch_frames import BatchWriter, Buffer
from outrider.monitor.process.child import CONTROL_FD
from outrider.monitor.process.starved_time import SAMPLE_S, Patience, StarvedTime

from .findings_frame import unpack
from .progress import TaskProgress
from .task_runner import OUT_OF_MEMORY, TaskResult

log = logging.getLogger("outrider.worker")
START_DEADLINE_S = 60.0
LOAD_DEADLINE_S = 60.0
ALONE_S = 600.0
"""Time after an interrupted request in which tasks are asked one by one."""
MOST_RESULT_BYTES = 134_217_728
"""Largest answer of the host: a larger one would end the worker, which holds it in memory."""
NOTHING: Mapping[str, NDArray[np.int64]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Offered:
    name: str
    revision: str
    level: str
    description: str
    owner: str
    kind: str
    window: Window | Group | None = None
    rate: float = 0.0
    rows_per_s: float | None = None
    tolerance: float = 0.0
    confidence: float = 0.95
    needs: tuple[str, ...] = ()
    definition: str = ""
    """JSON of a live test."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that gave no verdicts: ``raised wrong_shape out_of_memory deadline`` or ``died``."""

    name: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class PerturbedCopies:
    """Perturbed copies of sampled rows: ``batch[i]`` was made from ``rows[i]``."""

    rows: NDArray[np.int64]
    batch: Batch | None


@dataclass(slots=True)
class HostVerdicts:
    found: dict[str, Findings] = field(default_factory=dict)
    """By assertion; rows are those of its view, or of the block."""
    seconds: dict[str, float] = field(default_factory=dict)
    reads: dict[str, Sequence[str]] = field(default_factory=dict)
    """Columns newly seen to be read, by assertion."""
    questions: dict[str, PerturbedCopies] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


class HostClient:
    """Assertion host process with its manifest.

    Deadlines exclude time without a processor; ``progress`` is a file that names the running task for the
    next process, and ``interrupted`` are the tasks during which the previous one ended: each task is then
    asked alone for a while.
    """

    def __init__(
        self,
        config: Path,
        *,
        deadline_s: float,
        load_deadline_s: float = LOAD_DEADLINE_S,
        popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
        progress: Path | None = None,
    ) -> None:
        self.interrupted = None if progress is None else TaskProgress.interrupted(progress)
        self._progress_file = progress
        self._alone_until = 0.0 if self.interrupted is None else time.monotonic() + ALONE_S
        self._config = config
        self._popen = popen
        self._load_deadline_s = load_deadline_s
        self._skipped: dict[str, str] = {}
        self._deadline_s = deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._poll = select.poll()
        self._progress = TaskProgress()
        self._starved: StarvedTime | None = None
        self._task = 0, 0.0
        """Task seen late, and the starved time at its begin."""
        self._write = BatchWriter().buffers
        self.offered: dict[str, list[Offered]] = {}
        self.errors: dict[str, list[str]] = {}
        self._manifest: dict[str, Any] | None = None
        self._is_fresh = False

    def start(self) -> None:
        """Start the process (again) and read its manifest.

        A file that ends or hangs it while loading is left out and named in ``errors``; OutriderError
        where it does not start, or offers something else than registered.
        """
        while (manifest := self._launch()) is None:
            pass
        if self._manifest not in (None, manifest):
            self.stop()
            raise OutriderError("the assertion files have changed; the worker starts again to take them up")
        if self._manifest is None:
            for model, entry in manifest.items():
                for told in entry["errors"]:
                    log.error("model %s: %s", model, told)
        self._manifest = manifest
        self.errors = {model: entry["errors"] for model, entry in manifest.items()}
        self.offered = {model: _offered(entry) for model, entry in manifest.items()}

    def _launch(self) -> dict[str, Any] | None:
        self.stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._progress = TaskProgress(path=self._progress_file)
        command = [sys.executable, "-m", "outrider.monitor.host"]
        command += ["--config", str(self._config), "--fd", str(theirs.fileno())]
        command += ["--progress", str(self._progress.fd)]
        command += ["--parent", str(os.getpid()), "--skip", json.dumps(self._skipped)]
        inherited = [int(os.environ[name]) for name in (CONTROL_FD, SEND_FD) if name in os.environ]
        self._process = self._popen(
            command,
            # Arrow's own allocator reserves a gigabyte of addresses at first use, and the limit counts them.
            env={"ARROW_DEFAULT_MEMORY_POOL": "system"} | os.environ,
            pass_fds=[theirs.fileno(), self._progress.fd, *inherited],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # an assertion that prints without end must not fill a disk
            stderr=subprocess.DEVNULL,
            process_group=0,  # what user code starts is killed with it
        )
        theirs.close()
        self._progress.close_file()
        self._sock = ours
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self._starved = StarvedTime(self._process.pid, time.monotonic)
        limit_s, file = START_DEADLINE_S, None
        try:
            while True:
                ours.settimeout(limit_s)
                Patience(self._process.pid, limit_s).wait(ours)
                header = wire.receive(ours)[0]
                if "loading" not in header:
                    return dict(header["manifest"])
                file, limit_s = str(header["loading"]), self._load_deadline_s
        except TimeoutError:
            reason = f"loading takes longer than {limit_s:g} s"
        except (EOFError, OSError):
            reason = f"loading ended the process: {self._exit_text()}"
        self.stop()
        if file is None:
            raise OutriderError(f"the assertion host did not start: {reason}")
        log.error(
            "%s is left out: %s; run `outrider check-config` to load it in the foreground", file, reason
        )
        self._skipped[file] = f"left out: {reason}"
        return None

    def stop(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def check(
        self,
        batch: Batch,
        *,
        assertions: Sequence[str],
        live: Mapping[str, NDArray[np.int64]] = NOTHING,
        seq: NDArray[np.int64] | None = None,
        views: Mapping[str, Sequence[View]] | None = None,
    ) -> HostVerdicts:
        """Verdicts of the named assertions and questions of live tests on a block.

        A failing task loses only its own verdicts. ``live`` are sampled rows of each live test,
        ``seq`` the block of each record, shape (rows,).
        """
        verdicts = HostVerdicts()
        request, buffers = _pack(batch, views or {}, self._write)
        if seq is not None:
            request["seq"] = len(buffers)
            buffers.append(seq.tobytes())
        request["sampled"] = {name: len(buffers) + at for at, name in enumerate(live)}
        buffers += [rows.astype(np.int64).tobytes() for rows in live.values()]

        def take(name: str, parts: list[memoryview], seconds: float) -> None:
            verdicts.seconds[name] = seconds
            if name in live_left:
                rows = np.frombuffer(parts[0], dtype=np.int64)
                asked = Batch.from_ipc(bytes(parts[1])) if len(rows) else None
                verdicts.questions[name] = PerturbedCopies(rows, asked)
            else:
                verdicts.found[name], reads = unpack(parts)
                if reads:
                    verdicts.reads[name] = reads

        live_left = set(live)
        tasks = [*assertions, *live]

        def resume(left: list[str]) -> tuple[dict[str, Any], list[Buffer]]:
            request["assertions"] = [name for name in left if name not in live_left]
            request["live"] = [name for name in left if name in live_left]
            return request, buffers

        verdicts.failures = self._run(batch.model, tasks, resume, take)
        return verdicts

    def check_answers(
        self, model: str, answered: Mapping[str, tuple[Batch, Batch]]
    ) -> tuple[dict[str, tuple[NDArray[np.bool_], NDArray[np.float64]]], list[Failure]]:
        """Failed questions per live test, from (original, perturbed) with outputs."""
        verdicts: dict[str, tuple[NDArray[np.bool_], NDArray[np.float64]]] = {}

        def take(name: str, parts: list[memoryview], _seconds: float) -> None:
            verdicts[name] = (
                np.frombuffer(parts[0], dtype=np.bool_),
                np.frombuffer(parts[1], dtype=np.float64),
            )

        def resume(left: list[str]) -> tuple[dict[str, Any], list[Buffer]]:
            buffers = [part for name in left for batch in answered[name] for part in self._write(batch)]
            return {"op": "answers", "model": model, "tests": {n: 4 * i for i, n in enumerate(left)}}, buffers

        failures = self._run(model, list(answered), resume, take)
        return verdicts, failures

    def _run(
        self,
        model: str,
        tasks: list[str],
        resume: Callable[[list[str]], tuple[dict[str, Any], list[Buffer]]],
        take: Callable[[str, list[memoryview], float], None],
    ) -> list[Failure]:
        """Ask until every task gave a result or failed.

        What one task leaves behind may end another: a task that ran out of memory or died after
        others is asked alone in a fresh process before it is blamed.
        """
        failures: list[Failure] = []
        left = list(tasks)
        suspect: str | None = None
        while left:
            if self._sock is None:
                self.start()
                self._is_fresh = True
            is_alone = time.monotonic() < self._alone_until
            asked = [suspect] if suspect is not None else left[:1] if is_alone else left.copy()
            suspect = None
            try:
                for name, told, parts in self._results(model, asked, *resume(asked)):
                    if told.failed == OUT_OF_MEMORY:
                        self.stop()  # it may still hold what it took, and starve the tasks behind it
                        if not self._is_fresh:
                            suspect = name
                            break
                    self._is_fresh = False
                    left.remove(name)
                    if not told.failed:
                        take(name, parts, told.seconds)
                        continue
                    failures.append(Failure(name, told.failed, told.detail))
                    if self._sock is None:
                        break
            except (EOFError, OSError) as error:
                failure = self._failure(error, asked, left)
                if failure.reason == "died" and not (self._is_fresh and failure.name == asked[0]):
                    suspect = failure.name
                else:
                    failures.append(failure)
                    left.remove(failure.name)
        self._progress.finish()
        return failures

    def _results(
        self, model: str, asked: list[str], request: dict[str, Any], buffers: list[Buffer]
    ) -> Iterator[tuple[str, TaskResult, list[memoryview]]]:
        sock, done = self._sock, 0
        assert sock is not None
        sock.settimeout(self._deadline_s)
        self._progress.ask(model, asked)
        wire.send(sock, request, buffers)
        while done < len(asked):
            left_s = self._deadline_s
            while not self._poll.poll(min(left_s, SAMPLE_S) * 1e3):
                left_s = self._deadline_s - self._elapsed_s()
                if left_s <= 0:
                    raise TimeoutError
            header, parts = wire.receive(sock, most_bytes=MOST_RESULT_BYTES)
            for told in map(TaskResult._make, header["tasks"]):
                yield asked[done], told, parts[: told.buffers]
                del parts[: told.buffers]
                done += 1

    def _elapsed_s(self) -> float:
        assert self._starved is not None
        began, elapsed_s, before = self._progress.began_ns, self._progress.elapsed_s, self._starved.seconds
        self._starved.look(at_once=True)
        if began != self._task[0]:  # of what was starved before it is known when, it can have had so much
            self._task = began, self._starved.seconds - min(self._starved.seconds - before, elapsed_s)
        return elapsed_s - (self._starved.seconds - self._task[1])

    def _failure(self, error: Exception, asked: list[str], left: list[str]) -> Failure:
        reason, detail = "deadline", f"no verdict within {self._deadline_s:g} s"
        if not isinstance(error, TimeoutError):
            reason, detail = "died", f"the host process ended: {self._exit_text()}"
        self.stop()
        settled = sum(name not in left for name in asked)
        running = max(settled, self._progress.task)
        return Failure(asked[min(running, len(asked) - 1)], reason, detail)

    def _exit_text(self) -> str:
        if self._process is None:
            return "unknown"
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def _offered(entry: dict[str, Any]) -> list[Offered]:
    judges = [
        Offered(
            **judge
            | {"kind": "assertion", "window": _window(judge["window"]), "needs": tuple(judge["needs"])}
        )
        for judge in entry["assertions"]
    ]
    return judges + [Offered(**test | {"kind": "live_test"}) for test in entry["live"]]


def _window(told: dict[str, Any] | None) -> Window | Group | None:
    if told is None:
        return None
    settings = {name: value for name, value in told.items() if name != "kind"}
    settings["columns"] = tuple(settings["columns"])
    return Group(**settings) if told["kind"] == "group" else Window(**settings)


def _pack(
    batch: Batch, views: Mapping[str, Sequence[View]], write: Callable[[Batch], list[Buffer]]
) -> tuple[dict[str, Any], list[Buffer]]:
    buffers = write(batch)
    answers = {}
    for slot in batch.answer_slots:
        answer = batch.answers(slot)
        assert answer is not None
        if answer.to_arrow() is batch.to_arrow():  # the replica's, which are judged
            answers[slot] = 0
            continue
        answers[slot] = len(buffers)
        buffers += write(answer)
    packed: dict[int, int] = {}
    places = {}
    for name, given in views.items():
        for view in given:
            if id(view) not in packed:  # assertions with equal windows share one view
                packed[id(view)] = len(buffers)
                marks = view.batch.is_new.tobytes(), view.batch.is_last.tobytes()
                buffers += [*write(view.batch), *marks]
        places[name] = [packed[id(view)] for view in given]
    return {"op": "judge", "model": batch.model, "answers": answers, "views": places}, buffers
