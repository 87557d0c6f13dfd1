"""Life of a started engine: its socket, memory and share of a processor."""

import contextlib
import itertools
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from outrider.monitor.process import wire
from outrider.monitor.process.batch_frames import BatchWriter, Buffer
from outrider.monitor.process.starved_time import StarvedTime

from .frames import AnswerReader, AnswerWriter, Header
from .launch import Launch
from .memory_bound import EngineMemory
from .work_board import WorkBoard

LEVELS = ("bytes", "bytes_alone")
"""What does not grow."""


class StartedEngine:
    """Life of an engine process, with the threads that speak with it."""

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
        """Queue a frame."""
        self._outbox.put((header, buffers or []))

    def tell(self, stats: dict[str, float]) -> None:
        """Take the totals that the engine sent."""
        self._told = stats

    def growth(self) -> Mapping[str, float]:
        """Growth of the totals since the last call."""
        grown = {n: v - self._counted.get(n, 0.0) for n, v in self._told.items() if n not in LEVELS}
        self._counted = dict(self._told)
        return grown

    def levels(self) -> Mapping[str, float]:
        """Totals that do not grow."""
        return {name: self._told[name] for name in LEVELS if name in self._told}

    def kill(self) -> None:
        """End the process and what it started."""
        self._outbox.put(None)
        self.child.kill()
        self.board.close()
        if self.memory is not None:
            self.memory.close()
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
