"""Retraining jobs of text models, adapters and users' code, from flags to a promoted version that answers."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.adapted import AdaptedRunner
from outrider.dataops.model_kinds.loading import is_runner
from outrider.dataops.model_kinds.runner import RunnerPredictor
from outrider.dataops.model_kinds.source import Source
from outrider.monitor.engine.adapters.mixed import Mixed
from outrider.monitor.engine.executor import Segment
from outrider.monitor.settings.sources import loadable_source
from tests.dataops.model_kinds.adapters import peft
from tests.dataops.model_kinds.folders import bert_config, gpt2_config, save, transformers, write_tokenizer
from tests.dataops.training.texts import reviews
from tests.improved_projects import world

TEXTS = """
[models.reviews]
folder = "base"
inputs = ["text"]
classes = ["bad", "good"]
[models.reviews.retrain]
method = "lora"
epochs = 25
learning_rate = 0.01
held_out_share = 0.4
lora = { rank = 4 }
[worker]
device = "cpu"
"""
ANSWERS = """
[models.reviews]
folder = "base"
task = "generation"
inputs = ["text"]
target = "text"
options = { max_new_tokens = 6 }
[models.reviews.retrain]
objective = "OBJECTIVE"
epochs = 60
learning_rate = 0.01
held_out_share = 0.4
lora = { rank = 16 }
[worker]
device = "cpu"
"""
RULES = """
[models.reviews]
predictor = "rules.py:predict"
inputs = ["words"]
classes = ["bad", "good"]
[models.reviews.retrain]
trainer = "train.py:fine_tune"
held_out_share = 0.4
"""
RULE = """
import numpy as np

def predict(batch):
    return {"label": np.full(batch.rows, "bad")}
"""
TRAIN = """
import json
import numpy as np

def fine_tune(champion, dataset, seed):
    rounds = json.loads((champion.folder / "rounds.json").read_text()) if champion.folder else 0
    cut = dataset.x.words[dataset.y == "good"].min()
    return {"cut": np.array(cut), "rounds": rounds + 1}

def load(folder):
    cut = np.load(folder / "cut.npy")
    return lambda batch: {"label": np.where(batch.column("inputs.words") >= cut, "good", "bad")}
