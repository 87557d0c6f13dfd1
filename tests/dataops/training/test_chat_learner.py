"""A causal language model learns answers, and preferences, by LoRA."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.adapted import AdaptedRunner
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.training.chat_learner import CHOSEN, REJECTED, ChatLearner, chat_learner
from outrider.errors import ConfigError, ValidationRefused
from tests.dataops.model_kinds.folders import gpt2_config, save, transformers, write_tokenizer
from tests.dataops.training.texts import learn, opened, served, task

CLOSE = 1e-5
TEMPLATE = (
    "{% for m in messages %}{{ 'was ' if m['role'] == 'user' else 'is ' }}{{ m['content'] }}{{ eos_token }} "
    "{% endfor %}{% if add_generation_prompt %}is {% endif %}"
)
TALK = {"ada": "good film", "bob": "bad film", "acme": "awful plot", "paris": "great"}
OPTIONS = {"max_new_tokens": 6}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of two layers, with and without a chat template."""
    folder = tmp_path_factory.mktemp("chat")
    transformers()
    for name in ("plain", "chat"):
        made = write_tokenizer(folder / name, specials=False)
        if name == "chat":
            made.chat_template = TEMPLATE
            made.save_pretrained(folder / name)
        config = gpt2_config(len(made))
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        model = save(folder / name, "GPT2LMHeadModel", config)
        with torch.no_grad():  # words far from each other: low rank then suffices
            model.transformer.wte.weight.mul_(15)
        model.save_pretrained(folder / name)
    return folder


def source(name: str = "plain", **more: Any) -> Source:
    options = OPTIONS | ({"chat": True} if name == "chat" else {})
    return Source("hf", name, task="generation", inputs=("text",), options=options, **more)


def talks(**more: Any) -> Batch:
    columns = {
        "id": [*TALK], "inputs.text": [f"{name} was" for name in TALK], "label.label": [*TALK.values()],
        "outputs.text": ["very dull"] * len(TALK),
    }  # fmt: skip
    return Batch.from_columns(columns | more, model="chat")


def log_probs(module: Any, learner: ChatLearner, rows: Batch, prefix: str) -> torch.Tensor:
    """Sum over the answer's tokens, row by row and token by token."""
    tensors = learner.encode(rows).tensors
    found = []
    for row in range(rows.rows):
        ids, scored = tensors[f"{prefix}input_ids"][row], tensors[f"{prefix}scored"][row]
        with torch.no_grad():
            said = module(input_ids=ids[None]).logits[0].log_softmax(-1)
        found.append(sum(float(said[at - 1, ids[at]]) for at in range(1, len(ids)) if scored[at]))
    return torch.tensor(found)


@pytest.mark.parametrize("name", ["plain", "chat"])
def test_answers_are_learned_and_written_by_the_served_adapter(home: Path, tmp_path: Path, name: str) -> None:
    rows = talks()
    learner = chat_learner(task(home, tmp_path, source(name), options={"lora": {"rank": 16}}))
    assert not any(p.requires_grad for n, p in learner.module.named_parameters() if "lora_" not in n)
    losses = learn(learner, rows, steps=160, rate=1e-2)
    assert losses[-1] < 0.2 < 2 < losses[0]
    answers = served(home, learner.trained(tmp_path), rows)
    assert answers["text"].tolist() == [*TALK.values()]
    assert answers["ended"].all()


def test_first_loss_is_the_champions_on_the_tokens_of_the_answer(home: Path, tmp_path: Path) -> None:
    rows = talks()
    first = chat_learner(task(home, tmp_path, source()))
    learn(first, rows, steps=3, rate=1e-2)
    trained = opened(first.trained(tmp_path))
    learner = chat_learner(task(home, tmp_path / "next", trained))
    learner.module.eval()
    with torch.no_grad():
        losses = learner.losses(learner.encode(rows))
    champion = load_model(trained, folder=home)
    assert isinstance(champion, AdaptedRunner)
    tokens = torch.tensor([len(text.split()) + 1 for text in TALK.values()])  # and the end
    torch.testing.assert_close(
        losses, -log_probs(first.module, learner, rows, CHOSEN) / tokens, rtol=CLOSE, atol=CLOSE
    )
    before = as_predictor(champion)(rows)["text"].tolist()
    assert served(home, learner.trained(tmp_path / "next"), rows)["text"].tolist() == before


def test_chat_template_frames_prompt_and_answer(home: Path, tmp_path: Path) -> None:
    learner = chat_learner(task(home, tmp_path, source("chat")))
    found = learner.encode(talks()).tensors
    tokenizer = transformers().AutoTokenizer.from_pretrained(home / "chat")
    whole = [tokenizer.decode(ids[mask == 1]) for ids, mask in zip(
        found[f"{CHOSEN}input_ids"], found[f"{CHOSEN}attention_mask"], strict=True
    )]  # fmt: skip
    assert whole[0] == "was ada was [SEP] is good film [SEP]"
    scored = found[f"{CHOSEN}input_ids"][0][found[f"{CHOSEN}scored"][0] == 1]
    assert tokenizer.decode(scored) == "good film [SEP]"


def test_long_answers_are_cut_where_serving_stops(home: Path, tmp_path: Path) -> None:
    rows = talks(**{"label.label": ["very " * 20] * len(TALK)})
    found = chat_learner(task(home, tmp_path, source())).encode(rows).tensors
    assert found[f"{CHOSEN}scored"].sum(1).tolist() == [6] * 4


def test_preferences_follow_their_definition(home: Path, tmp_path: Path) -> None:
    rows = talks()
    options = {"objective": "dpo", "beta": 0.3, "lora": {"rank": 4, "dropout": 0.5}}
    learner = chat_learner(task(home, tmp_path, source(), options=options))
    base: Any = load_model(source(), folder=home)
    before = [log_probs(base.module, learner, rows, prefix) for prefix in (CHOSEN, REJECTED)]
    learner.module.eval()
    first = learner.losses(learner.encode(rows)).detach()
    torch.testing.assert_close(first, torch.full((4,), np.log(2).item()), rtol=0, atol=1e-5)
    learn(learner, rows, steps=20, rate=1e-2)
    after = [log_probs(learner.module, learner, rows, prefix) for prefix in (CHOSEN, REJECTED)]
    margin = (after[0] - before[0]) - (after[1] - before[1])
    with torch.no_grad():
        found = learner.losses(learner.encode(rows))
    torch.testing.assert_close(found, -torch.log(torch.sigmoid(0.3 * margin)), rtol=1e-4, atol=1e-4)
    assert (margin > 1).all()


def test_preference_without_an_answer_is_refused(home: Path, tmp_path: Path) -> None:
    rows = talks(**{"outputs.text": ["dull", None, "dull", "dull"]})
    learner = chat_learner(task(home, tmp_path, source(), options={"objective": "dpo"}))
    with pytest.raises(ValidationRefused, match=r"record 'bob': outputs\.text: .* got None.*'sft'"):
        learner.encode(rows)
    numbers = talks(**{"label.label": [1, 2, 3, 4]})
    with pytest.raises(ValidationRefused, match=r"record 'ada': label\.label: the text of an answer"):
        learner.encode(numbers)


def test_model_that_writes_nothing_is_refused(home: Path, tmp_path: Path) -> None:
    scoring = Source("hf", "plain", task="scoring", inputs=("text",))
    with pytest.raises(ConfigError, match="task 'generation' expected, got hf with task 'scoring'"):
        chat_learner(task(home, tmp_path, scoring))
