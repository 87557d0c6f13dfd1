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


def compare(embed: str, *candidates: str) -> Any:
    named = [word for each in candidates for word in ("--candidate", f"models.py:{each}")]
    options = ["--from", "rows.jsonl", "--until", str(ROWS), "--embed", f"models.py:{embed}", "--json"]
    return CliRunner().invoke(app, ["compare", "--production", "models.py:production", *named, *options])


def test_texts_of_other_topics_are_told_by_their_embeddings_and_equal_ones_are_not(folder: Path) -> None:
    twin, gloomy = json.loads(compare("embed", "twin", "gloomy").stdout)["candidates"]
    assert not twin["texts"]["is_proven"]
    assert gloomy["texts"]["is_proven"]
    assert "as a whole its texts are others (energy distance 0." in gloomy["sentence"]
    assert gloomy["texts"]["distance"] > 4 * twin["texts"]["distance"]
    # No property tells them apart: of words drawn by chance, few texts share enough.
    assert {row["measure"]: row["verdict"] for row in gloomy["agreement"]}["length"] != "different"


def test_a_model_without_vectors_is_a_sentence(folder: Path) -> None:
    found = compare("no_vector", "twin")
    assert str(found.exception) == ("--embed: embedding answers outputs.length; outputs.embedding expected")