"""


def accuracy(answers: Any, labels: Sequence[str]) -> float:
    return float(np.mean(np.asarray(answers["label"]) == np.asarray(labels)))


def test_flags_become_an_adapter_that_goes_on_and_is_served_mixed_with_its_base(tmp_path: Path) -> None:
    transformers()
    peft()
    size = len(write_tokenizer(tmp_path / "base"))
    save(tmp_path / "base", "BertForSequenceClassification", bert_config(size, num_labels=2))
    with world(tmp_path, TEXTS) as made:
        rows, test = reviews(120, seed=1), reviews(60, seed=2)
        made.flag(rows, rows.column("label.label").tolist())
        job = made.retrain()
        assert (job.status, job.result["promoted"]) == ("done", True), job.result
        second = made.version("2")
        source = Source.from_json(second.source or "")
        assert (list(source.kept), source.adapter, source.adapted_from) == (["adapter"], None, "reviews@1")
        labels = test.column("label.label").tolist()
        assert accuracy(made.answers("2", test), labels) > 0.95

        more = reviews(60, seed=3)
        more = more.with_columns({"id": [f"more{n}" for n in range(60)]})
        made.flag(more, more.column("label.label").tolist())
        job = made.retrain(epochs=1, learning_rate=1e-6)
        assert job.result["run"]["figures"]["losses"][0] < 0.2, "it begins where the champion stands"
        assert made.version("3").note.startswith("adapter continued from 2, 1 epochs")

        runners = {("reviews", version): made.loaded(version) for version in ("1", "2", "3")}
        assert [type(r) is AdaptedRunner for r in runners.values()] == [False, True, True]
        mixed = Mixed(runners)
        fed = mixed.encode(("reviews", "1"), test).tensors
        names = list(mixed.names)
        cuts = [Segment(name, 20 * at, 20 * at + 20) for at, name in enumerate(names)]
        with torch.inference_mode():
            mixed.run(fed, cuts)  # the first batch is also answered one by one
            together = mixed.run(fed, cuts)
        for cut, found in zip(cuts, together, strict=True):
            alone = RunnerPredictor(runners[cut.name])(test.slice(cut.start, 20))
            said = mixed.decode(cut.name, found)
            np.testing.assert_allclose(said["probs"], alone["probs"], rtol=1e-4, atol=1e-5)

        made.roll_back()
        assert made.version("1").status == "champion"
        assert accuracy(made.answers("1", test), labels) < 0.8


def test_full_training_of_a_folder_keeps_its_weights(tmp_path: Path) -> None:
    transformers()
    size = len(write_tokenizer(tmp_path / "base"))
    save(tmp_path / "base", "BertForSequenceClassification", bert_config(size, num_labels=2))
    with world(tmp_path, TEXTS.replace('"lora"', '"full"').replace("0.01", "0.003")) as made:
        rows, test = reviews(120, seed=1), reviews(60, seed=2)
        made.flag(rows, rows.column("label.label").tolist())
        job = made.retrain(epochs=30)
        assert (job.status, job.result["promoted"]) == ("done", True), job.result
        assert made.version("2").weights == job.result["run"]["digest"]
        assert is_runner(made.loaded("2"))
        assert accuracy(made.answers("2", test), test.column("label.label").tolist()) > 0.95


@pytest.mark.costly("a model is trained, which is what it is about")
@pytest.mark.parametrize("objective", ["sft", "dpo"])
def test_corrected_answers_and_preferences_become_an_adapter_that_writes_them(
    tmp_path: Path, objective: str
) -> None:
    """Records hold what production answered, labels what it should have."""
    transformers()
    peft()
    made_tokenizer = write_tokenizer(tmp_path / "base", specials=False)
    model = save(tmp_path / "base", "GPT2LMHeadModel", gpt2_config(len(made_tokenizer)))
    with torch.no_grad():  # words far from each other: low rank then suffices
        model.transformer.wte.weight.mul_(15)
    model.save_pretrained(tmp_path / "base")
    talk = {"ada": "good film", "bob": "bad film", "acme": "awful plot", "paris": "great"}
    asked = [name for name in talk for _ in range(20)]
    columns = {
        "id": [f"t{n}" for n in range(len(asked))],
        "inputs.text": [f"{name} was" for name in asked],
        "outputs.text": ["very dull"] * len(asked),
    }
    rows = Batch.from_columns(columns, model="reviews")
    with world(tmp_path, ANSWERS.replace("OBJECTIVE", objective)) as made:
        made.flag(rows, [talk[name] for name in asked])
        job = made.retrain()
        assert job.status in ("done", "refused", "undecided"), job.result
        losses = job.result["run"]["figures"]["losses"]
        assert losses[-1] < losses[0] / 5
        said = made.answers("2", rows)["text"].tolist()
        right = np.mean([told == talk[name] for told, name in zip(said, asked, strict=True)])
        if objective == "sft":
            assert (job.status, job.result["promoted"], right) == ("done", True, 1.0), job.result
        else:  # preferred to production's answer, which is not yet written word by word
            assert "very dull" not in said


def test_files_of_a_users_training_are_kept_loaded_and_handed_on(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(RULE)
    (tmp_path / "train.py").write_text(TRAIN)
    with world(tmp_path, RULES) as made:
        words = np.arange(100) % 20
        labels = np.where(words >= 12, "good", "bad")
        rows = Batch.from_columns(
            {"id": [f"w{n}" for n in range(100)], "inputs.words": words}, model="reviews"
        )
        made.flag(rows, labels.tolist())
        job = made.retrain()
        assert (job.status, job.result["promoted"]) == ("done", True), job.result
        assert accuracy(made.answers("2", rows), labels.tolist()) > 0.9
        job = made.retrain()
        assert job.result["run"]["figures"]["learned"][0]["rows"] > 40
        source = loadable_source(made.settings, made.version("3"))
        assert (Path(source.kept["artefacts"]) / "rounds.json").read_text() == "2\n"
        assert "/" not in dataclasses.replace(source, kept={}).to_json().replace("://", "")
