"""Assertions on the device, so that only severities are copied back."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import EncodedRows, Outputs, Tensors
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError
from outrider.user_code import load_callable

from .asks import Name
from .cuda.passes import Counting, Indexed
from .executor import Check, Executor, LoadedVersion, Segment

OPTION = "on_device"


def checks_of(source: Source, folder: Path) -> dict[str, Check]:
    """Functions of a version's ``options.on_device``, by output name; ConfigError where one cannot be
    loaded or names collide."""
    found: dict[str, Check] = {}
    for reference in source.options.get(OPTION, ()):
        name = str(reference).rpartition(":")[2]
        if name in found:
            raise ConfigError(f"{OPTION}: two functions are called {name!r}, and each becomes outputs.{name}")
        found[name] = load_callable(str(reference), folder)
    return found


class Watched:
    """An executor with checks after its versions, in the same pass.

    A check sees its version's rows only, and its result is an output of the version under its name.
    """

    def __init__(self, executor: Executor, checks: Mapping[Name, Mapping[str, Check]]) -> None:
        self.names, self.is_mixed, self.device = executor.names, executor.is_mixed, executor.device
        self._executor, self._checks = executor, checks

    @property
    def is_indexed(self) -> bool:
        checks = [self._checks.get(name, {}) for name in self.names]
        return isinstance(self._executor, Indexed) and self._executor.is_indexed and checks[1:] == checks[:-1]

    def index(self, segments: Sequence[Segment], rows: int, /) -> dict[str, torch.Tensor]:
        assert isinstance(self._executor, Indexed)
        return self._executor.index(segments, rows)

    def run_indexed(self, tensors: Tensors, index: Tensors, /) -> Tensors:
        assert isinstance(self._executor, Indexed)
        answers = self._executor.run_indexed(tensors, index)
        rows = len(next(iter(tensors.values())))
        return self._watch(tensors, Segment(self.names[0], 0, rows), answers)

    def replayed(self, names: Sequence[Name], /) -> None:
        if isinstance(self._executor, Counting):
            self._executor.replayed(names)

    def encode(self, name: Name, batch: Batch, /) -> EncodedRows:
        return self._executor.encode(name, batch)

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:
        answers = self._executor.run(tensors, segments)
        return [self._watch(tensors, s, own) for s, own in zip(segments, answers, strict=True)]

    def decode(self, name: Name, answers: Tensors, /) -> Outputs:
        severities = {field: answers[_marked(field)].numpy() for field in self._checks.get(name, ())}
        marked = {_marked(field) for field in severities}
        own = {field: tensor for field, tensor in answers.items() if field not in marked}
        outputs = dict(self._executor.decode(name, own))
        if both := outputs.keys() & severities.keys():
            raise ConfigError(
                f"{OPTION}: {min(both)!r} is an output of the model already; rename the function"
            )
        return outputs | severities

    def _watch(self, tensors: Tensors, segment: Segment, answers: Tensors) -> Tensors:
        checks = self._checks.get(segment.name)
        if not checks:
            return answers
        fed = {field: tensor[segment.start : segment.stop] for field, tensor in tensors.items()}
        rows = segment.stop - segment.start
        return dict(answers) | {
            _marked(field): _severity(field, check(fed, answers), rows) for field, check in checks.items()
        }


def watched(executor: Executor, loaded: Mapping[Name, LoadedVersion]) -> Executor:
    checks = {name: loaded[name].checks for name in executor.names}
    if isinstance(executor, Watched) or not any(checks.values()):
        return executor
    return Watched(executor, checks)


def _marked(field: str) -> str:
    """Name of a severity among raw answers, where a model may have the same name."""
    return f"~{field}"


def _severity(field: str, values: torch.Tensor, rows: int) -> torch.Tensor:
    """Check for one float per row, without reading a value back, so it holds in captured passes."""
    if not isinstance(values, torch.Tensor) or values.shape != (rows,):
        came = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
        raise TypeError(f"{OPTION}: {field} must return a tensor of shape ({rows},), one per row, got {came}")
    return values.float()
