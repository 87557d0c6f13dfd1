"""Contract of training: task, learner and trained model."""

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
    epoch: int
    epochs: int
    step: int
    """Steps done, over all epochs."""
    steps: int
    loss: float
    rows_s: float
    """Training rows a second since this process began."""
    eta_s: float
    """Seconds to the last step, at that speed."""


@dataclass(frozen=True, slots=True)
class TrainingTask:
    model: str
    champion: str | None
    """``model@version`` to start from; None for fresh weights."""
    source: Source
    """Of the champion, else of the model; its kept folders are opened on this disk."""
    weights: bytes | None
    """The champion's; None for those of its folder, and for fresh ones."""
    fresh: MappedRows | None
    """Labelled rows to learn, part ``train``."""
    replay: MappedRows | None
    """Old rows, rehearsed against forgetting."""
    target: str
    """Label field that is learned."""
    options: Mapping[str, Any]
    seed: int
    base: Path
    """Folder of the configuration, to which paths in ``source`` and ``options`` are relative."""
    work: Path
    """Folder of checkpoints, shared by all attempts of a job."""
    device: str = "cpu"
    judging: tuple[MappedRows, ...] = ()
    """Rows that the gate judges by: none of them may be learned."""
    stored: Source | None = None
    """``source`` as registered, with digests of kept folders, if any."""

    @property
    def registered(self) -> Source:
        return self.stored or self.source


@dataclass(frozen=True, slots=True)
class TrainedModel:
    source: Source
    """Without what ``files`` holds, which is added when kept."""
    weights: bytes | None = None
    """Safetensors or ONNX; None if ``files`` holds them."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files of an adapter, or artefacts of a function, by relative name."""
    note: str = ""
    """Text for the version, such as ``fine-tuned from 2, 8 epochs``."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the run for its record, as JSON values."""


Report = Callable[[Progress], None]
"""Receiver of progress; raises to end the job."""


@dataclass(frozen=True, slots=True)
class StepExamples:
    tensors: "dict[str, torch.Tensor]"
    """Inputs and labels by the learner's own names, each of shape (rows, …)."""
    rows: int

    def slice(self, start: int, stop: int) -> "StepExamples":
        return StepExamples({name: each[start:stop] for name, each in self.tensors.items()}, stop - start)

    def take(self, places: "torch.Tensor") -> "StepExamples":
        return StepExamples({name: each[places] for name, each in self.tensors.items()}, len(places))


class ModelLearner(Protocol):
    """Model that the training loop improves.

    Everything that training changes is in ``module``, which comes on its device and in its training mode:
    frozen parts evaluate, the others train.
    """

    module: "torch.nn.Module"

    def encode(self, rows: Batch, /) -> StepExamples:
        """Rows of several steps, each encoded independently but for padding."""

    def losses(self, examples: StepExamples, /) -> "torch.Tensor":
        """Shape (rows,), with gradients, on the module's device."""

    def trained(self, work: Path, /) -> TrainedModel:
        """Trained model so far; files are written below ``work``."""


@runtime_checkable
class MeanLearner(ModelLearner, Protocol):
    """Learner with a faster mean, used if all rows weigh the same."""

    def mean_loss(self, examples: StepExamples, /) -> "torch.Tensor":
        """Mean of :meth:`ModelLearner.losses`, a scalar."""
