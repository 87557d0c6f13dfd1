"""Learned assertions rank faults put into true tracks above what is right; each sequence is left out once.

Of ten sequences the densities are fitted on nine, or on a single one, and asked about another, whose faults
are put in with three seeds. The constants of the product stand beside others. ``--write`` writes
``benchmarks/results/assertions.learned.json``.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from unittest.mock import patch

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.assertions._videos import DETECTIONS, SIDES, frames_batch, kitti, kitti_sequences
from benchmarks.figure import Figure
from benchmarks.results import Result, plain, write
from outrider.assertions import Batch
from outrider.assertions.learn import observations as densities
from outrider.assertions.learn.observations import Observations, learn_observations, rank_tracks

Floats = NDArray[np.float64]
HORIZON = 172.0
"""Row of the picture in which KITTI's camera sees the horizon, pixels."""
CLASSES = np.array(["Car", "Van", "Truck", "Pedestrian", "Cyclist"], dtype=object)
FIELDS = (*SIDES, "class_name", "id", "faulty")
KINDS = ("boxes", "tracks")
SEEDS = (0, 1, 2)
CONSTANTS = ((0.45, 50.0), (0.9, 50.0), (1.8, 50.0), (3.6, 50.0), (0.9, 20.0), (0.9, 10.0), (0.9, 5.0))
"""Bandwidths and greatest surprises that were tried; the second is the product's."""


def column(name: str) -> str:
    """Full name of a field."""
    return f"{DETECTIONS}.{name}"


def side(boxes: Batch, name: str) -> Floats:
    """Width or height in pixels, at least 1."""
    size: Floats = np.maximum(boxes.column(column(name)), 1.0)
    return size


def aspect(boxes: Batch) -> Floats:
    """Logarithm of width over height."""
    shape: Floats = np.log(side(boxes, "width") / side(boxes, "height"))
    return shape


def size_on_ground(boxes: Batch) -> Floats:
    """Logarithm of height over how far the lower edge lies below the horizon: metres, but for a constant."""
    below = np.maximum(boxes.column(column("top")) + side(boxes, "height") - HORIZON, 1.0)
    size: Floats = np.log(side(boxes, "height") / below)
    return size


def height(boxes: Batch) -> Floats:
    """Logarithm of the height in pixels."""
    size: Floats = np.log(side(boxes, "height"))
    return size


FEATURES = {"aspect": aspect, "size_on_ground": size_on_ground, "height": height}


def people_and_cars(name: str) -> pd.DataFrame:
    """True boxes of the five classes that are frequent, untouched."""
    truth = kitti(name)
    return truth[truth["class_name"].isin(CLASSES)].assign(faulty=False)


def batch_of(truth: pd.DataFrame, name: str) -> Batch:
    """One record per frame."""
    return frames_batch(truth, frames=int(truth["frame"].max()) + 1, name=name, fields=FIELDS, first=0)


def fitted(names: Sequence[str]) -> Observations:
    """Densities of some sequences."""
    frames = [people_and_cars(name) for name in names]
    offset = np.cumsum([0, *(int(one["frame"].max()) + 1 for one in frames[:-1])])
    truth = pd.concat(
        [one.assign(frame=one["frame"] + start) for one, start in zip(frames, offset.tolist(), strict=True)]
    )
    batch = batch_of(truth, "fitted")
    return learn_observations(batch, features=FEATURES, by=column("class_name"), explode=DETECTIONS)


def with_faulty_boxes(truth: pd.DataFrame, rng: np.random.Generator, share: float = 0.03) -> pd.DataFrame:
    """Single boxes with a swapped class or an impossible size, and ghosts where nothing is."""
    truth = truth.reset_index(drop=True)
    chosen = rng.permutation(len(truth))[: max(3, round(share * len(truth)))]
    swapped, resized, ghosts = np.array_split(chosen, 3)
    changed = truth.copy()
    changed.loc[swapped, "class_name"] = other_class(truth["class_name"][swapped].to_numpy(dtype=object), rng)
    count = len(resized)
    factor = np.where(rng.random(count) < 0.5, rng.uniform(2.5, 4, count), rng.uniform(0.25, 0.4, count))
    sides = np.where(rng.random(count) < 0.5, "width", "height")
    for row, by, which in zip(resized.tolist(), factor.tolist(), sides.tolist(), strict=True):
        changed.loc[row, which] *= by
    changed.loc[np.r_[swapped, resized], "faulty"] = True
    return pd.concat([changed, ghosts_like(truth.loc[ghosts], rng)]).sort_values("frame", kind="stable")


