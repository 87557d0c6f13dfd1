"""Distillation of champion and labels into a given architecture."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from outrider.assertions import Batch, Predictor
from outrider.dataops.compression.distillation import ScaledValues, SoftClasses, raw_answers, student_weights
from outrider.dataops.model_kinds.content import ADAPTER, FOLDER, pin
from outrider.dataops.model_kinds.loading import as_predictor, is_runner, load_model
from outrider.dataops.model_kinds.runner import Runner
from outrider.dataops.model_kinds.source import Kind, Source
from outrider.errors import ConfigError

from .answering import AnswerLearner, check_task, note_of, trimmed
from .targets import LABEL, row_losses
from .trainer import StepExamples, TrainingTask

TAUGHT = "taught"
"""Name of the champion's answers among the tensors of a step."""
SCALED_BY_ROWS = 1024
"""First rows whose answers give the unit of a regression's errors."""
FLOOR = 1e-6
"""Least probability of a class by a champion that answers probabilities."""
SoftLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class DistilledLearner(AnswerLearner):
    """Student of the champion's answers and, by ``label_share``, of labels.

    Flagged rows are where the champion errs, which labels correct. Hinton, Vinyals and Dean, "Distilling the
    Knowledge in a Neural Network", 2015, section 2.
    """

    def __init__(
        self,
        student: Runner,
        teacher: Callable[[Batch], torch.Tensor],
        source: Source,
        *,
        target: str,
        soft: SoftLoss,
        label_share: float,
        note: str = "",
    ) -> None:
        super().__init__(student, source, target=target, note=note)
        self._teacher, self._soft, self._share = teacher, soft, label_share

    def encode(self, rows: Batch, /) -> StepExamples:
        found = super().encode(rows)
        return StepExamples({**found.tensors, TAUGHT: self._teacher(rows)}, found.rows)

    def losses(self, examples: StepExamples, /) -> torch.Tensor:
        device = self.runner.device
        fed = dict(examples.tensors)
        targets, taught = fed.pop(LABEL).to(device), fed.pop(TAUGHT).to(device)
        out = self.answers(trimmed(fed, device))
        if out.shape != taught.shape:
            raise ConfigError(
                f"{self._source.reference} answers {tuple(out.shape[1:])} a record, the champion "
                f"{tuple(taught.shape[1:])}: both must answer alike"
            )
        return (1 - self._share) * self._soft(out, taught) + self._share * row_losses(out, targets)


def distilled_learner(task: TrainingTask) -> DistilledLearner:
    """Learner of the architecture that ``retrain.architecture`` names."""
    check_task(task)
    reference = str(task.options.get("architecture") or "")
    if not reference:
        raise ConfigError("retrain.architecture: file.py:callable or a folder expected by method = 'distill'")
    if task.champion is None:
        raise ConfigError("retrain.method: 'distill' learns of a champion; 'full' expected from scratch")
    given = task.options.get("distill") or {}
    champion = load_model(
        dataclasses.replace(task.source, recipe=()),
        folder=task.base,
        weights=task.weights,
        device=task.device,
    )
    source = student_source(task.source, reference, task.base)
    student = load_model(
        source,
        folder=task.base,
        weights=student_weights(source, task.base, seed=task.seed),
        device=task.device,
    )
    if not is_runner(student):
        raise ConfigError(f"retrain.architecture: {reference!r} is no model of tensors")
    is_classifier = task.source.task == "classification"
    teacher = _of_runner(champion) if is_runner(champion) else _of_predictor(as_predictor(champion), task)
    temperature, share = float(given.get("temperature", 2.0)), float(given.get("label_share", 0.5))
    return DistilledLearner(
        student,
        teacher,
        source,
        target=task.target,
        soft=SoftClasses(temperature) if is_classifier else ScaledValues(teacher(_first_rows(task))),
        label_share=share,
        note=note_of(task, "distilled from"),
    )


def student_source(champion: Source, reference: str, base: Path) -> Source:
    options = {name: value for name, value in champion.options.items() if name not in (FOLDER, ADAPTER)}
    kind: Kind = "torch" if ".py:" in reference else "hf"
    if kind != champion.kind:
        options = {}
    made = Source(kind, reference, champion.task, champion.inputs, champion.classes, options=options)
    return pin(made, base)


def _of_runner(champion: Runner) -> Callable[[Batch], torch.Tensor]:
    champion.module.eval()
    return lambda rows: raw_answers(champion, champion.encode(rows))


def _of_predictor(champion: Predictor, task: TrainingTask) -> Callable[[Batch], torch.Tensor]:
    """Probabilities as logits, or values."""
    name = "probs" if task.source.task == "classification" else "value"

    def answers(rows: Batch) -> torch.Tensor:
        found = champion(rows)
        if name not in found:
            raise ConfigError(
                f"{task.champion} answers {', '.join(found)}: {name} expected, which a student learns"
            )
        values = torch.from_numpy(np.array(found[name], dtype=np.float32))
        return values.clamp_min(FLOOR).log() if name == "probs" else values

    return answers


def _first_rows(task: TrainingTask) -> Batch:
    rows = next(part for part in (task.replay, task.fresh) if part is not None and len(part))
    return Batch.from_arrow(rows.table.slice(0, SCALED_BY_ROWS), model=task.model)
