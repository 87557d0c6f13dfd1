import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Self

import numpy as np

from outrider.assertions import Batch
from outrider.errors import ConfigError, ServerError
from outrider.monitor.process.memory import own_bytes

from .asks import SILENT, Ask, AskAnswer, Name, Outputs
from .client import EngineClient, Making
from .events import Ended, VersionLoad
from .launch import Launch

ROWS, AHEAD = 256, 8
"""Records of an ask, and asks under way."""
WAIT_S = 1.0


class SingleVersion:
    """Predictor of one version in an engine process, loaded at once and ended with the predictor.

    ``deadline_s`` is for one step of work, ``bound`` in bytes.
    """

    def __init__(
        self,
        name: Name,
        making: Making,
        launch: Launch,
        *,
        deadline_s: float,
        bound: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._name = name
        self._woken = threading.Event()
        self._numbers = itertools.count(1)
        self._answers: dict[int, AskAnswer] = {}
        self._load: VersionLoad | None = None
        self._ended = ""
        self.seconds = 0.0
        self._client = EngineClient(
            "@".join(name), launch, deadline_s=lambda _: deadline_s, wake=self._woken.set, bound=bound
        )
        self.stop = weakref.finalize(self, self._client.stop)
        self._client.load(name, making)
        self._take_events()

    def loaded(self) -> Self:
        """Wait for the version; ConfigError where it cannot be loaded."""
        while self._load is None:
            self._poll()
        if self._load.failure:
            self.stop()
            raise ConfigError(self._load.failure)
        return self

    def __call__(self, batch: Batch, /) -> Outputs:
        """Answer every record; RuntimeError where it fails or ended its process twice, ServerError
        where a remote model gives no answer."""
        if self._ended:
            raise RuntimeError(f"{'@'.join(self._name)} is asked no more: {self._ended}")
        parts, asked = [], deque[int]()
        for start in range(0, max(batch.rows, 1), ROWS):
            asked.append(self.send(batch.slice(start, min(ROWS, batch.rows - start))))
            if len(asked) >= AHEAD:
                parts.append(self._outputs(asked.popleft()))
        parts += [self._outputs(number) for number in asked]
        if any(part.keys() != parts[0].keys() for part in parts):
            raise RuntimeError(f"{'@'.join(self._name)} answers with other outputs from block to block")
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def send(self, batch: Batch) -> int:
        number = next(self._numbers)
        self._client.submit(Ask(number, self._name[0], (self._name[1],), batch))
        return number

    def take(self, number: int) -> AskAnswer:
        while number not in self._answers:
            self._poll()
        return self._answers.pop(number)

    def peak_bytes(self) -> int | None:
        if self._load is None:
            return None
        pid = self._client.pid
        return max(self._client.peak_bytes, 0 if pid is None else own_bytes(pid))

    def held_bytes(self) -> int:
        while "bytes" not in self._client.stats and self._client.names:
            self._poll()
        return int(self._client.stats.get("bytes", 0))

    def _outputs(self, number: int) -> Outputs:
        answer = self.take(number)
        failure = answer.poison[0].detail if answer.poison else answer.failure
        if failure or answer.outputs is None:
            kind = ServerError if failure.startswith(SILENT) else RuntimeError
            raise kind(f"{'@'.join(self._name)}: {failure.removeprefix(f'{SILENT}: ')}")
        self.seconds += answer.seconds
        return answer.outputs

    def _poll(self) -> None:
        self._woken.clear()
        if not self._take_events():
            self._woken.wait(WAIT_S)

    def _take_events(self) -> bool:
        found = self._client.poll()
        for event in found:
            if isinstance(event, VersionLoad):
                self._load = event
            elif isinstance(event, Ended) and event.is_alone:
                self._ended = event.reason
            elif isinstance(event, AskAnswer):
                self._answers[event.number] = event
        return bool(found)
