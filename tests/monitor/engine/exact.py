"""Models whose answers are whole numbers, so that they are equal whatever stands beside a record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import EncodedRows, Tensors
from outrider.dataops.model_kinds.source import Source
from outrider.monitor.engine.asks import Ask, AskAnswer, Name
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import Executor, LoadedVersion, Segment

SOURCE = Source("torch", "model.py:build")


class Sums:
    """Answers ``factor`` times the sum of a record's numbers; a number 66 is a poison, 77 gives no number.

    Parameters
    ----------
    is_ragged
        Whether rows have lengths: the zeros behind are padding then.
    fails
        Called with the numbers of every pass.
    """

    module: torch.nn.Module = torch.nn.Identity()
    device = torch.device("cpu")

    def __init__(
        self,
        factor: float = 1.0,
        *,
        is_ragged: bool = False,
        fails: Callable[[torch.Tensor], object] = lambda _x: None,
    ) -> None:
        self.factor = factor
        self.is_ragged = is_ragged
        self.fails = fails
        self.passes: list[tuple[int, ...]] = []

    def encode(self, batch: Batch, /) -> EncodedRows:
        x = np.array(batch.tensor("inputs.x"))
        assert not (x == 55).any(), "fifty-five cannot be encoded"
        tensors = {"x": torch.from_numpy(x)}
        return EncodedRows(tensors, np.count_nonzero(x, axis=1)) if self.is_ragged else EncodedRows(tensors)

    def run(self, tensors: Tensors, /) -> Tensors:
        x = tensors["x"]
        self.passes.append(tuple(x.shape))
        self.fails(x)
        assert not (x == 66).any(), "sixty-six"
        total = self.factor * x.sum(1)
        return {"out": torch.where((x == 77).any(1), torch.nan, total)}

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        return {"value": answers["out"].numpy()}


class Together:
    """Several versions as one executor: all of them for every row, or each row for one of them."""

    device = torch.device("cpu")

    def __init__(self, models: Mapping[Name, Sums], *, is_mixed: bool) -> None:
        self.names = tuple(models)
        self.is_mixed = is_mixed
        self._models = models
        self.segments: list[list[Segment]] = []

    def encode(self, name: Name, batch: Batch, /) -> EncodedRows:
        return self._models[name].encode(batch)

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:
        rows = len(tensors["x"])
        assert [self.names.index(s.name) for s in segments] == sorted(
            self.names.index(s.name) for s in segments
        )
        if self.is_mixed:
            assert [s.start for s in segments] == [0, *(s.stop for s in segments[:-1])]
            assert segments[-1].stop == rows
        self.segments.append(list(segments))
        return [self._models[s.name].run({"x": tensors["x"][s.start : s.stop]}) for s in segments]

    def decode(self, name: Name, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        return self._models[name].decode(answers)


def together(is_mixed: bool) -> Callable[..., list[Executor]]:
    """A plan in which all versions run as one executor."""

    def plan(loaded: Mapping[Name, LoadedVersion], _known: object) -> list[Executor]:
        models = {name: version.model for name, version in loaded.items()}
        return [Together(models, is_mixed=is_mixed)] if models else []  # type: ignore[arg-type]  # all are Sums

    return plan


def engine_with(*models: Any, **settings: Any) -> Engine:
    """An engine with versions ``1``, ``2``, … of model ``m``."""
    engine = Engine(**({"batch_rows": 8} | settings))
    for number, model in enumerate(models, start=1):
        engine.add(LoadedVersion(("m", str(number)), SOURCE, model))
    return engine


def records(values: Any) -> Batch:
    """Records of numbers, shape (rows, numbers)."""
    return Batch.from_columns({"inputs.x": np.asarray(values, dtype=np.float32)}, model="m")


def ask(number: int, values: Any, *versions: str, again: Iterable[int] = (), **settings: Any) -> Ask:
    """An ask about records of numbers."""
    return Ask(number, "m", versions or ("1",), records(values), again=tuple(again), **settings)


def drain(engine: Engine) -> list[AskAnswer]:
    """All answers, in the order in which they came."""
    found: list[AskAnswer] = []
    for _ in range(10_000):
        if not engine.waiting:
            return found
        found += engine.step()
    raise AssertionError("the engine comes to no end")


def values_of(answer: AskAnswer) -> list[float]:
    """What an answer says."""
    assert answer.outputs is not None, answer.failure
    values: list[float] = answer.outputs["value"].tolist()
    return values
