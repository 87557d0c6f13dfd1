"""Trainers by method, which `methods` decides."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError

from .answering import AnswerLearner, full_learner
from .chat_learner import ChatTrainer
from .distilled_learner import distilled_learner
from .improving import improve
from .lora_learner import lora_learner
from .methods import Method, method_of, why_untrained
from .torch_learner import TorchTrainer, augment_of
from .trainer import Report, TrainedModel, Trainer, TrainingTask
from .user_trainer import UserTrainer


class AnswerTrainer:
    """Trainer of classifiers and regressions by the training loop."""

    def __init__(self, learner_of: Callable[[TrainingTask], AnswerLearner]) -> None:
        self._learner_of = learner_of

    def train(self, task: TrainingTask, report: Report) -> TrainedModel:
        """Train the learner of a task, labels checked by its classes."""
        if task.options.get("augment") and task.source.kind != "torch":
            raise ConfigError(
                "retrain.augment: a torch module expected, whose inputs are a tensor; remove it"
            )
        learner = self._learner_of(task)
        source = dataclasses.replace(task.source, classes=learner.classes)
        own = dataclasses.replace(task, source=source)
        return improve(learner, own, report, augment=augment_of(task))


TRAINERS: Mapping[Method, Callable[[], Trainer]] = {
    "full": lambda: AnswerTrainer(full_learner),
    "lora": lambda: AnswerTrainer(lora_learner),
    "distill": lambda: AnswerTrainer(distilled_learner),
    "chat": ChatTrainer,
    "user": UserTrainer,
}
"""Maker of the trainer of each method."""


def trainer_of(source: Source, options: Mapping[str, Any]) -> Trainer:
    """Trainer of a version.

    Raises
    ------
    ConfigError
        If the version is not trained here; with the reason.
    """
    if why := why_untrained(source, options):
        raise ConfigError(why)
    method = method_of(source, options)
    if method == "full" and source.kind == "torch":
        return TorchTrainer()
    return TRAINERS[method]()
