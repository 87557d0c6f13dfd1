"""Runner of a request's tasks, quick results in one frame."""

import fcntl
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

from outrider.monitor.process import wire

from .progress import TaskProgress
from .shared_state import SharedState

OUT_OF_MEMORY = "out_of_memory"
KEPT_S = 0.001
"""Time after which results are sent, because a later task may end the process."""
Work = Callable[[], list[bytes]]


class TaskResult(NamedTuple):
    seconds: float
    buffers: int
    failed: str = ""
    detail: str = ""


class TaskRunner:
    """Runner of ordered tasks, isolated from each other's process changes.

    Checking after each task would cost more than most tasks: tasks are checked together before their
    results are sent, and after a change they are repeated one at a time.
    """

    def __init__(self, sock: socket.socket, progress: TaskProgress) -> None:
        self._sock = sock
        self._progress = progress
        self._shared = SharedState()
        self._one_at_a_time = False

    def run(self, tasks: Sequence[Work]) -> None:
        told: list[TaskResult] = []
        buffers: list[bytes] = []
        sent = 0
        sent_at = time.perf_counter()
        while sent < len(tasks):
            number = sent + len(told)
            self._progress.begin(number)
            result, parts = _result(tasks[number])
            fcntl.fcntl(self._sock, fcntl.F_GETFD)  # who closed it is to blame, not the tasks behind
            told.append(result)
            buffers += parts
            is_time = number + 1 == len(tasks) or time.perf_counter() - sent_at > KEPT_S
            if not (is_time or self._one_at_a_time or result.failed == OUT_OF_MEMORY):
                continue
            if self._shared.restore() and len(told) > 1:
                self._one_at_a_time = True
            else:
                wire.send(self._sock, {"tasks": told}, buffers)
                sent += len(told)
            told, buffers = [], []
            sent_at = time.perf_counter()


def _result(work: Work) -> tuple[TaskResult, list[bytes]]:
    start = time.perf_counter()
    try:
        buffers = work()
    except MemoryError:
        failed, detail = OUT_OF_MEMORY, "allocated beyond host.memory_bytes"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything; the worker counts it
        is_shape = isinstance(error, ValueError) and "must return" in str(error)
        failed, detail = "wrong_shape" if is_shape else "raised", _last_lines(error)
    else:
        return TaskResult(time.perf_counter() - start, len(buffers)), buffers
    return TaskResult(time.perf_counter() - start, 0, failed, detail), []


def _last_lines(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-3))[-2000:]
