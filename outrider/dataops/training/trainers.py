"""Training by the method that `methods` picks."""

import dataclasses

from outrider.errors import ConfigError

from .methods import Method, method_of, why_untrained
from .trainer import Report, TrainedModel, TrainingTask


def train_version(task: TrainingTask, report: Report) -> TrainedModel:
    """Equal tasks give equal models on a CPU, whatever attempts were killed."""
    if why := why_untrained(task.source, task.options):
        raise ConfigError(why)
    method = method_of(task.source, task.options)
    if method == "user":  # without torch, unless the user's function needs it
        from .user_trainer import train_by_user

        return train_by_user(task, report)
    return _train_with_torch(task, report, method)


def _train_with_torch(task: TrainingTask, report: Report, method: Method) -> TrainedModel:
    from .answering import full_learner
    from .chat_learner import train_chat
    from .distilled_learner import distilled_learner
    from .improving import improve
    from .lora_learner import lora_learner
    from .torch_learner import augment_of, train_torch

    if method == "chat":
        return train_chat(task, report)
    if method == "full" and task.source.kind == "torch":
        return train_torch(task, report)
    if task.options.get("augment") and task.source.kind != "torch":
        raise ConfigError("retrain.augment: a torch module expected, whose inputs are a tensor; remove it")
    learners = {"full": full_learner, "lora": lora_learner, "distill": distilled_learner}
    learner = learners[method](task)
    source = dataclasses.replace(task.source, classes=learner.classes)
    return improve(learner, dataclasses.replace(task, source=source), report, augment=augment_of(task))
