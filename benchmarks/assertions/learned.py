"""Learned assertions rank faults put into true tracks above what is right; fitted on other sequences."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.assertions._videos import DETECTIONS, SIDES, frames_batch, kitti, kitti_sequences
from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.assertions.learned import Observations, learn_observations, rank_tracks

Floats = NDArray[np.float64]
HORIZON = 172.0
"""Row of the picture in which KITTI's camera sees the horizon, pixels."""
CLASSES = np.array(["Car", "Van", "Truck", "Pedestrian", "Cyclist"], dtype=object)
FIELDS = (*SIDES, "class_name", "id", "faulty")


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


def fitted() -> Observations:
    """Densities of the first half of the sequences."""
    names = kitti_sequences()[:5]
    frames = [people_and_cars(name).assign(part=part) for part, name in enumerate(names)]
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


def box_ranking(seed: int = 0) -> Ranking:
    """Faulty boxes in the sequences that nothing was fitted on."""
    learned, rng = fitted(), np.random.default_rng(seed)
    scores, faulty = [], []
    for name in kitti_sequences()[5:]:
        batch = batch_of(with_faulty_boxes(people_and_cars(name), rng), name)
        scores.append(learned.scores(batch))
        faulty.append(batch.explode(DETECTIONS).column(column("faulty")))
    return Ranking.of(np.concatenate(scores), np.concatenate(faulty))


def track_ranking(seed: int = 0) -> Ranking:
    """Faulty tracks in the sequences that nothing was fitted on."""
    learned, rng = fitted(), np.random.default_rng(seed)
    combined, wrong = [], []
    for name in kitti_sequences()[5:]:
        batch = batch_of(with_faulty_tracks(people_and_cars(name), rng), name)
        boxes = batch.explode(DETECTIONS)
        ids, faulty = boxes.column(column("id")), boxes.column(column("faulty"))
        tracks, score = rank_tracks(learned.scores(batch), ids)
        combined.append(score)
        wrong.append(np.isin(tracks, ids[faulty]))
    return Ranking.of(np.concatenate(combined), np.concatenate(wrong))


def main() -> None:
    """Print one line per figure, medians of three seeds."""
    for what, rank in (("boxes", box_ranking), ("tracks", track_ranking)):
        found = [rank(seed) for seed in range(3)]
        auroc = float(np.median([one.auroc for one in found]))
        precision = float(np.median([one.precision_at_faults for one in found]))
        chance = found[0].faults / found[0].total
        Figure(f"learned.{what}_auroc", auroc, "AUROC", "chance 0.5", auroc / 0.5, 1.7).show()
        against = f"share of faults {chance:.3f}"
        Figure(
            f"learned.{what}_precision_at_{found[0].faults}",
            precision,
            "share",
            against,
            precision / chance,
            3.0,
        ).show()


if __name__ == "__main__":
    main()
