"""Texts are compared as a whole by the energy distance of their embeddings."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli import app

MODELS = """
import os

import numpy as np

WORDS = np.array("rain wind cloud storm sun frost mist hail snow heat".split(), dtype=object)
RANDOM = np.random.default_rng(os.getpid())


def said(batch, odds):
    texts = [" ".join(RANDOM.choice(WORDS, 12, p=odds)) for _ in range(batch.rows)]
    return {"text": np.array(texts, dtype=object)}


def production(batch):
    return said(batch, np.full(10, 0.1))


def twin(batch):
    return said(batch, np.full(10, 0.1))


def gloomy(batch):
    return said(batch, np.array([0.16] * 5 + [0.04] * 5))


def numbered(batch, days):
    marks = RANDOM.choice([".", "!", " ..."], batch.rows)
    texts = [f"within {days + x % 7} days{m}" for x, m in zip(batch.column("inputs.x"), marks)]
    return {"text": np.array(texts, dtype=object)}


def terms(batch):
    return numbered(batch, 30)


def terms_again(batch):
    return numbered(batch, 30)


def other_terms(batch):
    return numbered(batch, 90)


def letters(batch):
    texts = [f" {''.join(c for c in text.lower() if c.isalnum())} " for text in batch.column("inputs.text")]
    found = np.zeros((len(texts), 256))
    for row, text in enumerate(texts):
        for one, two in zip(text, text[1:]):
            found[row, (7 * ord(one) + ord(two)) % 256] += 1
    return {"embedding": found}


def one_vector(batch):
    return {"embedding": np.ones((batch.rows, 3))}


def embed(batch):
    counts = [[text.split().count(word) for word in WORDS] for text in batch.column("inputs.text")]
    return {"embedding": np.array(counts, dtype=float)}


def no_vector(batch):
    return {"length": np.array([float(len(text)) for text in batch.column("inputs.text")])}
"""
ROWS = 600


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    rows = (json.dumps({"id": str(x), "inputs": {"x": x}}) + "\n" for x in range(ROWS))
    (tmp_path / "rows.jsonl").write_text("".join(rows), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compare(embed: str, *candidates: str, production: str = "production", more: tuple[str, ...] = ()) -> Any:
    named = [word for each in candidates for word in ("--candidate", f"models.py:{each}")]
    options = ["--from", "rows.jsonl", "--until", str(ROWS), "--embed", f"models.py:{embed}", "--json", *more]
    return CliRunner().invoke(app, ["compare", "--production", f"models.py:{production}", *named, *options])


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_texts_of_other_topics_are_told_by_their_embeddings_and_equal_ones_are_not(folder: Path) -> None:
    twin, gloomy = json.loads(compare("embed", "twin", "gloomy").stdout)["candidates"]
    assert not twin["texts"]["is_proven"]
    assert gloomy["texts"]["is_proven"]
    assert "as a whole its texts are others (energy distance 0." in gloomy["sentence"]
    assert gloomy["texts"]["distance"] > 4 * twin["texts"]["distance"]
    # No property tells them apart: of words drawn by chance, few texts share enough.
    assert {row["measure"]: row["verdict"] for row in gloomy["agreement"]}["length"] != "different"


AGREE = ("--agree", "embedding", "--margin", "0.05")


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_agree_embedding_says_same_and_different_by_vectors_of_a_model(folder: Path) -> None:
    found = compare("letters", "terms_again", "other_terms", production="terms", more=AGREE)
    equal, other = json.loads(found.stdout)["candidates"]
    assert (equal["verdict"], other["verdict"]) == ("same", "different")
    assert equal["agreement"][0]["measure"] == "embedding"
    assert "(embedding)" in other["sentence"]


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_agree_embedding_is_undecided_by_a_model_that_shows_no_exchange(folder: Path) -> None:
    found = compare("one_vector", "other_terms", production="terms", more=AGREE)
    assert found.exit_code == 6
    assert "number or word exchanged in 100 %" in json.loads(found.stdout)["candidates"][0]["sentence"]


def test_agree_embedding_without_a_model_is_a_sentence(folder: Path) -> None:
    options = ["compare", "--candidate", "models.py:twin", "--from", "rows.jsonl", "--agree", "embedding"]
    found = CliRunner().invoke(app, options)
    assert str(found.exception).startswith("--agree embedding needs --embed")


def test_a_model_without_vectors_is_a_sentence(folder: Path) -> None:
    found = compare("no_vector", "twin")
    assert str(found.exception) == ("--embed: embedding answers outputs.length; outputs.embedding expected")
