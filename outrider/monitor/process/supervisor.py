"""Supervisor of processes: starts, restarts, stops each in order.

Standard library only: it must not fail with the work. Children inherit a pipe that ends with this process,
and end with it.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outrider.dataops.access.private_files import keep_files_private, make_private
from outrider.dataops.state.migrations import SQLITE, is_current
from outrider.monitor.settings.reload import Changed, Reload

from .bell import HEAR_FD, RING_FD
from .child import SUPERVISOR
from .folder_lock import take_folder

log = logging.getLogger("outrider.supervisor")

ROLES = ("intake", "worker", "trainer")
"""Children in order of start; the worker starts the assertion host itself, because it kills it."""

RELOADED: dict[Changed, tuple[str, ...]] = {
    "nothing": (),
    "code": ("worker", "trainer"),
    "configuration": ROLES,
}
"""Children to restart; intake runs no user code."""

ERASURES = "erasures"
BUSY_S, REST_S = 0.05, 0.2
"""Polling intervals: while something starts, ends or is checked, and otherwise."""
BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0)
STABLE_S = 30.0
DRAIN_S = 9.0
"""Time to finish after SIGTERM; the rest is killed, so that all ends within ten seconds."""
INTAKE_DRAIN_S = 5.0
"""Part of it in which intake drains while the others still work."""


@dataclass(slots=True)
class RoleProcess:
    role: str
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    due: float = 0.0
    killed_at: float | None = None
    """Deadline of a process told to restart."""

    @property
    def is_settled(self) -> bool:
        return self.process is not None and self.killed_at is None


@dataclass(slots=True)
class Supervisor:
    """Runs the service of one data folder until stopped.

    ``check`` exits with 0 for a usable configuration; ``refuse`` says why one cannot be adopted while
    running.
    """

    config: Path
    folder: Path
    host: str
    port: int
    check: Sequence[str] = ()
    refuse: Callable[[Path], str | None] = lambda _: None
    url: str = ""
    _children: list[RoleProcess] = field(default_factory=list)
    _later: list[str] = field(default_factory=list)
    _environment: Mapping[str, str] = field(default_factory=dict)
    _lock: int = -1
    _left: set[str] = field(default_factory=set)
    """Pending erasures that failed, and wait for another one or the next start."""

    def run(
        self,
        stop: threading.Event,
        *,
        reload: threading.Event | None = None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Start and keep all processes running until ``stop``, then drain.

        ``reload`` adopts a checked configuration; ``ready`` is called with the URL once intake
        answers. AlreadyRunning or OSError where folder or port is taken.
        """
        keep_files_private()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = take_folder(self.folder)
        make_private(self.folder)
        control_read, control_write = os.pipe()
        receive, send = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell_read, bell_write = os.pipe()
        os.set_blocking(bell_write, False)
        listener = self._listen()
        inherited = {
            "OUTRIDER_CONTROL_FD": control_read,
            "OUTRIDER_METRICS_FD": send.fileno(),
            "OUTRIDER_METRICS_RX_FD": receive.fileno(),
            "OUTRIDER_LISTEN_FD": listener.fileno(),
            RING_FD: bell_write,
            HEAR_FD: bell_read,
        }
        reload = reload or threading.Event()
        change = Reload(self.config, self.folder, check=self.check, refuse=self.refuse)
        try:
            self._environment = change.accept_first()
            self._migrate()
            self._write_address()
            self._children = [RoleProcess(role) for role in ROLES]
            announced = ready is None
            while not stop.is_set():
                if reload.is_set() and not change.is_checking:
                    reload.clear()
                    change.begin()
                self._take_up(RELOADED[change.finish()])
                if not self._pending_erasures() <= self._left:
                    self._erase(inherited, stop)
                    continue
                self._tend(inherited)
                if not announced and ready is not None and _answers(self.host, self.port):
                    ready(self.url)
                    announced = True
                is_settled = announced and all(child.is_settled for child in self._children)
                stop.wait(REST_S if is_settled and not change.is_checking and not self._later else BUSY_S)
        finally:
            change.close()
            self._drain()
            os.close(control_write)
            for end in (receive, send, listener):
                end.close()
            for number in (control_read, bell_read, bell_write):
                os.close(number)
            (self.folder / "run" / "server.json").unlink(missing_ok=True)
            os.close(self._lock)

    def _listen(self) -> socket.socket:
        """Bound here, so that connections wait while intake restarts."""
        listener = socket.create_server((self.host, self.port), backlog=1024)
        self.port = listener.getsockname()[1]
        shown = "127.0.0.1" if self.host in ("0.0.0.0", "") else self.host
        self.url = f"http://{shown}:{self.port}"
        return listener

    def _write_address(self) -> None:
        path = self.folder / "run" / "server.json"
        part = path.with_suffix(".part")  # who waits for the file must never read half of it
        part.write_text(json.dumps({"url": self.url, "pid": os.getpid()}), encoding="utf-8")
        part.replace(path)

    def _migrate(self) -> None:
        if is_current(f"{SQLITE}{self.folder / 'state.db'}"):
            return
        command = [sys.executable, "-m", "outrider.monitor.migrate", "--config", str(self.config)]
        done = subprocess.run(
            command,
            env=os.environ | self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the database cannot be made:\n{done.stderr.strip()}")

    def _pending_erasures(self) -> set[str]:
        return {path.name for path in (self.folder / ERASURES).glob("*.json")}

    def _erase(self, inherited: dict[str, int], stop: threading.Event) -> None:
        """Stop all children and let one process have the data folder; the children are restarted after it."""
        log.info("an erasure is asked for: all processes stop for it and start again")
        self._drain()
        for child in self._children:
            child.process, child.killed_at, child.failures, child.due = None, None, 0, 0.0
        eraser = self._spawn("erase", inherited)
        while eraser.poll() is None and not stop.wait(BUSY_S):
            pass
        if eraser.poll() is None:
            eraser.kill()  # the next start finishes it
            eraser.wait()
        elif eraser.returncode:
            self._left = self._pending_erasures()
            log.error(
                "an erasure failed (%s); the next one, or the next start, tries again",
                _told(eraser.returncode),
            )

    def _tend(self, inherited: dict[str, int]) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.process is not None:
                code = child.process.poll()
                if code is None:
                    if child.killed_at is not None and now >= child.killed_at:
                        log.warning("%s did not end within %.0f s and is killed", child.role, DRAIN_S)
                        child.process.kill()
                    continue
                if child.killed_at is not None:  # told to: no failure, no pause
                    child.process, child.killed_at, child.failures = None, None, 0
                    child.process, child.started = self._spawn(child.role, inherited), now
                    continue
                child.failures = 1 if now - child.started > STABLE_S else child.failures + 1
                pause = BACKOFF_S[min(child.failures, len(BACKOFF_S)) - 1]
                log.warning("%s ended (%s); starting it again in %.1f s", child.role, _told(code), pause)
                child.process, child.due = None, now + pause
            if now >= child.due:
                child.process, child.started = self._spawn(child.role, inherited), now

    def _take_up(self, roles: Sequence[str]) -> None:
        """Restart these, intake first and alone, because its senders wait."""
        if roles:
            log.info("the configuration is taken up: %s start again", ", ".join(roles))
            self._later = [role for role in roles if role != "intake"]
            self._start_again([role for role in roles if role == "intake"])
        intake = next(child for child in self._children if child.role == "intake")
        if self._later and intake.killed_at is None and _answers(self.host, self.port):
            self._start_again(self._later)
            self._later = []

    def _start_again(self, roles: Sequence[str]) -> None:
        """Let children finish and restart; connections wait for intake meanwhile."""
        for child in self._children:
            if child.role in roles and child.process is not None and child.killed_at is None:
                child.killed_at = time.monotonic() + DRAIN_S
                with contextlib.suppress(ProcessLookupError):
                    child.process.send_signal(signal.SIGTERM)

    def _spawn(self, role: str, inherited: dict[str, int]) -> subprocess.Popen[bytes]:
        names = ["OUTRIDER_CONTROL_FD", "OUTRIDER_METRICS_FD"]
        if role == "intake":
            names += ["OUTRIDER_METRICS_RX_FD", "OUTRIDER_LISTEN_FD", RING_FD]
        if role == "erase":
            names.append("OUTRIDER_LISTEN_FD")
        if role == "worker":
            names.append(HEAR_FD)
        environment = os.environ | self._environment | {name: str(inherited[name]) for name in names}
        environment[SUPERVISOR] = str(os.getpid())
        return subprocess.Popen(
            [sys.executable, "-m", f"outrider.monitor.{role}", "--config", str(self.config)],
            env=environment,
            pass_fds=[inherited[name] for name in names],
            stdin=subprocess.DEVNULL,
        )

    def _drain(self) -> None:
        """Stop intake first, so that nothing new comes; then let the others finish."""
        deadline = time.monotonic() + DRAIN_S
        for child in self._children:
            if child.process is None:
                continue
            child.process.send_signal(signal.SIGTERM)
            if child.role == "intake":
                _wait(child.process, deadline - DRAIN_S + INTAKE_DRAIN_S)
        for child in self._children:
            if child.process is not None and not _wait(child.process, deadline):
                log.warning("%s did not end within %.0f s and is killed", child.role, DRAIN_S)
                child.process.kill()
                child.process.wait()


def _wait(process: subprocess.Popen[bytes], deadline: float) -> bool:
    try:
        process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _told(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host or "127.0.0.1", port), timeout=0.5) as probe:
            probe.settimeout(0.5)
            probe.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b" 200 " in probe.recv(64)
    except OSError:
        return False
