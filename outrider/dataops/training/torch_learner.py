"""Torch modules that ``outrider.toml`` declares, fine-tuned."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights, encode, load_architecture, load_weights
from outrider.errors import ConfigError, ValidationRefused
from outrider.user_code import load_callable

from .freezing import train_only
from .improving import improve
from .loop import Augment
from .targets import LABEL, label_column, row_losses, targets_of
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
        self._inputs, self._target = source.inputs, target
        self._classes = source.classes if source.task == "classification" else ()
        self._device, self._source, self._note = torch.device(device), source, name

    def encode(self, rows: Batch, /) -> StepExamples:
        name = label_column(rows, self._target)
        if pa.types.is_list(rows.arrow(name).type):
            raise ValidationRefused(
                f"{name} holds lists, which torch cannot stack: train on the dataset's rows with code of "
                "your own"
            )
        try:
            x = encode(rows, self._inputs)
        except KeyError as error:
            raise ValidationRefused(f"rows to learn from: {error.args[0]}") from None
        return StepExamples({"x": x, LABEL: targets_of(rows, self._target, self._classes)}, rows.rows)

    def losses(self, examples: StepExamples, /) -> torch.Tensor:
        return row_losses(*self._answers(examples))

    def mean_loss(self, examples: StepExamples, /) -> torch.Tensor:
        out, targets = self._answers(examples)
        return (
            torch.nn.functional.cross_entropy(out, targets)
            if self._classes
            else row_losses(out, targets).mean()
        )

    def _answers(self, examples: StepExamples) -> tuple[torch.Tensor, torch.Tensor]:
        x, targets = (examples.tensors[name].to(self._device) for name in ("x", LABEL))
        out = self.module(x)
        if self._classes and (out.ndim != 2 or out.shape[1] != len(self._classes)):
            raise ConfigError(
                f"{self._source.reference}: (rows, {len(self._classes)}) logits expected, one per class, got "
                f"{tuple(out.shape)}"
            )
        return out, targets

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
