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
    """A version in memory."""

    name: Name
    source: Source
    model: Runner | Predictor
    """A runner of tensors, or anything else that answers batches: functions, remote models, ONNX."""
    weights: Path | None = None
    """Its safetensors file, where it has one."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """What is computed of its answers where they are, by the output that it becomes; see
    `outrider.monitor.engine.on_device`."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows ``start`` to ``stop`` of a batch that a version answers."""

    name: Name
    start: int
    stop: int


class Executor(Protocol):
    """Executor: turns one batch into the answers of its versions."""

    names: tuple[Name, ...]
    """Versions that it runs."""
    is_mixed: bool
    """Whether every row of a batch is answered by one version: segments then follow each other, in the order
    of ``names``, and cover the batch. Else every wanted version answers all rows, and segments overlap."""
    device: torch.device

    def encode(self, name: Name, batch: Batch, /) -> EncodedRows:
        """Records as tensors on the CPU."""

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:
        """Raw answers (rows, …) of segments on the device, without gradients."""

    def decode(self, name: Name, answers: Tensors, /) -> Outputs:
        """Outputs of a version by field, from raw answers on CPU."""


@runtime_checkable
class Shared(Protocol):
    """An executor whose versions may have to run one by one."""

    def forwards(self, versions: int, /) -> int:
        """Shared part's runs in one pass of versions, at most one each."""


class Alone:
    """Executor of one version by itself."""

    is_mixed = False

    def __init__(self, name: Name, runner: Runner) -> None:
        self.names: tuple[Name, ...] = (name,)
        self.device = runner.device
        self._runner = runner

    def encode(self, name: Name, batch: Batch, /) -> EncodedRows:  # noqa: ARG002 - there is one
        """Records as tensors on the CPU."""
        return self._runner.encode(batch)

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:  # noqa: ARG002
        """Raw answers to all rows."""
        return [self._runner.run(tensors)]

    def decode(self, name: Name, answers: Tensors, /) -> Outputs:  # noqa: ARG002
        """Outputs by field."""
        return self._runner.decode(answers)
