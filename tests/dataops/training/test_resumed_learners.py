"""Every learner goes on from a checkpoint to the same bytes, and refuses rows that it cannot learn."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.dataops.model_kinds.source import Source
from outrider.dataops.training.run_record import digest_of
from outrider.dataops.training.trainer import Progress, TrainedModel, TrainingTask
from outrider.dataops.training.trainers import train_version
from outrider.errors import ConfigError, ValidationRefused
from tests.dataops.model_kinds.adapters import peft, save_adapter
from tests.dataops.model_kinds.folders import bert_config, gpt2_config, save, transformers, write_tokenizer
from tests.dataops.training.texts import CLASSES, reviews
from tests.training_rows import mapped

LORA = {"lora": {"rank": 2, "dropout": 0.1}}
CHAT = {"task": "generation", "options": {"max_new_tokens": 4}, "classes": ()}
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": ({}, {"average": 0.4}),
    "parts": ({}, {"trains": ["classifier"]}),
    "new adapter": ({}, {"method": "lora", **LORA}),
    "continued adapter": ({"adapter": "tone"}, {}),
    "distilled": ({}, {"method": "distill", "architecture": "small"}),
    "answers": ({"reference": "chat", **CHAT}, LORA),
    "preferences": ({"reference": "chat", **CHAT}, {"objective": "dpo", **LORA}),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of a classifier with an adapter, of a smaller one and of a language model."""
    folder = tmp_path_factory.mktemp("home")
    transformers()
    size = len(write_tokenizer(folder / "base"))
    base = save(folder / "base", "BertForSequenceClassification", bert_config(size, num_labels=2))
    config = peft().LoraConfig(target_modules=["query"], r=2, modules_to_save=["classifier"])
    save_adapter(base, config, folder / "tone", seed=5)
    write_tokenizer(folder / "small")
    small = bert_config(size, num_labels=2)
    small.num_hidden_layers = 1
    small.save_pretrained(folder / "small")
    made = write_tokenizer(folder / "chat", specials=False)
    save(folder / "chat", "GPT2LMHeadModel", gpt2_config(len(made)))
    return folder


def task(home: Path, work: Path, way: str) -> TrainingTask:
    given, options = WAYS[way]
    source = Source(**({"kind": "hf", "reference": "base", "inputs": ("text",), "classes": CLASSES} | given))
    rows = reviews(40)
    columns = {name: rows.arrow(name) for name in ("id", "inputs.text", "label.label")}
    columns["outputs.text"] = np.array(["dull"] * 40, dtype=object)
    fresh = mapped(work.parent / "rows.arrow", columns, "reviews@1")
    options = {"epochs": 2, "batch_rows": 8, "learning_rate": 1e-2, "checkpoint_s": 0.0} | options
    return TrainingTask(
        "reviews", "reviews@1", source, None, fresh, None, "label", options, seed=3, base=home, work=work
    )


def train(given: TrainingTask, report: Callable[[Progress], None] = lambda _: None) -> TrainedModel:
    return train_version(given, report)


class EndedError(Exception):
    """The process of the job is over."""


@pytest.mark.parametrize("way", WAYS)
def test_training_that_ended_midway_goes_on_to_the_same_bytes(home: Path, tmp_path: Path, way: str) -> None:
    whole = train(task(home, tmp_path / "whole", way))
    assert whole.figures["steps"] == 10

    def end(progress: Progress) -> None:
        if progress.step:
            raise EndedError

    given = task(home, tmp_path / "cut", way)
    with pytest.raises(EndedError):
        train(given, end)
    again = train(given)
    assert again.figures["resumed"] == 1
    assert digest_of(again) == digest_of(whole)
    other = train(dataclasses.replace(given, seed=4, work=tmp_path / "other"))
    assert digest_of(other) != digest_of(whole)


def test_classes_of_the_folder_check_labels_before_training(home: Path, tmp_path: Path) -> None:
    given = task(home, tmp_path / "work", "full")
    source = dataclasses.replace(given.source, classes=())
    with pytest.raises(ValidationRefused, match=r"label\.label of 40 of 40 rows .* 'LABEL_0', 'LABEL_1'"):
        train(dataclasses.replace(given, source=source))


def test_augmentation_of_texts_is_refused(home: Path, tmp_path: Path) -> None:
    given = task(home, tmp_path / "work", "full")
    options = dict(given.options) | {"augment": "model.py:change"}
    with pytest.raises(ConfigError, match=r"retrain\.augment: a torch module expected"):
        train(dataclasses.replace(given, options=options))
