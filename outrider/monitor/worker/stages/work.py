import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from outrider.assertions import Batch
from outrider.monitor.engine.asks import AskAnswer

T = TypeVar("T")
Work = Generator[Sequence[Batch], Sequence[AskAnswer], T]
"""Yields batches that the judged version is to answer, and continues with its answers."""


def at_once(work: Work[T]) -> T:
    try:
        next(work)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("questions to a model, where nobody answers them")


@dataclass(slots=True)
class Timings:
    stages: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def stage(self, name: str) -> None:
        now = time.perf_counter()
        self.stages[name] = self.stages.get(name, 0.0) + now - self._last
        self._last = now
