"""Flags of airline tweets repair a small BERT that SST-2 taught, beside as many random labels, by LoRA.

``python -m benchmarks.improvement.tweets`` trains the base, flags the first 70 % of the tweets by two lists
of words that a person could write (called positive with a word of complaint, negative with one of praise),
lets a person label some of the flagged ones, and trains an adapter on them with phrases of SST-2 rehearsed.
It is measured on the last 30 % of the tweets, and on phrases and sentences of SST-2 that nobody learned.
A service of its own then makes one repair by the clock, from the first tweet to the promoted version.
"""

import argparse
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from benchmarks.assertions._text_tasks import BAD, GOOD
from benchmarks.figure import show_table
from outrider.assertions import Batch
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.training.trainer import TrainedModel, TrainingTask
from outrider.dataops.training.trainers import train_version

from ._gains import show_gain
from ._sentiment import CLASSES, Texts, sst2, tweets, write_base
from ._tweets_service import repair

SOURCE = Source("hf", "base", inputs=("text",), classes=CLASSES)
LABELS, REHEARSED, REPAIRED = 200, 10_000, 300
OPTIONS: dict[str, Any] = {
    "method": "lora", "lora": {"rank": 8, "dropout": 0.1}, "epochs": 6, "learning_rate": 1e-3,
    "replay_ratio": 10.0, "batch_rows": 32,
}  # fmt: skip
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Measured:
    """Right answers on each part, the mean over seeds."""

    all_tweets: NDArray[np.float64]
    sst2: NDArray[np.float64]


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        write_base(Path(name) / "base")
        made = Tweets(Path(name))
        made.show(range(given.seeds))
        made.repair()


class Tweets:
    """Base, tweets and flags."""

    def __init__(self, home: Path) -> None:
        self._home = home
        every = tweets()
        cut = int(0.7 * len(every))
        self._pool, self._test = every.take(np.arange(cut)), every.take(np.arange(cut, len(every)))
        known = sst2("train")
        self._rehearsed = mapped(home, "sst2", known.take(np.arange(REHEARSED)))
        parts = sst2("test"), sst2("dev")
        self._movies = Texts(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("text", "y"))
        )
        said = self._answers(None, self._pool)
        self._flagged = np.flatnonzero(odd(self._pool, said))
        self._odd = odd(self._test, self._answers(None, self._test))
        self._base = self._measure(None)

    def show(self, seeds: Sequence[int]) -> None:
        """Train beside each other, and print."""
        chosen = {"flagged": self._flagged, "random": np.arange(len(self._pool))}
        found = {name: [self._learned(rows, seed) for seed in seeds] for name, rows in chosen.items()}
        means = {
            name: Measured(
                np.mean([one.all_tweets for one in each], axis=0), np.mean([one.sst2 for one in each], axis=0)
            )
            for name, each in found.items()
        }
        stem, base = "improvement.tweets", self._base
        data = f"{LABELS} labels, {len(seeds)} seeds, airline_tweets and sst2"
        lines = [
            "| learned | flagged tweets | all tweets | SST-2 |",
            "|---|---|---|---|",
            row("nothing: the base", base, self._odd),
        ]
        for name, mean in means.items():
            lines.append(row(f"{LABELS} {name} labels", mean, self._odd))
            show_gain(f"{stem}.{name}.slice", (mean.all_tweets - base.all_tweets)[self._odd], 0.0, data)
            show_gain(f"{stem}.{name}.tweets", mean.all_tweets - base.all_tweets, 0.0, data)
            show_gain(f"{stem}.{name}.sst2", mean.sst2 - base.sst2, -0.01, data)
        flagged, random = means["flagged"].all_tweets, means["random"].all_tweets
        show_gain(f"{stem}.against_random.slice", (flagged - random)[self._odd], 0.0, data)
        show_gain(f"{stem}.against_random.tweets", flagged - random, None, data)
        print(f"# {len(self._flagged)} of {len(self._pool)} tweets flagged, {self._odd.sum()} held out")
        show_table("accuracy", "\n".join(lines))

    def repair(self) -> None:
        """Print the stages of one repair by a service."""
        flagged = self._flagged[:REPAIRED]
        came = self._pool.take(np.arange(flagged[-1] + 1))
        labelled = {int(row): int(self._pool.y[row]) for row in flagged}
        clock = repair(self._home, sst2("train"), sst2("dev"), came, labelled)
        clock.show("improvement.tweets", f"{REPAIRED} labels at once, three in ten for the gate")

    def _learned(self, rows: NDArray[np.intp], seed: int) -> Measured:
        draw = np.random.default_rng(seed)
        some = self._pool.take(np.sort(draw.choice(rows, LABELS, replace=False)))
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            task = TrainingTask(
                "reviews", "reviews@1", SOURCE, None, mapped(work, "tweets", some), self._rehearsed, "label",
                OPTIONS, seed=seed, base=self._home, work=work,
            )  # fmt: skip
            made = train_version(task, lambda _: None)
            return self._measure(made)

    def _measure(self, made: TrainedModel | None) -> Measured:
        return Measured(*(self._right(made, texts) for texts in (self._test, self._movies)))

    def _right(self, made: TrainedModel | None, texts: Texts) -> NDArray[np.float64]:
        return np.asarray(self._answers(made, texts) == texts.y, dtype=np.float64)

    def _answers(self, made: TrainedModel | None, texts: Texts) -> NDArray[np.int64]:
        source = SOURCE
        if made is not None:  # as the service loads it
            folder = next(iter(made.files.values())).parent
            source = Source("hf", "base", inputs=("text",), classes=CLASSES, adapter=str(folder))
        predict = as_predictor(load_model(source, folder=self._home))
        order = np.argsort([len(text) for text in texts.text], kind="stable")
        found = np.empty(len(texts), np.int64)
        for start in range(0, len(order), 256):
            some = order[start : start + 256]
            said = predict(batch_of(texts.take(some)))["label"]
            found[some] = said == CLASSES[1]
        return found


def odd(texts: Texts, said: NDArray[np.int64]) -> Bools:
    """Called positive with a word of complaint, or negative with one of praise."""
    words = [{*"".join(c if c.isalnum() else " " for c in text.lower()).split()} for text in texts.text]
    blamed, praised = (np.array([bool(each & known) for each in words]) for known in (BAD, GOOD))
    return np.asarray(((said == 1) & blamed & ~praised) | ((said == 0) & praised & ~blamed))


def batch_of(texts: Texts) -> Batch:
    """Records without labels."""
    ids = [str(row) for row in range(len(texts))]
    return Batch.from_columns({"id": ids, "inputs.text": texts.text}, model="reviews")


def mapped(folder: Path, name: str, texts: Texts) -> MappedRows:
    """Labelled rows in a mapped file, as of a dataset version."""
    labels = [CLASSES[y] for y in texts.y]
    table = batch_of(texts).with_columns({"label.label": labels}).to_arrow()
    path = folder / f"{name}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write(table)
    return MappedRows(f"{name}@1 train", name, path)


def row(name: str, found: Measured, odd_rows: Bools) -> str:
    """Line of the table."""
    parts = (found.all_tweets[odd_rows], found.all_tweets, found.sst2)
    return f"| {name} | " + " | ".join(f"{part.mean():.3f}" for part in parts) + " |"


if __name__ == "__main__":
    main()
