"""Processes of jobs: started, held to their limits, and ended."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider.dataops.confinement import without_secrets
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow, Lane
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.job_states import ENDED
from outrider.errors import NotFound
from outrider.monitor.engine.trunk_groups import opening_uploads
from outrider.monitor.process.child import CONTROL_FD
from outrider.monitor.process.memory import own_bytes, usable_bytes
from outrider.monitor.settings.sources import opened
from outrider.user_code import traced_line

from .context import JobContext
from .job_process import AGAIN

log = logging.getLogger(__name__)
TAIL_LINES = 20
HELD_LINES = 500
"""Last lines kept: a fault handler's follow those of the process."""
ABORTED = "Fatal Python error: "
TAIL_LETTERS = 500
ABORT_S = 5.0
"""Time between the signal that asks a process to end and the one that ends it."""
CLOSE_S = 6.0
"""Time for all processes to put their jobs back when the trainer ends."""
SPARE_S = 60.0
"""Time after a job in which a process with torch and Great Expectations waits for the next."""
MEMORY_S = 0.5
MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class StartedProcess:
    process: subprocess.Popen[bytes]
    report: int
    reader: threading.Thread
    tail: deque[str]
    scratch: tempfile.TemporaryDirectory[str] | None = None

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.kill()  # where it leads no group yet
        self.process.wait()
        self.reader.join()
        os.close(self.report)
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.leave()

    def leave(self) -> None:
        if self.scratch is not None:
            self.scratch.cleanup()


@dataclass(slots=True)
class JobProcess:
    job: JobRow
    started: StartedProcess
    deadline: float
    most_bytes: int
    memory_option: str
    ending: str | None = None
    """Reason of a job held to a limit; empty for one closed by a person."""
    kill_at: float | None = None
    measure_at: float = 0.0


