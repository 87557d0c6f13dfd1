"""Hugging Face classifiers and regressions, trained whole and by LoRA, on a tiny BERT."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors

from outrider.assertions import Batch
from outrider.dataops.model_kinds.adapted import AdaptedRunner
from outrider.dataops.model_kinds.adapter import read_adapter
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.training.answering import AnswerLearner, full_learner
from outrider.dataops.training.lora_learner import LoraLearner, lora_learner
from outrider.dataops.training.targets import LABEL, row_losses, targets_of
from outrider.errors import ConfigError, ValidationRefused
from tests.dataops.model_kinds.adapters import peft, save_adapter
from tests.dataops.model_kinds.folders import bert_config, save, transformers, write_tokenizer
from tests.dataops.training.texts import CLASSES, learn, reviews, served, task

CLOSE = 1e-5


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders ``base`` (a classifier), ``value`` (a regression) and ``tone`` (an adapter of the base)."""
    folder = tmp_path_factory.mktemp("home")
    transformers()
    size = len(write_tokenizer(folder / "base"))
    base = save(folder / "base", "BertForSequenceClassification", bert_config(size, num_labels=2))
    write_tokenizer(folder / "value")
    save(folder / "value", "BertForSequenceClassification", bert_config(size, num_labels=1), seed=1)
    config = peft().LoraConfig(
        task_type="SEQ_CLS", target_modules=["query", "value"], r=3, lora_alpha=7,
        modules_to_save=["classifier"],
    )  # fmt: skip
    save_adapter(base, config, folder / "tone", seed=5)
    return folder


def classifier(**more: Any) -> Source:
    return Source("hf", "base", inputs=("text",), classes=CLASSES, **more)


def logits(learner: AnswerLearner, rows: Batch) -> torch.Tensor:
    fed = learner.encode(rows).tensors
    fed.pop(LABEL)
    learner.module.eval()
    with torch.inference_mode():
        return learner.answers(fed)


# ---- labels ----------------------------------------------------------------------------------------------


def test_labels_of_any_spelling_are_learned_as_class_numbers() -> None:
    rows = Batch.from_columns({"id": ["a", "b", "c"], "label.y": ["1", "0", "1"]}, model="m")
    assert targets_of(rows, "y", [0, 1]).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("values", "classes", "told"),
    [
        (["good", "great", None], CLASSES, "record 'b': label.y: one of the classes 'bad', 'good' expected, "
         "got 'great' (2 of 3 rows so)"),
        ([1.0, float("inf"), 2.0], (), "record 'b': label.y: a finite number expected, got inf (1 of 3"),
        (["1", "2", "x"], (), "record 'a': label.y: a finite number expected, got '1' (3 of 3"),
    ],
)  # fmt: skip
def test_label_that_cannot_be_learned_is_named(values: list[Any], classes: Any, told: str) -> None:
    rows = Batch.from_columns({"id": ["a", "b", "c"], "label.y": values}, model="m")
    with pytest.raises(ValidationRefused) as refused:
        targets_of(rows, "y", classes)
    assert told in str(refused.value)
    with pytest.raises(ValidationRefused, match=r"no column label\.z; nearest: label\.y"):
        targets_of(rows, "z", classes)


def test_losses_of_rows_are_those_of_torch() -> None:
    torch.manual_seed(0)
    out, classes, values = torch.randn(5, 3), torch.randint(3, (5,)), torch.randn(5, 3)
    mean = torch.nn.functional.cross_entropy(out, classes)
    torch.testing.assert_close(row_losses(out, classes).mean(), mean)
    torch.testing.assert_close(row_losses(out, values).mean(), torch.nn.functional.mse_loss(out, values))
    assert row_losses(torch.randn(5, 1), torch.randn(5)).shape == (5,)


# ---- all weights -----------------------------------------------------------------------------------------


def test_classifier_learns_and_answers_alike_when_served(home: Path, tmp_path: Path) -> None:
    rows = reviews()
    learner = full_learner(task(home, tmp_path, classifier()))
    losses = learn(learner, rows, steps=30, rate=3e-3)
    assert losses[-1] < 0.2 < losses[0]
    made = learner.trained(tmp_path)
    assert made.source == classifier()
    answers = served(home, made, rows)
    assert answers["label"].tolist() == rows.column("label.label").tolist()
    torch.testing.assert_close(
        torch.from_numpy(answers["probs"]), logits(learner, rows).softmax(1), rtol=CLOSE, atol=CLOSE
    )
    assert learner.trained(tmp_path).weights == made.weights


@pytest.mark.costly("a model is trained, which is what it is about")
def test_regression_learns_numbers(home: Path, tmp_path: Path) -> None:
    rows = reviews()
    values = (rows.column("label.label") == "good").astype(np.float32) * 4 - 2
    rows = rows.with_columns({"label.label": values})
    source = Source("hf", "value", task="other", inputs=("text",))
    learner = full_learner(task(home, tmp_path, source))
    losses = learn(learner, rows, steps=40, rate=3e-3)
    assert losses[-1] < 0.2 < 2 < losses[0]
    answers = served(home, learner.trained(tmp_path), rows)
    assert np.corrcoef(answers["value"], values)[0, 1] > 0.9