def ghosts_like(boxes: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """As many boxes anywhere in the picture, of any size and class."""
    count = len(boxes)
    return boxes.assign(
        left=rng.uniform(0, 1100, count),
        top=rng.uniform(0, 300, count),
        width=np.exp(rng.uniform(np.log(10), np.log(400), count)),
        height=np.exp(rng.uniform(np.log(10), np.log(250), count)),
        class_name=rng.choice(CLASSES, count),
        id=boxes["id"].to_numpy() + 100_000,
        faulty=True,
    )


def with_faulty_tracks(truth: pd.DataFrame, rng: np.random.Generator, share: float = 0.1) -> pd.DataFrame:
    """Tracks with the wrong class throughout, and ghosts of five frames that drift."""
    ids = rng.permutation(np.unique(truth["id"]))
    swapped = ids[: max(1, round(share * len(ids)))]
    changed = truth.copy()
    for one in swapped.tolist():
        mine = (truth["id"] == one).to_numpy()
        name = truth["class_name"].to_numpy(dtype=object)[mine][:1]
        changed.loc[mine, "class_name"] = other_class(name, rng)[0]
        changed.loc[mine, "faulty"] = True
    parts = [changed]
    for number, one in enumerate(ids[-len(swapped) :].tolist()):
        first = truth[truth["id"] == one].iloc[:1]
        ghost = pd.concat([ghosts_like(first, rng)] * 5)
        parts.append(
            ghost.assign(
                frame=int(first["frame"].iloc[0]) + np.arange(5),
                left=ghost["left"] + 5 * np.arange(5),
                id=200_000 + number,
            )
        )
    found: pd.DataFrame = pd.concat(parts).sort_values("frame", kind="stable")
    return found.query("frame <= @truth.frame.max()")


def other_class(names: NDArray[np.object_], rng: np.random.Generator) -> NDArray[np.object_]:
    """Another class of the same five for each."""
    found: NDArray[np.object_] = np.array(
        [rng.choice(CLASSES[one != CLASSES]) for one in names], dtype=object
    )
    return found


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well scores tell faults from the rest."""

    faults: int
    total: int
    auroc: float
    precision_at_faults: float
    """Precision of as many top ranks as there are faults."""

    @classmethod
    def of(cls, scores: Floats, faulty: NDArray[np.bool_]) -> "Ranking":
        """Ranking by descending score."""
        from sklearn.metrics import roc_auc_score

        top = np.argsort(-scores, kind="stable")[: int(faulty.sum())]
        return cls(
            int(faulty.sum()), len(faulty), float(roc_auc_score(faulty, scores)), float(faulty[top].mean())
        )


@cache
def faulty(name: str, what: str, seed: int) -> Batch:
    """A sequence with faults put in."""
    put_in = with_faulty_boxes if what == "boxes" else with_faulty_tracks
    return batch_of(put_in(people_and_cars(name), np.random.default_rng([seed, int(name)])), name)


def ranking(learned: Observations, name: str, what: str, seed: int) -> Ranking:
    """How the faulty boxes, or tracks, of a sequence rank."""
    batch = faulty(name, what, seed)
    boxes, scores = batch.explode(DETECTIONS), learned.scores(batch)
    wrong = boxes.column(column("faulty"))
    if what == "boxes":
        return Ranking.of(scores, wrong)
    ids = boxes.column(column("id"))
    tracks, score = rank_tracks(scores, ids)
    return Ranking.of(score, np.isin(tracks, ids[wrong]))


@dataclass(frozen=True, slots=True)
class Spread:
    """What every sequence gave that nothing was fitted on, means over the seeds, shape (sequences,)."""

    precision: Floats
    auroc: Floats
    chance: Floats
    """Share of faults: what a random order would give."""


def left_out(what: str, *, fitted_on: int = 9) -> Spread:
    """Every sequence, ranked by densities of the ``fitted_on`` that follow it."""
    names = kitti_sequences()
    lines = []
    for place, name in enumerate(names):
        learned = fitted([names[(place + step) % len(names)] for step in range(1, fitted_on + 1)])
        found = [ranking(learned, name, what, seed) for seed in SEEDS]
        lines.append(
            np.mean([(one.precision_at_faults, one.auroc, one.faults / one.total) for one in found], axis=0)
        )
    return Spread(*np.array(lines).T)


def with_constants(width: float, worst: float) -> float:
    """Mean precision of both rankings with other constants."""
    with patch.object(densities, "WIDTH", width), patch.object(densities, "WORST", worst):
        return float(np.mean([left_out(what).precision.mean() for what in KINDS]))


def results() -> list[Result]:
    """All that the documentation quotes: means over sequences with t intervals, lowest and highest."""
    found = []
    for what in KINDS:
        for fitted_on in (9, 1):
            spread = left_out(what, fitted_on=fitted_on)
            data = f"KITTI truth, fitted on {fitted_on} of 10 sequences, each asked about once; seeds 0-2"
            stem = f"learned.{what} fitted_on={fitted_on}"
            found += [
                over_sequences(f"{stem} precision_at_faults", spread.precision, data),
                over_sequences(f"{stem} auroc", spread.auroc, data),
                plain(f"{stem} lowest", float(spread.precision.min()), "share", 10, data),
                plain(f"{stem} highest", float(spread.precision.max()), "share", 10, data),
                plain(f"{stem} chance", float(spread.chance.mean()), "share", 10, data),
            ]
    data = "KITTI tracking truth, one sequence left out, boxes and tracks; seeds 0-2"
    for width, worst in CONSTANTS:
        name = f"learned.precision width={width:g} worst={worst:g}"
        found.append(plain(name, with_constants(width, worst), "share", 10, data))
    return found


def over_sequences(name: str, values: Floats, data: str) -> Result:
    """Mean over sequences with its t interval."""
    from scipy.stats import t

    reach = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    mean = float(values.mean())
    return Result(name, mean, "mean share", len(values), data, mean - reach, mean + reach)


def main() -> None:
    """Print one line per figure, means over sequences left out."""
    for one in results():
        shown = "" if one.low is None else f"; 95 % [{one.low:.3f}, {one.high:.3f}] over sequences"
        Figure(one.name, one.value, one.unit, f"{one.data}{shown}", one.value).show()


if __name__ == "__main__":
    if "--write" in sys.argv:
        write("assertions.learned", results())
    else:
        main()
