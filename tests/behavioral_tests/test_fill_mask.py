"""With a real BERT of 300 numbers, randomly initialised and saved to a folder."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.behavioral_tests import template
from outrider.behavioral_tests.suggestions import FillMask
from outrider.behavioral_tests.suggestions.fill_mask import contexts
from tests.requirements import require_package

WORDS = ["film", "food", "really", "very", "good", "bad", "great", "an", "a", "the", "was", "is", "this"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##ly", "##ness", ".", "!", "7"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = require_package("transformers", "pip install 'outrider[hf]'")
    import torch

    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        initializer_range=1.0,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> FillMask:
    return FillMask(folder)


def plain_log_probabilities(folder: Path, text: str) -> Any:
    """One text at a time, straight from transformers: shape (masks, vocabulary)."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    bert = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = bert(**encoded).logits[0]
    return torch.log_softmax(logits[encoded["input_ids"][0] == tokenizer.mask_token_id], dim=-1).numpy()


def test_words_are_ranked_by_their_mean_probability_over_the_contexts(folder: Path, model: FillMask) -> None:
    found = model.suggest("The {thing} was {mask}.", top=5, thing=["film", "food"])
    plain = [plain_log_probabilities(folder, f"The {thing} was [MASK].")[0] for thing in ("film", "food")]
    mean = np.mean(plain, axis=0)
    expected = sorted(WORDS, key=lambda word: -mean[VOCABULARY.index(word)])[:5]
    assert [each.words for each in found] == [(word,) for word in expected]
    assert found[0].score == pytest.approx(mean[VOCABULARY.index(expected[0])], abs=1e-5)


def test_pieces_numbers_and_special_tokens_are_no_words(model: FillMask) -> None:
    found = model.suggest("This is {mask}.", top=100)
    assert sorted(each.words[0] for each in found) == sorted(WORDS)


def test_several_masks_are_filled_from_left_to_right(folder: Path, model: FillMask) -> None:
    found = model.suggest("This was {mask} {mask}.", top=100)
    assert len(found) == 100
    first = plain_log_probabilities(folder, "This was [MASK] [MASK].")[0]
    best = found[0]
    second = plain_log_probabilities(folder, f"This was {best.words[0]} [MASK].")[0]
    scores = [first[VOCABULARY.index(best.words[0])], second[VOCABULARY.index(best.words[1])]]
    assert best.score == pytest.approx(np.mean(scores), abs=1e-5)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_batches_do_not_change_the_answer(folder: Path, model: FillMask) -> None:
    alone = FillMask(folder, batch_rows=1).suggest("The {thing} is {mask}!", thing=["film", "food really"])
    together = model.suggest("The {thing} is {mask}!", thing=["film", "food really"])
    assert [each.words for each in alone] == [each.words for each in together]
    assert np.allclose([each.score for each in alone], [each.score for each in together], atol=1e-5)


def test_a_template_asks_the_model_for_its_mask(model: FillMask) -> None:
    asked = template("The {thing} was {mask}.", thing=["film"], mask=model)
    assert asked.choices["mask"] == model.words("The {thing} was {mask}.", {"thing": ["film"]})
    two = template("{mask} {mask} {thing}", thing=["film"], mask=model).product(limit=3)
    first = two.slots[0]["mask"]
    assert two.values[0] == f"{first[0]} {first[1]} film"


def test_the_article_of_a_mask_is_left_open() -> None:
    texts, masks = contexts("{a:mask} {x}", "[MASK]", {"x": ["film"]}, rows=9)
    assert (texts, masks) == (["a [MASK] film", "an [MASK] film"], 1)
    filled = template("{a:mask} {mask}", mask=[("odd", "film")]).product()
    assert filled.values == ("an odd film",)


def test_contexts_need_as_many_masks_in_each_text() -> None:
    with pytest.raises(ValueError, match="as many"):
        contexts(["{mask} {mask}", "{mask}"], "[MASK]", {}, rows=1)
    with pytest.raises(ValueError, match="mask"):
        contexts("none", "[MASK]", {}, rows=1)


def test_words_that_fit_a_context_are_kept(folder: Path, model: FillMask) -> None:
    texts = ["the film was good.", "the food was good."]
    means = np.mean(
        [plain_log_probabilities(folder, text.replace("good", "[MASK]"))[0] for text in texts], axis=0
    )
    gaps = {
        word: means[VOCABULARY.index("good")] - means[VOCABULARY.index(word)] for word in ("bad", "great")
    }
    between = sum(gaps.values()) / 2
    kept = model.fitting(texts, "good", ["bad", "great"], threshold=between)
    assert kept == tuple(word for word, gap in gaps.items() if gap <= between)
    everything = model.fitting(texts, "good", ["badly", "great", "bad"], threshold=1e9)
    assert set(everything) == {"badly", "great", "bad"}, "a word of two pieces is scored too"
    with pytest.raises(ValueError, match="must stand"):
        model.fitting(["the film"], "good", ["bad"])


def test_replacements_leave_the_word_itself_out(model: FillMask) -> None:
    found = model.replacements(["the film was good {really}."], "good", top=100)
    assert sorted(each.words[0] for each in found) == sorted(set(WORDS) - {"good"})


def test_without_transformers_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"outrider\[hf\]"):
        FillMask("anything")


def test_a_byte_level_vocabulary_gives_words_too(tmp_path: Path) -> None:
    transformers = require_package("transformers", "pip install 'outrider[hf]'")
    import tokenizers
    import torch

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bytes_pairs = tokenizers.ByteLevelBPETokenizer()
    sentences = ["the film was really good", "the naïve café was so so good", "a bad film, a good café"] * 20
    bytes_pairs.train_from_iterator(sentences, vocab_size=340, special_tokens=special, show_progress=False)
    (tmp_path / "vocab").mkdir()
    bytes_pairs.save_model(str(tmp_path / "vocab"))
    tokenizer = transformers.RobertaTokenizer.from_pretrained(tmp_path / "vocab")
    tokenizer.save_pretrained(tmp_path / "roberta")
    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
        pad_token_id=tokenizer.pad_token_id,
    )
    transformers.RobertaForMaskedLM(config).save_pretrained(tmp_path / "roberta")
    found = {each.words[0] for each in FillMask(tmp_path / "roberta").suggest("the film was {mask}", top=500)}
    assert {"good", "film", "café"} <= found
    assert all(word.isalpha() for word in found)
