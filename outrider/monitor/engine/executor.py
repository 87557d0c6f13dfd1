"""Executors of versions: alone, on one trunk, or mixed adapters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from outrider.assertions import Batch, Predictor
from outrider.dataops.model_kinds.runner import EncodedRows, Outputs, Runner, Tensors
from outrider.dataops.model_kinds.source import Source

from .asks import Name

Check = Callable[[Tensors, Tensors], torch.Tensor]
"""What was fed and the raw answers, on the device -> severity of each row, shape (rows,), >= 0."""


@dataclass(frozen=True, slots=True)
class LoadedVersion:
    name: Name
    source: Source
    model: Runner | Predictor
    """A runner of tensors, or anything that answers batches: functions, remote models, ONNX."""
    weights: Path | None = None
    checks: Mapping[str, Check] = field(default_factory=dict)
    """Checks computed from its answers on the device, by output name; see `on_device`."""


@dataclass(frozen=True, slots=True)
class Segment:
    name: Name
    start: int
    stop: int


class Executor(Protocol):
    names: tuple[Name, ...]
    is_mixed: bool
    """Whether every row is answered by one version: segments then follow each other in the order of
    ``names`` and cover the batch. Else every version answers all rows, and segments overlap."""
    device: torch.device

    def encode(self, name: Name, batch: Batch, /) -> EncodedRows: ...

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]: ...

    def decode(self, name: Name, answers: Tensors, /) -> Outputs: ...


@runtime_checkable
class Shared(Protocol):
    """Executor whose versions may have to run one by one."""

    def forwards(self, versions: int, /) -> int:
        """Shared part's runs in one pass of versions, at most one each."""


class Alone:
    is_mixed = False

    def __init__(self, name: Name, runner: Runner) -> None:
        self.names: tuple[Name, ...] = (name,)
        self.device = runner.device
        self._runner = runner

    def encode(self, name: Name, batch: Batch, /) -> EncodedRows:  # noqa: ARG002 - there is one
        return self._runner.encode(batch)

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:  # noqa: ARG002
        return [self._runner.run(tensors)]

    def decode(self, name: Name, answers: Tensors, /) -> Outputs:  # noqa: ARG002
        return self._runner.decode(answers)
