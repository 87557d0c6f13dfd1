"""Start of an engine, and its life: process, socket, memory and end."""

import contextlib
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from outrider.dataops.confinement import clean_command
from outrider.monitor.process import wire
from outrider.monitor.process.batch_frames import BatchWriter, Buffer
from outrider.monitor.process.child import CONTROL_FD
from outrider.monitor.process.starved_time import StarvedTime

from .frames import AnswerReader, AnswerWriter, Header
from .memory_bound import EngineMemory
from .work_board import WorkBoard

KILLED_S = 2.0
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "268435456"}
"""Passes need the same memory again: returning it each time cost a CNN 40 % of its time in page faults."""


class EngineChild(Protocol):
    """Started engine, serving its end of a socket pair until closed."""

    @property
    def pid(self) -> int | None: ...

    def kill(self) -> None: ...

    def exit_text(self) -> str: ...

    def is_shot(self) -> bool:
        """True for an engine ended by a SIGKILL from outside."""


class ChildProcess:
    def __init__(self, launch: "Launch", sock: socket.socket) -> None:
        assert launch.board is not None
        module = "outrider.monitor.engine"
        command = clean_command(module) if launch.environment is not None else [sys.executable, "-m", module]
        command += ["--fd", str(sock.fileno()), "--folder", str(launch.folder)]
        command += ["--board", str(launch.board.fd)]
        command += ["--options", launch.options, "--parent", str(os.getpid())]
        if launch.batch_rows is not None:
            command += ["--batch-rows", str(launch.batch_rows)]
        inherited = [int(os.environ[CONTROL_FD])] if CONTROL_FD in os.environ else []
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        environment, folder = dict(os.environ), None
        if launch.environment is not None:
            self._scratch = tempfile.TemporaryDirectory(prefix="outrider-engine-", ignore_cleanup_errors=True)
            environment, folder = dict(launch.environment), self._scratch.name
            environment |= {CONTROL_FD: os.environ[CONTROL_FD]} if inherited else {}
        if launch.readable is not None and folder is not None:
            environment |= {"HOME": folder, "TMPDIR": folder}
            command += ["--confine", *map(str, launch.readable)]
        self._popen = launch.popen(
            command,
            env=MALLOC | environment | {"OMP_NUM_THREADS": str(launch.threads)},
            cwd=folder,
            pass_fds=[sock.fileno(), launch.board.fd, *inherited],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a model that prints without end must not fill a disk
            process_group=0,  # what user code starts is killed with it
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(KILLED_S)  # a call of a driver may hold it for longer
        if self._scratch is not None:
            self._scratch.cleanup()

    def exit_text(self) -> str:
        try:
            code = self._popen.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def is_shot(self) -> bool:
        return self._popen.poll() == -signal.SIGKILL


StartEngine = Callable[["Launch", socket.socket], EngineChild]
"""Starts an engine on its end of a socket pair, which the caller closes afterwards."""


@dataclass(frozen=True, slots=True)
class Launch:
    folder: Path
    options: str = "{}"
    threads: int = 1
    batch_rows: int | None = None
    popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    start: StartEngine = ChildProcess
    environment: Mapping[str, str] | None = None
    """Of a process that may open a stranger's file, with an empty working directory; None to inherit both."""
    readable: tuple[Path, ...] | None = None
    """Files it may open besides the libraries, where the kernel can enforce it; None for any file."""
    board: WorkBoard | None = None


LEVELS = ("bytes", "bytes_alone")


class StartedEngine:
    """Life of an engine process, with the threads of its socket."""

    _names = itertools.count(1)

    def __init__(
        self,
        launch: Launch,
        wake: Callable[[], object],
        clock: Callable[[], float],
        bound: Callable[[], int | None],
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.board = WorkBoard.create()
        self.child = launch.start(replace(launch, board=self.board), theirs)
        theirs.close()
        pid = self.child.pid
        self.starved = None if pid is None else StarvedTime(pid, clock)
        self.memory = None if pid is None else EngineMemory(pid, bound)
        self.began = time.monotonic()
        self.is_up = False
        self.is_gone = False
        self.writer, self.reader, self.batches = AnswerWriter(), AnswerReader(), BatchWriter()
        self.inbox: deque[tuple[Header, list[memoryview]]] = deque()
        self._sock = ours
        self._wake = wake
        self._outbox: queue.SimpleQueue[tuple[Header, list[Buffer]] | None] = queue.SimpleQueue()
        self._told: dict[str, float] = {}
        self._counted: dict[str, float] = {}
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True, name=f"engine {next(self._names)}").start()

    def send(self, header: Header, buffers: list[Buffer] | None = None) -> None:
        self._outbox.put((header, buffers or []))

    def tell(self, stats: dict[str, float]) -> None:
        self._told = stats

    def growth(self) -> Mapping[str, float]:
        grown = {n: v - self._counted.get(n, 0.0) for n, v in self._told.items() if n not in LEVELS}
        self._counted = dict(self._told)
        return grown

    def levels(self) -> Mapping[str, float]:
        return {name: self._told[name] for name in LEVELS if name in self._told}

    def kill(self) -> None:
        self._outbox.put(None)
        self.child.kill()
        self.board.close()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _read(self) -> None:
        try:
            while True:
                self.inbox.append(wire.receive(self._sock))
                self._wake()
        except (EOFError, OSError):
            self.is_gone = True
            self._wake()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := self._outbox.get()) is not None:
                wire.send(self._sock, *frame)
