"""Trainers by the kind of a source."""

from collections.abc import Callable, Mapping
from typing import Any

from outrider.dataops.model_kinds.source import Kind, Source
from outrider.errors import ConfigError

from .torch_learner import TorchTrainer
from .trainer import Trainer

TRAINERS: Mapping[Kind, Callable[[], Trainer]] = {"torch": TorchTrainer}
"""Maker of the trainer of each kind that is trained here."""


def trainer_of(source: Source, options: Mapping[str, Any]) -> Trainer:  # noqa: ARG001 - a user's train.py is one
    """Trainer of a version; ConfigError where its kind is not trained here."""
    if source.kind not in TRAINERS:
        raise ConfigError(f"{source.kind}: one of {', '.join(TRAINERS)} expected, which are trained here")
    return TRAINERS[source.kind]()
