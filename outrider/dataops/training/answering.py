"""Full training of torch modules and Hugging Face folders."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.loading import is_runner, load_model
from outrider.dataops.model_kinds.runner import Runner
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.errors import ConfigError

from .freezing import train_only
from .targets import LABEL, row_losses, targets_of
from .trainer import StepExamples, TrainedModel, TrainingTask

OUT = "out"
"""Raw answers that are learned: logits of a classifier, values of others."""
TASKS = ("classification", "other")
"""Tasks whose raw answers are compared with a label."""


class AnswerLearner:
    """Learner of the Runner that serves.

    Half-precision weights are trained in float32 and rounded when kept; ``trains`` as in `freezing`.
    """

    def __init__(
        self, runner: Runner, source: Source, *, target: str, note: str = "", trains: Sequence[str] = ()
    ) -> None:
        self.runner = runner
        self.module = runner.module
        self.classes = classes_of(runner, source)
        self._source, self._target, self._note = source, target, note
        self._dtypes = {name: tensor.dtype for name, tensor in self.module.state_dict().items()}
        self.module.float()
        train_only(self.module, trains)

    def encode(self, rows: Batch, /) -> StepExamples:
        fed = self.runner.encode(rows).tensors
        return StepExamples({**fed, LABEL: targets_of(rows, self._target, self.classes)}, rows.rows)

    def losses(self, examples: StepExamples, /) -> torch.Tensor:
        fed = dict(examples.tensors)
        targets = fed.pop(LABEL).to(self.runner.device)
        return row_losses(self.answers(trimmed(fed, self.runner.device)), targets)

    def answers(self, fed: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return self.runner.run(fed)[OUT]

    def trained(self, work: Path, /) -> TrainedModel:  # noqa: ARG002 - writes no files
        return TrainedModel(self._source, weights=dump_weights(self.state()), note=self._note)

    def state(self) -> dict[str, torch.Tensor]:
        """Weights in their original types, each of tied ones once."""
        tied = getattr(self.module, "all_tied_weights_keys", {}) or {}
        state = self.module.state_dict()
        return {n: t.detach().to(self._dtypes[n], copy=True) for n, t in state.items() if n not in tied}


def full_learner(task: TrainingTask) -> AnswerLearner:
    check_task(task)
    if task.source.adapter is not None:
        raise ConfigError(
            f"retrain.method: the champion of {task.model} has an adapter, over a base that others share: "
            "'lora' expected, got 'full'"
        )
    return AnswerLearner(
        load_runner(task),
        task.source,
        target=task.target,
        note=note_of(task, "fine-tuned from"),
        trains=tuple(task.options.get("trains") or ()),
    )


def note_of(task: TrainingTask, how: str) -> str:
    return "from scratch" if task.champion is None else f"{how} {task.champion.rpartition('@')[2]}"


def check_task(task: TrainingTask) -> None:
    if task.source.task not in TASKS:
        raise ConfigError(
            f"{task.model}: task {' or '.join(TASKS)} expected, got {task.source.task!r}: its answers are "
            "not compared with a label; train it elsewhere"
        )


def load_runner(task: TrainingTask, source: Source | None = None) -> Runner:
    """The champion without its recipe, on the task's device."""
    given = source or task.source
    plain = dataclasses.replace(given, recipe=())
    runner = load_model(plain, folder=task.base, weights=task.weights, device=task.device)
    if not is_runner(runner):
        raise ConfigError(f"{task.model}: a torch module or a Hugging Face folder expected, got {given.kind}")
    return runner


def classes_of(runner: Runner, source: Source) -> tuple[int | str, ...]:
    """In order of the classifier's outputs."""
    if source.task != "classification":
        return ()
    own: Any = getattr(getattr(runner, "reader", runner), "classes", ())
    return tuple(source.classes) or tuple(own.tolist() if hasattr(own, "tolist") else own)


def trimmed(fed: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """Inputs of a step on the device, without unneeded padding."""
    mask = fed.get("attention_mask")
    if mask is None:
        return {name: tensor.to(device) for name, tensor in fed.items()}
    width = max(1, int(mask.sum(1).max()))
    return {
        name: (tensor[:, :width] if tensor.shape[1:2] == mask.shape[1:] else tensor).to(device)
        for name, tensor in fed.items()
    }
