"""Asks under way, with their answers."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.monitor.engine.asks import Ask, AskAnswer, Outputs, Poison, Priority, again_of
from outrider.monitor.engine.events import Ended, VersionLoad
from outrider.monitor.engine.groups import EngineGroups

from .shadow_versions import ShadowVersions


@dataclass(slots=True)
class InferenceRequest:
    number: int
    versions: tuple[str, ...]
    again: tuple[int, ...]
    answers: dict[str, AskAnswer] = field(default_factory=dict)

    def has(self, version: str) -> bool:
        return version in self.answers and (not self.again or again_of(version) in self.answers)

    @property
    def nbytes(self) -> int:
        return sum(
            values.nbytes
            for answer in self.answers.values()
            if answer.outputs is not None
            for values in answer.outputs.values()
        )


class InferenceClient:
    def __init__(self, engines: EngineGroups, versions: Mapping[str, ShadowVersions]) -> None:
        self._engines = engines
        self._versions = versions
        self._numbers = itertools.count(1)
        self._under_way: dict[int, InferenceRequest] = {}

    def group(self, model: str, version: str) -> str:
        """Engine process of a version; versions of one process may share a request."""
        return self._engines.group((model, version))

    def begin(
        self,
        versions: Sequence[str],
        batch: Batch,
        *,
        priority: Priority = Priority.LIVE,
        again: tuple[int, ...] = (),
    ) -> InferenceRequest:
        request = InferenceRequest(next(self._numbers), tuple(versions), again)
        self._under_way[request.number] = request
        self._engines.submit(Ask(request.number, batch.model, request.versions, batch, priority, again))
        return request

    def cancel(self, request: InferenceRequest) -> None:
        self._under_way.pop(request.number, None)

    def poll_events(self) -> None:
        for event in self._engines.events():
            if isinstance(event, AskAnswer):
                self._take_answer(event)
                continue
            model, version = event.name
            if isinstance(event, VersionLoad):
                self._versions[model].loaded(version, event.failure, is_end=event.is_end)
            elif isinstance(event, Ended):
                self._versions[model].ended(version, event.reason, is_alone=event.is_alone)

    def _take_answer(self, answer: AskAnswer) -> None:
        request = self._under_way.get(answer.number)
        if request is None:
            return
        request.answers[answer.version] = answer
        if all(map(request.has, request.versions)):
            del self._under_way[answer.number]


@dataclass(frozen=True, slots=True)
class Predictions:
    outputs: Outputs | None = None
    poison: tuple[Poison, ...] = ()
    """Records that it cannot take; values in their rows are never read."""
    again: Outputs | None = None
    again_rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """``again`` and ``again_rows``: second answers in another batch shape, and their records in order."""
    seconds: float = 0.0
    cut: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """By input, texts that lost tokens, shape (records,), where known."""

    @classmethod
    def of(cls, request: InferenceRequest | None, version: str | None) -> "Predictions":
        if request is None or version is None:
            return NO_PREDICTIONS
        answer = request.answers[version]
        if answer.outputs is None:
            return cls(seconds=answer.seconds)
        again, rows = _second(request, version)
        return cls(answer.outputs, answer.poison, again, rows, answer.seconds, answer.cut)

    def take(self, rows: NDArray[np.intp]) -> "Predictions":
        """Answers to these records, each at most once, in order."""
        if self.outputs is None or not len(rows):
            return NO_PREDICTIONS
        every = len(next(iter(self.outputs.values()), rows))
        if len(rows) == every:
            return self  # all of them
        detail = {poison.row: poison.detail for poison in self.poison}
        poison = [Poison(at, detail[row]) for at, row in enumerate(rows.tolist()) if row in detail]
        outputs = {name: values[rows] for name, values in self.outputs.items()}
        cut = {name: values[rows] for name, values in self.cut.items()}
        seconds = self.seconds * len(rows) / every
        if self.again is None:
            return Predictions(outputs, tuple(poison), seconds=seconds, cut=cut)
        place = np.full(every, -1, dtype=np.intp)
        place[self.again_rows] = np.arange(len(self.again_rows))
        there = np.flatnonzero(place[rows] >= 0)
        again = {name: values[place[rows[there]]] for name, values in self.again.items()}
        return Predictions(outputs, tuple(poison), again, there, seconds, cut)


def _second(request: InferenceRequest, version: str) -> tuple[Outputs | None, NDArray[np.intp]]:
    rows = np.array(request.again, dtype=np.intp)
    answer = request.answers[again_of(version)] if request.again else None
    if answer is None or answer.outputs is None:
        return None, rows[:0]
    well = np.setdiff1d(np.arange(len(rows)), [poison.row for poison in answer.poison])
    if len(well) == len(rows):
        return answer.outputs, rows
    return {name: values[well] for name, values in answer.outputs.items()}, rows[well]


NO_PREDICTIONS = Predictions()