def test_half_precision_is_trained_whole_and_kept_as_it_came(home: Path, tmp_path: Path) -> None:
    source = classifier(options={"dtype": "bfloat16"})
    learner = full_learner(task(home, tmp_path, source))
    before = {name: tensor.clone() for name, tensor in learner.module.state_dict().items()}
    assert {p.dtype for p in learner.module.parameters()} == {torch.float32}
    learn(learner, reviews(8), steps=1, rate=1e-3)
    kept = load_tensors(learner.trained(tmp_path).weights or b"")
    assert {tensor.dtype for tensor in kept.values()} <= {torch.bfloat16, torch.int64}
    assert any(not torch.equal(before[name], tensor.float()) for name, tensor in kept.items())


# ---- LoRA ------------------------------------------------------------------------------------------------


def test_continued_adapter_begins_where_the_champion_stands(home: Path, tmp_path: Path) -> None:
    rows, source = reviews(), classifier(adapter="tone")
    learner = lora_learner(task(home, tmp_path, source))
    champion = load_model(source, folder=home)
    assert isinstance(champion, AdaptedRunner)
    fed = champion.encode(rows).tensors
    with torch.inference_mode():
        expected = row_losses(champion.run(fed)["out"], targets_of(rows, "label", CLASSES))
        learner.module.eval()
        found = learner.losses(learner.encode(rows))
    torch.testing.assert_close(found, expected, rtol=CLOSE, atol=CLOSE)


def test_continued_adapter_runs_no_expression_of_its_folder(home: Path, tmp_path: Path) -> None:
    folder = home / "expression"
    shutil.copytree(home / "tone", folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    config |= {"target_modules": "(.*)*X", "exclude_modules": "(.*)*Y"}  # PEFT would look for them for ever
    (folder / "adapter_config.json").write_text(json.dumps(config))
    learner = lora_learner(task(home, tmp_path, classifier(adapter="expression")))
    learner.trained(tmp_path)
    written = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert set(written["target_modules"]) == set(read_adapter(home / "tone").low_rank)


@pytest.mark.parametrize("adapter", ["tone", None])
def test_adapter_learns_and_answers_alike_when_served(
    home: Path, tmp_path: Path, adapter: str | None
) -> None:
    rows = reviews()
    options = {"lora": {"rank": 4, "layers": ["query", "value", "dense"]}}
    learner = lora_learner(task(home, tmp_path, classifier(adapter=adapter), options=options))
    base = {n: p.clone() for n, p in learner.module.named_parameters() if not p.requires_grad}
    losses = learn(learner, rows, steps=40, rate=1e-2)
    assert losses[-1] < 0.2 < losses[0]
    assert all(torch.equal(p, base[n]) for n, p in learner.module.named_parameters() if n in base)
    made = learner.trained(tmp_path)
    assert sorted(made.files) == ["adapter_config.json", "adapter_model.safetensors"]
    assert made.source.adapter is None
    assert made.weights is None
    read = read_adapter(tmp_path / "adapter")
    assert len(read.low_rank) == (4 if adapter else 2 * 5 + 1)
    assert sorted(read.replaced) == ["classifier.bias", "classifier.weight"]
    answers = served(home, made, rows)
    torch.testing.assert_close(
        torch.from_numpy(answers["probs"]), logits(learner, rows).softmax(1), rtol=CLOSE, atol=CLOSE
    )


def test_new_adapter_changes_nothing_before_it_learns(home: Path, tmp_path: Path) -> None:
    rows = reviews()
    learner = lora_learner(task(home, tmp_path, classifier()))
    base = load_model(classifier(), folder=home)
    assert isinstance(learner, LoraLearner)
    torch.testing.assert_close(
        logits(learner, rows).softmax(1),
        torch.from_numpy(as_predictor(base)(rows)["probs"]),
        rtol=0,
        atol=1e-6,
    )


def test_equal_adapters_are_written_as_equal_bytes(home: Path, tmp_path: Path) -> None:
    written = []
    for name in ("one", "two"):
        learner = lora_learner(task(home, tmp_path / name, classifier()))
        learn(learner, reviews(), steps=3, rate=1e-3)
        files = learner.trained(tmp_path / name).files
        written.append({name: path.read_bytes() for name, path in files.items()})
    assert written[0] == written[1]
    config = json.loads(written[0]["adapter_config.json"])
    assert config["base_model_name_or_path"] == "base"
    assert config["target_modules"] == sorted(config["target_modules"])


def test_adapter_over_weights_of_its_own_keeps_them(home: Path, tmp_path: Path) -> None:
    whole = full_learner(task(home, tmp_path, classifier()))
    learn(whole, reviews(), steps=2, rate=1e-2)
    weights = whole.trained(tmp_path).weights
    made = lora_learner(task(home, tmp_path, classifier(), weights=weights))
    torch.testing.assert_close(logits(made, reviews()), logits(whole, reviews()), rtol=CLOSE, atol=CLOSE)
    assert made.trained(tmp_path).weights == weights


def test_unknown_layer_is_named(home: Path, tmp_path: Path) -> None:
    wrong = task(home, tmp_path, classifier(), options={"lora": {"layers": ["q_proj"]}})
    with pytest.raises(ConfigError, match=r"lora\.layers: 'q_proj' .* there are dense, key, query, value"):
        lora_learner(wrong)
    with pytest.raises(ConfigError, match="'lora' expected, got 'full'"):
        full_learner(task(home, tmp_path, classifier(adapter="tone")))
