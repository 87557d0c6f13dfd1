import heapq
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from outrider.assertions import Batch, Predictor

from .asks import AGAIN, Ask, AskAnswer, Name, Outputs, not_finite
from .poison import answered_around, checked, joined


class PredictorEngine:
    """Engine of Predictors, ask by ask, most urgent first.

    Each version of an ask in a step of its own.

    Examples
    --------
    >>> import numpy as np
    >>> engine = PredictorEngine()
    >>> engine.add(("m", "1"), lambda batch: {"value": batch.column("inputs.x") * 2})
    >>> engine.submit(Ask(7, "m", ("1",), Batch.from_columns({"inputs.x": np.arange(3.0)}, model="m")))
    >>> [(answer.number, answer.outputs["value"].tolist()) for answer in engine.step()]
    [(7, [0.0, 2.0, 4.0])]
    """

    def __init__(self, on_work: Callable[[Sequence[Name]], None] = lambda _names: None) -> None:
        self._on_work = on_work
        self._models: dict[Name, Predictor] = {}
        self._queue: list[tuple[int, int, Ask, deque[str]]] = []
        self._came = 0
        self._stats = {"batches": 0.0, "rows": 0.0, "busy_s": 0.0}

    @property
    def names(self) -> list[Name]:
        return sorted(self._models)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def add(self, name: Name, predict: Predictor) -> None:
        self._models[name] = predict

    def unload(self, name: Name) -> None:
        self._models.pop(name, None)

    def submit(self, ask: Ask) -> None:
        self._came += 1
        versions = deque(ask.answers)
        heapq.heappush(self._queue, (int(ask.priority), self._came, ask, versions))

    def step(self) -> list[AskAnswer]:
        if not self._queue:
            return []
        _, _, ask, versions = self._queue[0]
        version = versions.popleft()
        if not versions:
            heapq.heappop(self._queue)
        began = time.perf_counter()
        answer = self._answer(ask, version)
        seconds = time.perf_counter() - began
        answer = replace(answer, seconds=seconds)
        self._stats["busy_s"] += seconds
        self._stats["batches"] += 1
        self._stats["rows"] += len(ask.again) if version.startswith(AGAIN) else ask.batch.rows
        return [answer]

    def stats(self) -> Mapping[str, float]:
        return self._stats

    def _answer(self, ask: Ask, version: str) -> AskAnswer:
        asked, is_again = version.removeprefix(AGAIN), version.startswith(AGAIN)
        predict = self._models.get((ask.model, asked))
        if predict is None:
            return AskAnswer(ask.number, version, None, failure=f"{ask.model}@{asked} is not loaded")
        batch = ask.batch.take(list(ask.again)) if is_again else ask.batch
        parts = 2 if is_again and batch.rows == ask.batch.rows else 1

        def answer(start: int, stop: int) -> Outputs:
            self._on_work([(ask.model, asked)])
            return _in_parts(predict, batch.slice(start, stop - start), parts)

        outputs, poison, failure = answered_around(answer, batch.rows)
        if outputs is not None and (name := not_finite(outputs)) and (given := _finite_records(batch)):
            failure = f"outputs.{name}: no finite number for {given} records of finite inputs"
        if failure:
            return AskAnswer(ask.number, version, None, failure=failure)
        return AskAnswer(ask.number, version, outputs, tuple(poison))


def _finite_records(batch: Batch) -> int:
    """Records whose inputs are present, and finite where they are numbers."""
    known = np.ones(batch.rows, dtype=np.bool_)
    for name in batch.names:
        if name.startswith("inputs."):
            known &= ~batch.is_null(name)
            column = batch.arrow(name)
            if pa.types.is_floating(column.type):
                known &= np.isfinite(column.fill_null(0).to_numpy(zero_copy_only=False))
    return int(known.sum())


def _in_parts(predict: Predictor, batch: Batch, parts: int) -> Outputs:
    """Answers to a batch by several calls: another batch shape than one call."""
    if parts == 1 or batch.rows < parts:
        return predict(batch)
    middle = (batch.rows + 1) // 2
    ranges = [(0, middle), (middle, batch.rows)]
    answers = [(a, b, checked(predict(batch.slice(a, b - a)), b - a)) for a, b in ranges]
    return joined(answers, batch.rows)
