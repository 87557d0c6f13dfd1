"""Contract of training: task, trainer, learner and trained model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from outrider.assertions import Batch
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.source import Source

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Progress:
    """Place of a running training."""

    epoch: int
    """From 1."""
    epochs: int
    step: int
    """Steps done, over all epochs."""
    steps: int
    loss: float
    """Mean of the epoch so far."""
    rows_s: float
    """Training rows a second since this process began."""
    eta_s: float
    """Seconds to the last step, at that speed."""


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Inputs of a training run, and its folder of checkpoints."""

    model: str
    champion: str | None
    """``model@version`` to start from; None for fresh weights."""
    source: Source
    """Of the champion, or of the model where there is none; its kept folders are opened on this disk."""
    weights: bytes | None
    """The champion's own; None for those of its folder, and for fresh ones."""
    fresh: MappedRows | None
    """Labelled rows to learn, part ``train``."""
    replay: MappedRows | None
    """Old rows, rehearsed against forgetting."""
    target: str
    """Label field that is learned."""
    options: Mapping[str, Any]
    """Settings of ``[models.*.retrain]`` as JSON values."""
    seed: int
    base: Path
    """Folder of the configuration, which relative paths of ``source`` and ``options`` are relative to."""
    work: Path
    """Folder of checkpoints, which the next attempt of the same job finds again."""
    device: str = "cpu"
    judging: tuple[MappedRows, ...] = ()
    """Rows that the gate judges by: none of them may be learned."""
    stored: Source | None = None
    """``source`` as it is registered, with digests of kept folders; None where it has none."""

    @property
    def registered(self) -> Source:
        """Source as registered."""
        return self.stored or self.source


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """Trained model without a version yet."""

    source: Source
    """How the version is loaded; what ``files`` holds is added where it is kept."""
    weights: bytes | None = None
    """Safetensors or ONNX; None where ``files`` holds them."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files of an adapter, or artefacts of a function, by relative name."""
    note: str = ""
    """Words for the version, such as ``fine-tuned from 2, 8 epochs``."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the run for its record, as JSON values."""


Report = Callable[[Progress], None]
"""Receiver of progress; it raises where the job is to end."""


class Trainer(Protocol):
    """Maker of a trained version, of one kind."""

    def train(self, task: TrainingTask, report: Report) -> TrainedModel:
        """Train; equal tasks give equal models on a CPU.

        Wherever earlier attempts were killed.

        Raises
        ------
        ValidationRefused
            If the rows cannot be learned from: said before the first step, with counts.
        ConfigError
            If settings or the user's files do not fit.
        """


@dataclass(frozen=True, slots=True)
class Examples:
    """Encoded rows, on the CPU."""

    tensors: "dict[str, torch.Tensor]"
    """Inputs and labels by the learner's own names, each of shape (rows, …)."""
    rows: int

    def slice(self, start: int, stop: int) -> "Examples":
        """Rows from ``start`` to before ``stop``."""
        return Examples({name: each[start:stop] for name, each in self.tensors.items()}, stop - start)

    def take(self, places: "torch.Tensor") -> "Examples":
        """Rows by place."""
        return Examples({name: each[places] for name, each in self.tensors.items()}, len(places))


class Learner(Protocol):
    """Model that the training loop improves.

    The loop owns order, weights, steps, averaging and checkpoints; the learner knows its model. Everything
    that training changes is in ``module``: parameters that require a gradient, and buffers. The module comes
    on its device and in the mode in which it is trained: frozen parts evaluate, the others train.
    """

    module: "torch.nn.Module"

    def encode(self, rows: Batch, /) -> Examples:
        """Encode labelled rows of several steps; ValidationRefused names field and row.

        Each row is encoded as if it were alone, but for padding: the loop cuts steps out of the tensors, and
        :meth:`losses` trims what no row of the step needs.
        """

    def losses(self, examples: Examples, /) -> "torch.Tensor":
        """Loss of each row, shape (rows,), with gradients, on the module's device."""

    def trained(self, work: Path, /) -> TrainedModel:
        """Trained model so far; files are written below ``work``."""


@runtime_checkable
class MeanLearner(Learner, Protocol):
    """Learner that computes the mean of its losses in one operation.

    Used where all rows weigh alike.
    """

    def mean_loss(self, examples: Examples, /) -> "torch.Tensor":
        """Mean of :meth:`Learner.losses`, a scalar."""
