"""An intent that the model was never shown arrives, and is learned from 200 labels of flagged queries.

``python -m benchmarks.improvement.intents`` trains, for each of six intents of clinc150, a classifier of all
others: the intent is one of its classes, without a row. Then queries come, 4 % of them of that intent and 3 %
out of scope; those with a low score are flagged, and a person labels 200 of them by what they are. They are
learned with the old rows rehearsed, beside 200 random labels; measured on the rows of the part ``test``.

``--tune`` measures other intents on rows of the part ``val`` alone: settings were chosen by it.
"""

import argparse
import logging
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.assertions import Batch
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.dataops.training.trainer import TrainedModel, TrainingTask
from outrider.dataops.training.trainers import train_version

from ._gains import show_gain
from ._intents_net import encoded, net

TUNED = ("translate", "pto_request", "timer")
INTENTS, LABELS = 6, 200
UNSURE = 0.5
OPTIONS: dict[str, Any] = {"epochs": 12, "learning_rate": 1e-2, "replay_ratio": 10.0, "batch_rows": 64}
BASE_EPOCHS, BASE_RATE = 10, 5e-3
STEM = "improvement.intents"


@dataclass(frozen=True, slots=True)
class Queries:
    """Encoded queries with their intents."""

    words: NDArray[np.int64]
    label: NDArray[Any]

    def take(self, rows: NDArray[Any]) -> "Queries":
        """Queries by place."""
        return Queries(self.words[rows], self.label[rows])

    def batch(self) -> Batch:
        """Records without labels."""
        ids = [str(row) for row in range(len(self.label))]
        return Batch.from_columns({"id": ids, "inputs.words": self.words}, model="intents")

    def mapped(self, folder: Path, name: str) -> MappedRows:
        """Labelled rows in a mapped file, as of a dataset version."""
        table = self.batch().with_columns({"label.label": self.label.astype(str)}).to_arrow()
        path = folder / f"{name}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write(table)
        return MappedRows(f"{name}@1 train", name, path)


@dataclass(slots=True)
class Found:
    """Right answers of each intent's run (not a number where the row is of that intent), and labels."""

    new: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    others: list[NDArray[np.float64]] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    of_it: list[int] = field(default_factory=list)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    every = known_intents()
    others = [name for name in every if name not in (*TUNED, "oos")]
    drawn = np.random.default_rng(0).choice(others, INTENTS, replace=False)
    show(tuple(map(str, TUNED if given.tune else drawn)), is_tuned=given.tune)


def show(intents: tuple[str, ...], *, is_tuned: bool) -> None:
    """Measure every intent, and print."""
    found = {name: Found() for name in ("base", "flagged", "random")}
    for seed, intent in enumerate(intents):
        NewIntent(intent, seed, is_tuned).add_to(found)
    base = found["base"]
    data = f"clinc150, {len(intents)} intents, {LABELS} labels"
    right, rows = round(sum(np.multiply(base.new, base.rows))), sum(base.rows)
    Figure.of_share(f"{STEM}.before.new", right, rows, "of answers", data=data).show()
    for name in ("flagged", "random"):
        one = found[name]
        show_gain(f"{STEM}.{name}.new", np.subtract(one.new, base.new), 0.0, data)
        show_gain(f"{STEM}.{name}.others", gain(one, base), -0.01, data)
    flagged, random = found["flagged"], found["random"]
    show_gain(f"{STEM}.against_random.new", np.subtract(flagged.new, random.new), 0.0, data)
    show_gain(f"{STEM}.against_random.others", gain(flagged, random), None, data)
    lines = [
        "| learned | of them new | new intent | other intents | out of scope |",
        "|---|---:|---|---|---|",
    ]
    for name, title in (("base", "nothing"), *((n, f"{LABELS} {n} labels") for n in ("flagged", "random"))):
        one = found[name]
        many = f"{np.mean(one.of_it):.0f}" if one.of_it else ""
        shares = np.mean(one.new), np.nanmean(one.others), np.mean(one.outside)
        lines.append(f"| {title} | {many} | " + " | ".join(f"{share:.3f}" for share in shares) + " |")
    show_table("recall", "\n".join(lines))
    for intent, *recalls in zip(intents, *(one.new for one in found.values()), strict=True):
        print(f"# {intent}: " + ", ".join(f"{recall:.2f}" for recall in recalls))


