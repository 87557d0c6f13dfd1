"""A tiny BERT that SST-2 taught learns from flagged airline tweets, through jobs and gate, on real data."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.improvement._sentiment import CLASSES, Texts, sst2, tweets, write_base
from benchmarks.improvement.tweets import batch_of, odd
from outrider.assertions import Batch
from tests.dataops.model_kinds.adapters import peft
from tests.dataops.model_kinds.folders import transformers
from tests.improved_projects import World, world
from tests.soak import IS_SOAK

CONFIG = """
[models.reviews]
folder = "base"
inputs = ["text"]
classes = ["negative", "positive"]
[models.reviews.retrain]
method = "lora"
replay = "sst2-train"
replay_ratio = 10.0
epochs = 6
learning_rate = 0.002
batch_rows = 32
held_out_share = 0.3
lora = { rank = 8, dropout = 0.1 }
[models.reviews.gate]
held_out = "sst2-heldout"
max_drop = 0.03
[worker]
device = "cpu"
"""
KNOWN, LABELS = 12_000, 300


def labelled(texts: Texts, prefix: str) -> Batch:
    rows = batch_of(texts)
    ids = [f"{prefix}{row}" for row in range(len(texts))]
    return rows.with_columns({"id": ids, "label.label": [CLASSES[y] for y in texts.y]})


def right(made: World, version: str, texts: Texts) -> NDArray[np.float64]:
    said = made.answers(version, batch_of(texts))["label"]
    return np.asarray(np.asarray(said == "positive") == texts.y, dtype=np.float64)


@pytest.mark.skipif(not IS_SOAK, reason="a soak trains a BERT on SST-2")
def test_flags_of_tweets_become_a_promoted_adapter_that_keeps_what_the_base_knew(tmp_path: Path) -> None:
    transformers()
    peft()
    try:
        every, phrases = tweets(), sst2("train")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    write_base(tmp_path / "base", phrases=KNOWN, epochs=1, rate=1e-3, hidden_size=64, intermediate_size=128)
    cut = int(0.7 * len(every))
    pool, test = every.take(np.arange(cut)), every.take(np.arange(cut, len(every)))
    with world(tmp_path, CONFIG) as made:
        made.bring("sst2-train", labelled(phrases.take(np.arange(3000)), "train"))
        unseen = phrases.take(np.arange(KNOWN, KNOWN + 2500))
        made.bring("sst2-heldout", labelled(unseen, "held"))
        said = made.answers("1", batch_of(pool))["label"] == "positive"
        flagged = pool.take(np.flatnonzero(odd(pool, said.astype(np.int64)))[:LABELS])
        made.flag(labelled(flagged, "tweet"), [CLASSES[y] for y in flagged.y])
        job = made.retrain()
        assert job.result["promoted"], job.result["reasons"]
        base = made.answers("1", batch_of(test))["label"] == "positive"
        slice_ = test.take(np.flatnonzero(odd(test, base.astype(np.int64))))
        gain = right(made, "2", slice_) - right(made, "1", slice_)
        assert gain.mean() - 1.96 * gain.std() / len(gain) ** 0.5 > 0.1
        assert right(made, "2", unseen).mean() > right(made, "1", unseen).mean() - 0.02
