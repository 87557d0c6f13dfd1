"""Torch modules that ``outrider.toml`` declares, fine-tuned."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor
from outrider.assertions.comparison.matching import class_numbers
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights, encode, load_architecture, load_weights
from outrider.errors import ConfigError, ValidationRefused
from outrider.user_code import load_callable

from .freezing import train_only
from .improving import improve
from .loop import Augment
from .trainer import Report, StepExamples, TrainedModel, TrainingTask

AugmentInputs = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
"""Inputs of a batch, on the CPU, and a generator to inputs of the same shape."""


class TorchLearner:
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        source: Source,
        target: str,
        trains: Sequence[str] = (),
        device: str = "cpu",
        name: str = "the model",
    ) -> None:
        self.module = module.to(device)
        train_only(self.module, trains)
        self._inputs, self._label = source.inputs, f"label.{target}"
        self._classes = source.classes if source.task == "classification" else ()
        self._device, self._source, self._note = torch.device(device), source, name

    def encode(self, rows: Batch, /) -> StepExamples:
        kind = rows.to_arrow().schema.field(self._label).type
        if pa.types.is_list(kind):
            raise ValidationRefused(
                f"{self._label} holds lists, which torch cannot stack: train on the dataset's rows with code "
                "of your own"
            )
        try:
            x = encode(rows, self._inputs)
        except KeyError as error:
            raise ValidationRefused(f"rows to learn from: {error.args[0]}") from None
        if self._classes:
            numbers = class_numbers(rows.arrow(self._label), self._classes)
            return StepExamples({"x": x, "y": torch.from_numpy(numbers.astype(np.int64))}, rows.rows)
        values = rows.tensor(self._label) if is_tensor(kind) else rows.column(self._label)
        return StepExamples({"x": x, "y": torch.from_numpy(np.array(values, dtype=np.float32))}, rows.rows)

    def losses(self, examples: StepExamples, /) -> torch.Tensor:
        return self._loss(examples, "none")

    def mean_loss(self, examples: StepExamples, /) -> torch.Tensor:
        loss = self._loss(examples, "mean")
        return loss if self._classes else loss.mean()

    def _loss(self, examples: StepExamples, reduction: str) -> torch.Tensor:
        x, y = examples.tensors["x"].to(self._device), examples.tensors["y"].to(self._device)
        out = self.module(x)
        if not self._classes:
            errors: torch.Tensor = (out.reshape(y.shape) - y).square()
            return errors.reshape(len(y), -1).mean(dim=1)
        if out.ndim != 2 or out.shape[1] != len(self._classes):
            raise ConfigError(
                f"{self._source.reference}: (rows, {len(self._classes)}) logits expected, one per class, got "
                f"{tuple(out.shape)}"
            )
        return torch.nn.functional.cross_entropy(out, y, reduction=reduction)

    def trained(self, work: Path, /) -> TrainedModel:  # noqa: ARG002 - weights alone are kept
        self.module.eval()
        return TrainedModel(self._source, dump_weights(self.module.state_dict()), note=self._note)


def train_torch(task: TrainingTask, report: Report) -> TrainedModel:
    architecture = load_architecture(task.source.reference, task.base)
    trains = tuple(task.options.get("trains", ()))
    if task.champion is None:
        module, trains = reinitialise(architecture, seed=task.seed), ()
        note = "from scratch"
    else:
        module = load_weights(architecture(), task.weights or b"", name=task.champion)
        note = f"fine-tuned from {task.champion.rpartition('@')[2]}"
    learner = TorchLearner(
        module, source=task.source, target=task.target, trains=trains, device=task.device, name=note
    )
    return improve(learner, task, report, augment=augment_of(task))


def reinitialise(architecture: Callable[[], torch.nn.Module], *, seed: int) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return architecture()


def augment_of(task: TrainingTask) -> Augment | None:
    """Augmentation that the settings name, applied to the input ``x``."""
    if not task.options.get("augment"):
        return None
    change: AugmentInputs = load_callable(str(task.options["augment"]), task.base)

    def augment(examples: StepExamples, generator: torch.Generator) -> StepExamples:
        return StepExamples(examples.tensors | {"x": change(examples.tensors["x"], generator)}, examples.rows)

    return augment
