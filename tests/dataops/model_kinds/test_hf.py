"""Hugging Face folders answer as transformers itself does, whatever company a record is in."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.content import pin
from outrider.dataops.model_kinds.hf import HfRunner
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.runner import EncodedRows
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError

from .folders import bert_config, gpt2_config, save, transformers, write_tokenizer

TEXTS = ["the film is good", "a dull plot", "the film was not very good and the plot is awful", "fine"]


def batch(*texts: str | None, **more: list[str]) -> Batch:
    columns: dict[str, Any] = {"inputs.text": list(texts)}
    return Batch.from_columns(columns | {f"inputs.{k}": v for k, v in more.items()}, model="m")


def source(task: Any, *, inputs: tuple[str, ...] = ("text",), classes: Any = (), **options: Any) -> Source:
    return Source("hf", "net", task=task, inputs=inputs, classes=classes, options=options)


def runner(made: Source, folder: Path, weights: Any = None) -> HfRunner:
    found = load_model(made, folder=folder, weights=weights)
    assert isinstance(found, HfRunner)
    return found


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that was trained until it knows good from bad."""
    folder = tmp_path_factory.mktemp("sentiment")
    tokenizer = write_tokenizer(folder / "net")
    good, bad = ("good", "great", "fine"), ("bad", "dull", "awful")
    texts = [f"{a} {noun} {verb} {word}" for a in ("a", "the") for noun in ("film", "plot")
             for verb in ("is", "was") for word in (*good, *bad)]  # fmt: skip
    labels = torch.tensor([int(text.split()[-1] in good) for text in texts])
    torch.manual_seed(0)
    config = bert_config(len(tokenizer), id2label={0: "negative", 1: "positive"})
    model = transformers().BertForSequenceClassification(config)
    fed = tokenizer(texts, return_tensors="pt", padding=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        model(**fed, labels=labels).loss.backward()
        optimizer.step()
    model.eval().save_pretrained(folder / "net")
    return folder


def test_a_trained_classifier_says_what_it_learned(sentiment: Path) -> None:
    found = as_predictor(load_model(source("classification"), folder=sentiment))(
        batch("the plot was great", "a film is awful")
    )
    assert found["label"].tolist() == ["positive", "negative"]
    assert found["score"].min() > 0.9
    assert found["probs"].shape == (2, 2)


def test_classes_of_the_configuration_stand_for_those_of_the_folder(sentiment: Path) -> None:
    predict = as_predictor(load_model(source("classification", classes=(0, 1)), folder=sentiment))
    assert predict(batch("the plot was great"))["label"].tolist() == [1]
    with pytest.raises(ConfigError, match=r"classes: 2 expected \(negative, positive\), got 3"):
        load_model(source("classification", classes=(0, 1, 2)), folder=sentiment)


def test_answers_are_those_of_transformers_and_do_not_depend_on_the_batch(sentiment: Path) -> None:
    hf = transformers()
    model = hf.AutoModelForSequenceClassification.from_pretrained(sentiment / "net").eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(sentiment / "net")
    whole = as_predictor(load_model(source("classification"), folder=sentiment))(batch(*TEXTS))
    for row, text in enumerate(TEXTS):
        with torch.inference_mode():
            want = model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
        np.testing.assert_allclose(whole["probs"][row], want.numpy(), atol=1e-6)


def test_pairs_of_texts_are_read_together(sentiment: Path) -> None:
    hf = transformers()
    made = runner(source("classification", inputs=("text", "other")), sentiment)
    rows = made.encode(batch("the film", "a plot", other=["is good", "was very bad and dull"]))
    tokenizer = hf.AutoTokenizer.from_pretrained(sentiment / "net")
    want = tokenizer(
        ["the film", "a plot"], ["is good", "was very bad and dull"], padding=True, return_tensors="pt"
    )
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert torch.equal(rows.tensors[name], want[name]), name


def test_texts_that_lose_tokens_are_told_in_whatever_company(sentiment: Path) -> None:
    made = runner(source("classification"), sentiment)
    words = [30, 31, 100, 1, 29]  # the longest takes 32 tokens, of which two begin and end it
    rows = made.encode(batch(*(" ".join(["good"] * n) for n in words)))
    cut = [n > 30 for n in words]
    assert rows.cut["text"].tolist() == cut
    assert rows.take(np.array([2, 0])).cut["text"].tolist() == [True, False]
    assert rows.slice(1, 3).cut["text"].tolist() == [True, True]
    assert EncodedRows.concat([rows.slice(0, 2), rows.slice(2, 5)]).cut["text"].tolist() == cut
    pair = runner(source("classification", inputs=("text", "other")), sentiment)
    found = pair.encode(batch("good", "good " * 40, other=["bad", "bad"]))
    assert found.cut["text"].tolist() == [False, True]
    prompts = runner(source("classification", max_tokens=8), sentiment)
    assert prompts.encode(batch("good " * 6, "good " * 7)).cut["text"].tolist() == [False, True]


def test_long_texts_are_cut_where_the_model_ends(sentiment: Path) -> None:
    made = runner(source("classification"), sentiment)
    rows = made.encode(batch(" ".join(["good"] * 100), "fine"))
    assert rows.tensors["input_ids"].shape == (2, 32)
    assert rows.lengths is not None
    assert rows.lengths.tolist() == [32, 3]
    short = runner(source("classification", max_tokens=8), sentiment)
    assert short.encode(batch(" ".join(["good"] * 100))).tensors["input_ids"].shape == (1, 8)


def test_what_is_no_text_is_named(sentiment: Path) -> None:
    made = runner(source("classification"), sentiment)
    with pytest.raises(ValueError, match=r"record '1': inputs.text: a text expected, got None"):
        made.encode(batch("fine", None))
    with pytest.raises(KeyError, match=r"no column 'inputs.text'"):
        made.encode(Batch.from_columns({"inputs.words": ["fine"]}, model="m"))


def test_other_weights_in_the_same_folder(sentiment: Path, tmp_path: Path) -> None:
    plain = as_predictor(load_model(source("classification"), folder=sentiment))(batch(*TEXTS))
    content = (sentiment / "net" / "model.safetensors").read_bytes()
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    for weights in (content, path):
        again = as_predictor(load_model(source("classification"), folder=sentiment, weights=weights))
        np.testing.assert_array_equal(again(batch(*TEXTS))["probs"], plain["probs"])
    with pytest.raises(ConfigError, match="not a safetensors file"):
        load_model(source("classification"), folder=sentiment, weights=b"\x80\x04pickle")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A token classifier that knows two people and three places, one of them in two words."""
    folder = tmp_path_factory.mktemp("names")
    tokenizer = write_tokenizer(folder / "net", pieces=("new", "york", "lis", "##bon"))
    classes = {0: "O", 1: "B-PER", 2: "B-LOC", 3: "I-LOC"}
    known = {"ada": 1, "bob": 1, "rome": 2, "paris": 2, "lis": 2, "new": 2, "york": 3}
    texts = [f"{who} {verb} in {where}" for who in ("ada", "bob") for verb in ("lives", "works")
             for where in ("rome", "lisbon", "new york")]  # fmt: skip
    texts += ["the film is fine", "a plot was not very good", "rome is great and ada was not in paris"]
    fed = tokenizer(texts, return_tensors="pt", padding=True)
    told = {tokenizer.convert_tokens_to_ids(token): label for token, label in known.items()}
    labels = fed["input_ids"].clone().apply_(lambda number: told.get(number, 0))
    torch.manual_seed(0)
    model = transformers().BertForTokenClassification(bert_config(len(tokenizer), id2label=classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(25):
        optimizer.zero_grad()
        model(**fed, labels=labels).loss.backward()
        optimizer.step()
    model.eval().save_pretrained(folder / "net")
    return folder


def test_token_classes_are_spans_of_the_text(names: Path) -> None:
    predict = as_predictor(load_model(source("tokens"), folder=names))
    texts = ["Ada lives in New  York", "the film is fine", "Bob works in Lisbon", ""]
    found = predict(batch(*texts))
    assert found["tags"].tolist() == ["B-PER O O B-LOC I-LOC", "O O O O", "B-PER O O B-LOC", ""]
    spans = [[(text[e["start"] : e["end"]], e["label"]) for e in entities]
             for text, entities in zip(texts, found["entities"], strict=True)]  # fmt: skip
    assert spans == [[("Ada", "PER"), ("New  York", "LOC")], [], [("Bob", "PER"), ("Lisbon", "LOC")], []]
    assert found["score"][3] == 1.0
    assert 0.5 < found["entities"][2][1]["score"] <= 1.0
    for row, text in enumerate(texts):
        assert predict(batch(text))["tags"][0] == found["tags"][row]


def wanted_embedding(model: Any, tokenizer: Any, text: str) -> torch.Tensor:
    with torch.inference_mode():
        states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    return torch.nn.functional.normalize(states.mean(0), dim=0)


def test_embeddings_are_means_of_unit_length(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "net")
    model = save(tmp_path / "net", "BertModel", bert_config(len(tokenizer)))
    found = as_predictor(load_model(source("embedding"), folder=tmp_path))(batch(*TEXTS))["embedding"]
    for row, text in enumerate(TEXTS):
        np.testing.assert_allclose(found[row], wanted_embedding(model, tokenizer, text).numpy(), atol=1e-6)
    last = as_predictor(load_model(source("embedding", pooling="last", normalize=False), folder=tmp_path))
    with torch.inference_mode():
        want = model(**tokenizer(TEXTS[1], return_tensors="pt")).last_hidden_state[0, -1]
    np.testing.assert_allclose(last(batch(*TEXTS))["embedding"][1], want.numpy(), atol=1e-5)
    with pytest.raises(ConfigError, match="pooling: mean, first or last"):
        load_model(source("embedding", pooling="max"), folder=tmp_path)
    with pytest.raises(ConfigError, match=r"options.poling: embedding of a folder knows max_tokens"):
        load_model(source("embedding", poling="mean"), folder=tmp_path)


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal language model that learned one sentence by heart."""
    folder = tmp_path_factory.mktemp("language")
    tokenizer = write_tokenizer(folder / "net", specials=False)
    torch.manual_seed(0)
    model = transformers().GPT2LMHeadModel(gpt2_config(len(tokenizer)))
    ids = tokenizer(["the film is very good [SEP]"] * 4, return_tensors="pt")["input_ids"]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    model.eval().save_pretrained(folder / "net")
    return folder


def test_scores_are_the_log_probabilities_of_transformers(language: Path) -> None:
    hf = transformers()
    model = hf.AutoModelForCausalLM.from_pretrained(language / "net").eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(language / "net")
    found = as_predictor(load_model(source("scoring"), folder=language))(batch(*TEXTS))
    for row, text in enumerate(TEXTS):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        count = ids.shape[1] - 1
        assert found["tokens"][row] == count
        if not count:
            assert found["score"][row] == 0.0
            continue
        with torch.inference_mode():
            loss = model(input_ids=ids, labels=ids).loss
        np.testing.assert_allclose(found["score"][row], -loss.item(), atol=1e-5)
        np.testing.assert_allclose(found["logprob"][row], -loss.item() * count, atol=1e-4)
    known, unknown = as_predictor(load_model(source("scoring"), folder=language))(
        batch("the film is very good", "good very is film the")
    )["score"]
    assert known > -0.1 > -2.0 > unknown


def test_a_second_field_is_scored_behind_the_first(language: Path) -> None:
    made = runner(source("scoring", inputs=("text", "answer")), language)
    rows = made.encode(batch("the film", "the film is", answer=["is very good", "good"]))
    assert rows.tensors["scored"].tolist() == [[0, 0, 1, 1, 1], [0, 0, 0, 1, 0]]
    found = as_predictor(made)(batch("the film", "the film is", answer=["is very good", "good"]))
    assert found["tokens"].tolist() == [3, 1]
    assert found["score"][0] > -0.1 > found["score"][1]


def test_text_is_written_until_the_model_ends(language: Path) -> None:
    predict = as_predictor(load_model(source("generation", max_new_tokens=6), folder=language))
    prompts = ["the film is", "the", "the film is very good and the plot is dull and the film"]
    found = predict(batch(*prompts))
    assert found["text"].tolist()[:2] == ["very good", "film is very good"]
    assert found["tokens"].tolist()[:2] == [3, 5]
    assert found["ended"].tolist()[:2] == [True, True]
    assert found["score"][0] > -0.1
    for row, prompt in enumerate(prompts):  # neighbours of other lengths change nothing
        alone = predict(batch(prompt))
        assert alone["text"][0] == found["text"][row]
        np.testing.assert_allclose(alone["score"][0], found["score"][row], atol=1e-5)


def test_written_tokens_are_as_likely_as_scoring_says(language: Path) -> None:
    written = as_predictor(load_model(source("generation", max_new_tokens=2), folder=language))(
        batch("the film")
    )
    assert written["text"].tolist() == ["is very"]
    assert written["ended"].tolist() == [False]
    scored = as_predictor(load_model(source("scoring", inputs=("text", "answer")), folder=language))(
        batch("the film", answer=["is very"])
    )
    np.testing.assert_allclose(written["score"], scored["score"], atol=1e-5)


def test_a_body_without_its_head_is_refused(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "net")
    save(tmp_path / "net", "BertModel", bert_config(len(tokenizer)))
    config = json.loads((tmp_path / "net" / "config.json").read_text())
    with pytest.raises(
        ConfigError, match="ForSequenceClassification model expected for task 'classification'"
    ):
        load_model(source("classification"), folder=tmp_path)
    (tmp_path / "net" / "config.json").write_text(json.dumps(config | {"architectures": None}))
    with pytest.raises(
        ConfigError, match=r"its weights lack classifier\.bias and 1 more: it would answer at random"
    ):
        load_model(source("classification"), folder=tmp_path)


def test_parts_of_encoded_rows_answer_as_the_whole(sentiment: Path) -> None:
    made = runner(source("classification"), sentiment)
    rows = made.encode(batch(*TEXTS))
    whole = made.run(rows.tensors)["out"]
    order = np.array([2, 0, 3, 1])
    parts = [made.run(rows.take(order[:2]).tensors)["out"], made.run(rows.take(order[2:]).tensors)["out"]]
    joined = made.run(EncodedRows.concat([rows.slice(0, 1), rows.slice(1, 4)]).tensors)["out"]
    torch.testing.assert_close(torch.cat(parts), whole[order], atol=1e-6, rtol=0)
    torch.testing.assert_close(joined, whole, atol=1e-6, rtol=0)


def indexed(path: Path, *parts: str) -> None:
    """A folder whose weights lie in other files, by its index."""
    path.joinpath("model.safetensors").rename(path / "evil.bin")
    index = {"weight_map": {f"layer{number}": part for number, part in enumerate(parts)}}
    path.joinpath("model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.joinpath("tokenizer.json").unlink(), "has no tokenizer"),
        (lambda path: path.joinpath("model.safetensors").unlink(), r"has no model.safetensors$"),
        (lambda path: path.joinpath("config.json").write_text("{"), "config.json cannot be read"),
        (
            lambda path: path.joinpath("config.json").write_text('{"auto_map": {"AutoModel": "x.Y"}}'),
            "needs code",
        ),
        (lambda path: path.joinpath("config.json").unlink(), "config.json does not exist"),
        (
            lambda path: path.joinpath("MLmodel").write_text("flavors: {}"),
            'MLmodel found: a model of MLflow.*predictor = "model.py:predict"',
        ),
        (lambda path: indexed(path, "evil.bin"), r"'evil.bin' is no name of a .safetensors file in this"),
        (lambda path: indexed(path, "../net/a.safetensors"), "is not opened"),
        (lambda path: indexed(path, "/etc/x.safetensors"), "is not opened"),
        (lambda path: indexed(path, ".hidden.safetensors"), "is not opened"),
        (lambda path: indexed(path, "gone.safetensors"), "gone.safetensors does not exist"),
        (lambda path: indexed(path), "weight_map expected"),
    ],
)
def test_folders_that_are_not_whole_are_refused(
    sentiment: Path, tmp_path: Path, change: Any, message: str
) -> None:
    shutil.copytree(sentiment / "net", tmp_path / "net")
    change(tmp_path / "net")
    with pytest.raises(ConfigError, match=message):
        load_model(source("classification"), folder=tmp_path)


def test_pinned_folders_are_checked_when_they_are_loaded(sentiment: Path, tmp_path: Path) -> None:
    shutil.copytree(sentiment / "net", tmp_path / "net")
    pinned = pin(source("classification"), tmp_path)
    assert load_model(pinned, folder=tmp_path)
    (tmp_path / "net" / "README.md").write_text("What it is about.", encoding="utf-8")
    assert load_model(pinned, folder=tmp_path)
    (tmp_path / "net" / "generation_config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="net has changed since the version was registered"):
        load_model(pinned, folder=tmp_path)
