"""docs/improvement.md: each of its models is trained by a job of its own settings, and answers better."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.user_code import load_callable
from tests.dataops.model_kinds.adapters import peft, save_adapter
from tests.dataops.model_kinds.folders import bert_config, gpt2_config, save, transformers, write_tokenizer
from tests.dataops.training.texts import reviews
from tests.improved_projects import World, world
from tests.requirements import require_package

PAGE = Path(__file__).parents[2] / "docs" / "improvement.md"
TEXT = PAGE.read_text(encoding="utf-8")
TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}{{ eos_token }}{% else %} is "
    "{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Project of the whole page, with small models in its folders."""
    transformers()
    require_package("skl2onnx", "pip install outrider[onnx]")
    folder = tmp_path_factory.mktemp("guide")
    for name, code in re.findall(r"\*\*`([\w.]+)`\*\*\n```python\n(.*?)```", TEXT, re.DOTALL):
        (folder / name).write_text(code, encoding="utf-8")
    torch.manual_seed(0)
    module = load_callable("net.py:net", folder)()
    (folder / "net.safetensors").write_bytes(dump_weights(module.state_dict()))
    size = len(write_tokenizer(folder / "base"))
    base = save(folder / "base", "BertForSequenceClassification", bert_config(size, num_labels=2))
    config = peft().LoraConfig(target_modules=["query", "value"], r=4, modules_to_save=["classifier"])
    save_adapter(base, config, folder / "tone", seed=5)
    tokenizer = write_tokenizer(folder / "chat", specials=False)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "chat")
    words = gpt2_config(len(tokenizer))
    words.resid_pdrop = words.embd_pdrop = words.attn_pdrop = 0.0
    model = save(folder / "chat", "GPT2LMHeadModel", words)
    with torch.no_grad():  # words far from each other: low rank then suffices
        model.transformer.wte.weight.mul_(15)
    model.save_pretrained(folder / "chat")
    settings = "\n".join(re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL))
    with world(folder, settings + '\n[worker]\ndevice = "cpu"\n') as project:
        yield project


def people(seed: int, first: str, second: str, rows: int = 160) -> tuple[Batch, list[str]]:
    """Two numbers; ``yes`` where the first is the greater."""
    draw = np.random.default_rng(seed)
    x = draw.normal(0, 2, (rows, 2))
    columns = {"id": [f"p{seed}-{row}" for row in range(rows)], f"inputs.{first}": x[:, 0]}
    labels = np.where(x[:, 0] > x[:, 1], "yes", "no").tolist()
    return Batch.from_columns(columns | {f"inputs.{second}": x[:, 1]}, model="m"), labels


def texts(seed: int) -> tuple[Batch, list[str]]:
    rows = reviews(160, seed=seed)
    return rows, rows.column("label.label").tolist()


def talks(seed: int) -> tuple[Batch, list[str]]:
    rows, labels = texts(seed)
    return rows, [f"{label} film" for label in labels]


ROWS: dict[str, Any] = {
    "loans": lambda seed: people(seed, "income", "debt"),
    "reviews": texts,
    "tone": texts,
    "chat": talks,
    "churn": lambda seed: people(seed, "age", "hours"),
    "small_loans": lambda seed: people(seed, "income", "debt"),
}
KINDS = {
    "loans": "torch",
    "reviews": "hf",
    "tone": "hf",
    "chat": "hf",
    "churn": "onnx",
    "small_loans": "torch",
}


def test_page_names_every_model(made: World) -> None:
    assert sorted(made.settings.models) == sorted(ROWS)


@pytest.mark.costly("a model is trained, which is what it is about")
@pytest.mark.parametrize("model", ROWS)
def test_model_of_the_page_is_trained_and_answers(made: World, model: str) -> None:
    made.model = model
    made.flag(*ROWS[model](1))
    job = made.retrain()
    assert job.result.get("candidate") == "2", job.result
    if model != "small_loans":  # whose champion is right already
        assert job.result["promoted"], job.result
    source = Source.from_json(made.version("2").source or "")
    assert source.kind == KINDS[model]
    test, labels = ROWS[model](2)
    field = "text" if model == "chat" else "label"
    said = np.asarray(made.answers("2", test)[field])
    assert np.mean(said == np.asarray(labels)) > 0.9


def test_files_of_the_page_make_a_function(made: World) -> None:
    frame, labels = people(3, "age", "hours")

    class Rows:
        x = frame.inputs
        y = np.asarray(labels)
        classes = ("no", "yes")

    folder = made.settings.base / "kept"
    folder.mkdir()
    found = load_callable("forest.py:fine_tune", made.settings.base)(None, Rows(), 0)
    np.save(folder / "means.npy", found["means"])
    predict = load_callable("forest.py:load", made.settings.base)(folder)
    assert np.mean(predict(frame)["label"] == np.asarray(labels)) > 0.9