@dataclass(slots=True)
class JobProcesses:
    """One process for each claimed job, ``most`` by lane."""

    context: JobContext
    config: Path
    most: Mapping[Lane, int]
    spare_s: float = SPARE_S
    _running: dict[str, JobProcess] = field(default_factory=dict)
    _spare: StartedProcess | None = None
    _spare_until: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not self._running

    def look(self) -> None:
        for each in list(self._running.values()):
            if each.started.process.poll() is None:
                self._hold(each)
            else:
                del self._running[each.job.id]
                self._ended(each)
                self._spare_until = time.monotonic() + self.spare_s
        self._keep_spare()
        while (job := self._claimed()) is not None:
            self._start(job)

    def close(self) -> None:
        self._drop_spare()
        for each in self._running.values():
            each.started.signal(signal.SIGTERM)
        until = time.monotonic() + CLOSE_S
        for each in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.started.process.wait(timeout=max(0.0, until - time.monotonic()))
            each.started.kill()
            with write(self.context.engine) as connection:
                jobs.requeue(connection, each.job.id)
        self._running.clear()

    # ---- inside ----------------------------------------------------------------------------------------

    def _claimed(self) -> JobRow | None:
        context, running = self.context, [each.job for each in self._running.values()]
        with context.engine.connect() as connection:
            if jobs.due(connection, running=running, most=self.most) is None:
                return None  # without taking the write lock: this is asked often
        with write(context.engine) as connection:
            return jobs.claim(
                connection, now_us=now_us(), targets=context.targets, running=running, most=self.most
            )

    def _start(self, job: JobRow) -> None:
        log.info("%s: %s of %s, attempt %d", job.id, job.kind, job.model, job.attempts)
        own = self.context.settings.models.get(job.model)
        retrain = None if own is None else own.retrain
        most = None if retrain is None else retrain.memory_mb
        kept = self._kept_secrets(job)
        if kept is None:
            started, self._spare = self._spare or self._started(), None
        else:
            started = self._started(kept)
        self._running[job.id] = JobProcess(
            job,
            started,
            deadline=time.monotonic() + (retrain.deadline_s if retrain is not None else float("inf")),
            most_bytes=usable_bytes(MEMORY_SHARE) if most is None else most * 1_000_000,
            memory_option=f"{MEMORY_SHARE:.0%} of the machine's memory" if most is None else "",
        )
        assert started.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), started.process.stdin as order:  # it has ended: seen next
            order.write(f"{job.id}\n".encode())

    def _keep_spare(self) -> None:
        """Keep a process ready for a while after a job: others often follow."""
        if self._spare is not None and self._spare.process.poll() is not None:
            self._drop_spare()
        if time.monotonic() >= self._spare_until:
            self._drop_spare()
        elif self._spare is None and not self._running:
            self._spare = self._started()

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare.kill()
            self._spare = None

    def _kept_secrets(self, job: JobRow) -> frozenset[str] | None:
        """Secret variables of a job that trains from an upload's files, with the endpoint keys
        that its gate needs; None for all."""
        settings = self.context.settings
        if job.lane != "training" or job.model not in settings.models:
            return None
        with self.context.engine.connect() as connection:
            opening = {f"{model}@{version}" for model, version in opening_uploads(connection)}
            found = [one for one in models.versions_in_service(connection) if one.model == job.model]
            start = next((one.id for one in found if one.status == "champion"), None)
            trainer = settings.models[job.model].retrain.trainer
            if "repeat" in job.params:
                with contextlib.suppress(NotFound, KeyError):
                    run = jobs.get(connection, str(job.params["repeat"])).result["run"]
                    start, trainer = run["champion"], run["settings"]["trainer"]
        if start not in opening or trainer != "here":  # the owner's code may need any of them
            return None
        sources = [Source.from_json(one.source) for one in found if one.source]
        asked_at = [opened(settings, job.model, one) for one in sources if one.kind == "endpoint"]
        return frozenset(one.key_env for one in asked_at if one.key_env)

    def _started(self, kept: frozenset[str] | None = None) -> StartedProcess:
        read, report = os.pipe()
        inherited = [int(os.environ[CONTROL_FD])] if CONTROL_FD in os.environ else []
        command = [sys.executable, "-X", "faulthandler", "-m", "outrider.monitor.trainer.job_process"]
        command += ["--config", str(self.config.absolute()), "--parent", str(os.getpid())]
        command += ["--report-fd", str(report)]
        scratch = None
        if kept is not None:
            scratch = tempfile.TemporaryDirectory(prefix="outrider-job-", ignore_cleanup_errors=True)
        try:
            process = subprocess.Popen(
                command,
                pass_fds=[report, *inherited],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=None if kept is None else without_secrets(os.environ, kept=kept),
                cwd=None if scratch is None else scratch.name,
            )
        except OSError:
            os.close(read)
            raise
        finally:
            os.close(report)
        tail: deque[str] = deque(maxlen=HELD_LINES)
        reader = threading.Thread(target=_follow, args=(process, tail), name="log of a job", daemon=True)
        reader.start()
        return StartedProcess(process, read, reader, tail, scratch)

    def _hold(self, each: JobProcess) -> None:
        """Ask a process beyond its limits, or with a closed job, to end; then end it."""
        now = time.monotonic()
        if each.kill_at is not None:
            if now >= each.kill_at:
                each.started.signal(signal.SIGKILL)
            return
        if now >= each.deadline:
            self._abort(each, "it took longer than retrain.deadline_s allows")
        elif now >= each.measure_at:
            each.measure_at = now + MEMORY_S
            used = own_bytes(each.started.process.pid)
            if used > each.most_bytes:
                allowed = each.memory_option or "retrain.memory_mb"
                limit = f"{each.most_bytes / 1e6:,.0f} MB ({allowed})"
                self._abort(each, f"it used {used / 1e6:,.0f} MB of memory, more than {limit}")
            elif self._is_closed(each.job.id):
                each.ending, each.kill_at = "", now + ABORT_S
                each.started.signal(signal.SIGTERM)

    def _is_closed(self, job: str) -> bool:
        with self.context.engine.connect() as connection:
            return jobs.get(connection, job).status in ENDED

    def _abort(self, each: JobProcess, reason: str) -> None:
        each.ending, each.kill_at = reason, time.monotonic() + ABORT_S
        each.started.process.send_signal(signal.SIGABRT)  # the fault handler writes where it stands

    def _ended(self, each: JobProcess) -> None:
        """Close the job of an ended process where it failed."""
        code, job, started = each.started.process.returncode, each.job.id, each.started
        started.signal(signal.SIGKILL)  # what it started
        started.reader.join(timeout=2.0)
        started.leave()
        with os.fdopen(started.report, encoding="utf-8") as report:
            told = report.read()
        lines, fault = _parted(list(started.tail))
        reason = each.ending
        if reason:
            reason += traced_line("\n".join(fault), [self.context.settings.base])
        elif reason is None and told.endswith("}"):  # whole: it was not killed while it told
            reason = str(json.loads(told)["failed"])
        elif reason is None and code > 0 and code != AGAIN:
            reason = f"its process ended with exit code {code}"
        context = self.context
        if reason:
            with write(context.engine) as connection:
                jobs.fail(connection, job, reason, targets=context.targets, now_us=now_us(), log=lines)
        elif code < 0:
            log.warning("the process of %s ended by signal %d", job, -code)
            with write(context.engine) as connection:
                jobs.keep_log(connection, job, lines)


def _parted(lines: list[str]) -> tuple[list[str], list[str]]:
    """Last lines of the process, and those of its fault handler."""
    end = next((at for at, line in enumerate(lines) if line.startswith(ABORTED)), len(lines))
    return lines[:end][-TAIL_LINES:], lines[end:]


def _follow(process: subprocess.Popen[bytes], tail: deque[str]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            tail.append(line.decode(errors="replace").rstrip()[:TAIL_LETTERS])