def gain(one: Found, other: Found) -> NDArray[np.float64]:
    """Difference of each row, its mean over the intents that were held back."""
    mean: NDArray[np.float64] = np.nanmean(np.subtract(one.others, other.others), axis=0)
    return mean


class NewIntent:
    """One intent held back: a model of the others, traffic, flags."""

    def __init__(self, intent: str, seed: int, is_tuned: bool) -> None:
        self._intent, self._seed = intent, seed
        rows = frame()
        is_new, is_odd = rows.label == intent, np.arange(len(rows)) % 2 == 1
        learned = rows.split.isin(("train", "oos_train"))
        later = rows.split.isin(("val", "oos_val"))
        tested = later & is_odd if is_tuned else rows.split.isin(("test", "oos_test"))
        self._known = queries(learned & ~is_new)
        self._pool = queries((later | (learned & is_new)) & ~tested)
        self._test = queries(tested)
        self._source = Source(
            "torch", "_intents_net.py:net", inputs=("words",), classes=known_intents()
        )  # the new one is declared
        self._weights = self._base()
        self._flagged = np.flatnonzero(self._said(self._weights, self._pool)["score"] < UNSURE)

    def add_to(self, found: dict[str, Found]) -> None:
        """Measure the base, and what it learns from flagged and from random queries."""
        self._measure(self._weights, found["base"])
        for name, rows in (("flagged", self._flagged), ("random", np.arange(len(self._pool.label)))):
            draw = np.random.default_rng(self._seed)
            some = self._pool.take(draw.choice(rows, min(LABELS, len(rows)), replace=False))
            found[name].of_it.append(int((some.label == self._intent).sum()))
            made = self._learned(some)
            assert made.weights is not None
            self._measure(made.weights, found[name])

    def _learned(self, some: Queries) -> TrainedModel:
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            task = TrainingTask(
                "intents", "intents@1", self._source, self._weights, some.mapped(work, "labelled"),
                self._known.mapped(work, "old"), "label", OPTIONS, seed=self._seed,
                base=Path(__file__).parent, work=work,
            )  # fmt: skip
            return train_version(task, lambda _: None)

    def _measure(self, weights: bytes, found: Found) -> None:
        label = self._test.label
        right = np.asarray(self._said(weights, self._test)["label"] == label, dtype=np.float64)
        is_new, is_outside = label == self._intent, label == "oos"
        found.new.append(float(right[is_new].mean()))
        found.rows.append(int(is_new.sum()))
        found.outside.append(float(right[is_outside].mean()))
        found.others.append(np.where(is_new, np.nan, right)[~is_outside])

    def _said(self, weights: bytes, some: Queries) -> dict[str, Any]:
        model = load_model(self._source, folder=Path(__file__).parent, weights=weights)
        return dict(as_predictor(model)(some.batch()))

    def _base(self) -> bytes:
        at = {name: number for number, name in enumerate(known_intents())}
        x = torch.from_numpy(self._known.words)
        y = torch.tensor([at[name] for name in self._known.label])
        torch.manual_seed(self._seed)
        module = net()
        optimiser = torch.optim.Adam(module.parameters(), lr=BASE_RATE)
        module.train()
        for _ in range(BASE_EPOCHS):
            for rows in torch.randperm(len(x)).split(64):  # type: ignore[no-untyped-call]
                loss = torch.nn.functional.cross_entropy(module(x[rows]), y[rows])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        return dump_weights(module.state_dict())


@cache
def frame() -> pd.DataFrame:
    """All queries, shuffled."""
    rows = pd.read_parquet(data_folder("clinc150") / "data_full.parquet")
    return rows.sample(frac=1.0, random_state=0, ignore_index=True)


@cache
def known_intents() -> tuple[str, ...]:
    """Names of all classes."""
    return tuple(sorted(frame().label.unique()))


def queries(rows: "pd.Series[bool]") -> Queries:
    """Queries that are chosen, encoded."""
    some = frame()[rows]
    return Queries(encoded(some.text.tolist()), some.label.to_numpy(dtype=object))


if __name__ == "__main__":
    main()
