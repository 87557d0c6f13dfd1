"""Training by the method that `methods` picks."""

import dataclasses
from collections.abc import Callable, Mapping

from outrider.errors import ConfigError

from .answering import AnswerLearner, full_learner
from .chat_learner import train_chat
from .distilled_learner import distilled_learner
from .improving import improve
from .lora_learner import lora_learner
from .methods import Method, method_of, why_untrained
from .torch_learner import augment_of, train_torch
from .trainer import Report, TrainedModel, TrainingTask
from .user_trainer import train_by_user

_LEARNERS: Mapping[Method, Callable[[TrainingTask], AnswerLearner]] = {
    "full": full_learner,
    "lora": lora_learner,
    "distill": distilled_learner,
}


def train_version(task: TrainingTask, report: Report) -> TrainedModel:
    """Equal tasks give equal models on a CPU, whatever attempts were killed."""
    if why := why_untrained(task.source, task.options):
        raise ConfigError(why)
    method = method_of(task.source, task.options)
    if method == "user":
        return train_by_user(task, report)
    if method == "chat":
        return train_chat(task, report)
    if method == "full" and task.source.kind == "torch":
        return train_torch(task, report)
    if task.options.get("augment") and task.source.kind != "torch":
        raise ConfigError("retrain.augment: a torch module expected, whose inputs are a tensor; remove it")
    learner = _LEARNERS[method](task)
    source = dataclasses.replace(task.source, classes=learner.classes)
    return improve(learner, dataclasses.replace(task, source=source), report, augment=augment_of(task))
