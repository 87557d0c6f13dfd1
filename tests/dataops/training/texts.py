"""Tasks, rows and a ten-line loop for learners of texts."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.training.trainer import ModelLearner, TrainedModel, TrainingTask
from tests.dataops.model_kinds.folders import WORDS

CLASSES = ("bad", "good")


def reviews(rows: int = 24, *, seed: int = 0) -> Batch:
    """Texts of random words; one that says ``good`` is good."""
    draw = np.random.default_rng(seed)
    words = [word for word in WORDS.split() if word not in ("good", "bad")]
    texts = [" ".join(draw.choice(words, draw.integers(2, 9))) for _ in range(rows)]
    labels = draw.choice(CLASSES, rows)
    texts = [f"{label} {text}" for label, text in zip(labels, texts, strict=True)]
    columns = {"id": [f"r{n}" for n in range(rows)], "inputs.text": texts, "label.label": labels}
    return Batch.from_columns(columns, model="reviews")


def task(home: Path, work: Path, source: Source, **more: Any) -> TrainingTask:
    """Training of a champion, without rows where none are given."""
    given: dict[str, Any] = {
        "model": "reviews", "champion": "reviews@1", "source": source, "weights": None, "fresh": None,
        "replay": None, "target": "label", "options": {}, "seed": 3, "base": home, "work": work,
    }  # fmt: skip
    return TrainingTask(**given | more)


def learn(learner: ModelLearner, rows: Batch, *, steps: int, rate: float) -> list[float]:
    """Train on all rows in every step; the loss before each."""
    learner.module.train()
    free = [parameter for parameter in learner.module.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(free, lr=rate)
    seen = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(steps):
            optimiser.zero_grad()
            loss = learner.losses(learner.encode(rows)).mean()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation here
            optimiser.step()
            seen.append(float(loss.detach()))
    learner.module.eval()
    return seen


def opened(made: TrainedModel) -> Source:
    """Source of a trained version whose adapter lies where it was written."""
    if not made.files:
        return made.source
    return dataclasses.replace(made.source, adapter=str(next(iter(made.files.values())).parent))


def served(home: Path, made: TrainedModel, rows: Batch) -> Any:
    """Answers of the version once it is loaded as the service does."""
    return as_predictor(load_model(opened(made), folder=home, weights=made.weights))(rows)
