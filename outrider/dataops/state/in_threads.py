"""Questions to elsewhere, several at a time."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Said = TypeVar("Said")


def in_threads(threads: int, work: Sequence[Callable[[], Said]]) -> list[Said]:
    """Answers in order of calls, in daemon threads that never delay exit."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(work)):
        waiting.put(number)
    found: dict[int, Said] = {}

    def run() -> None:
        while True:
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            found[number] = work[number]()

    runners = [threading.Thread(target=run, daemon=True) for _ in range(min(threads, len(work)))]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    return [found[number] for number in range(len(work))]
