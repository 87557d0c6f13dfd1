"""Faults put into true tracks, and what assertions make of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.assertions._videos import (
    DETECTIONS,
    DPM,
    FASTER_RCNN,
    SIDES,
    WITHIN_S,
    findings_of,
    frames_batch,
    kitti,
    kitti_sequences,
    true_people,
)
from outrider.assertions import Assertion, Batch, Consistency
from outrider.assertions.consistency.boxes import overlap_of_pairs
from outrider.assertions.library import class_size, duplicate_boxes, fit_class_sizes, jump, multibox


@dataclass(frozen=True, slots=True)
class Faults:
    """What an assertion found of the faults put in, and what it flagged besides."""

    put_in: int
    found: int
    false: int
    boxes: int

    @property
    def recall(self) -> float:
        """Share of the faults that were found."""
        return self.found / self.put_in

    @property
    def false_per_1000(self) -> float:
        """False flags per 1,000 boxes."""
        return 1000 * self.false / self.boxes

    def __add__(self, other: "Faults") -> "Faults":
        return Faults(
            self.put_in + other.put_in,
            self.found + other.found,
            self.false + other.false,
            self.boxes + other.boxes,
        )


FIELDS = (*SIDES, "id", "class_name")
Spot = tuple[int, int]
"""Frame and id of a fault."""
Inject = Callable[[pd.DataFrame, np.random.Generator], tuple[pd.DataFrame, set[Spot]]]


def true_tracks() -> dict[str, pd.DataFrame]:
    """True boxes of every sequence whose truth is known, by name."""
    tracks = {f"KITTI {name}": kitti(name) for name in kitti_sequences()}
    return tracks | {name: true_people(name) for name in (*DPM, *FASTER_RCNN)}


def truth_batch(truth: pd.DataFrame, name: str) -> Batch:
    """One record per frame of true boxes."""
    return frames_batch(truth, frames=int(truth["frame"].max()) + 1, name=name, fields=FIELDS, first=0)


def inside(truth: pd.DataFrame, rng: np.random.Generator, share: float, apart: int = 12) -> list[Spot]:
    """Spots inside tracks, at least ``apart`` frames from each other and three from the ends."""
    spots: list[Spot] = []
    for one in np.unique(truth["id"]).tolist():
        inner = sorted(truth["frame"][truth["id"] == one].tolist())[3:-6]
        take = rng.permutation(inner)[: max(1, round(share * len(inner)))].tolist() if inner else []
        last = -apart
        for frame in sorted(take):
            if frame - last >= apart:
                spots.append((int(frame), int(one)))
                last = frame
    return spots


def dropped(truth: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[Spot]]:
    """One to three consecutive boxes of a track missing."""
    gone = {
        (frame + step, one)
        for frame, one in inside(truth, rng, 0.05)
        for step in range(int(rng.integers(1, 4)))
    }
    keys = pd.MultiIndex.from_frame(truth[["frame", "id"]])
    return truth[~keys.isin(list(gone))], {spot for spot in gone if spot in set(keys)}


def duplicated(truth: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[Spot]]:
    """A second box on an object, IoU >= 0.85."""
    spots = set(inside(truth, rng, 0.05))
    keys = pd.MultiIndex.from_frame(truth[["frame", "id"]])
    chosen = truth[keys.isin(list(spots))]
    size = chosen[["width", "height", "width", "height"]].to_numpy()
    shift = rng.uniform(-0.035, 0.035, (len(chosen), 4)) * size
    copy = chosen.assign(id=-1 - np.arange(len(chosen)))
    copy[list(SIDES)] = chosen[list(SIDES)].to_numpy() + shift
    near = overlap_of_pairs(copy[list(SIDES)].to_numpy(float), chosen[list(SIDES)].to_numpy(float)) >= 0.85
    spots = set(zip(chosen["frame"][near].tolist(), chosen["id"][near].tolist(), strict=True))
    return pd.concat([truth, copy[near]]).sort_values("frame", kind="stable"), spots


def relabelled(truth: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[Spot]]:
    """A box with another class than its track."""
    spots = set(inside(truth, rng, 0.05))
    mine = pd.MultiIndex.from_frame(truth[["frame", "id"]]).isin(list(spots))
    classes = np.array(["Car", "Van", "Pedestrian", "Cyclist"], dtype=object)
    other = truth["class_name"].to_numpy(dtype=object).copy()
    for row in np.flatnonzero(mine):
        other[row] = rng.choice(classes[classes != other[row]])
    return truth.assign(class_name=other), spots


def exchanged(truth: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[Spot]]:
    """Ids of two objects, at least six heights apart, exchanged from a frame on."""
    truth = truth.copy()
    spots: set[Spot] = set()
    busy: set[int] = set()
    for frame, one in inside(truth, rng, 0.02):
        here = truth[truth["frame"] == frame]
        mine = here[here["id"] == one]
        if one in busy or mine.empty:
            continue
        far = np.abs(here["left"] - mine["left"].iloc[0]) > 6 * np.maximum(
            here["height"], mine["height"].iloc[0]
        )
        others = [int(other) for other in here["id"][far] if int(other) not in busy | {one}]
        earlier = set(truth["id"][truth["frame"] == frame - 1])
        others = [other for other in others if other in earlier]
        if one not in earlier or not others:
            continue
        other = int(rng.choice(others))
        busy |= {one, other}
        later = (truth["frame"] >= frame).to_numpy()
        ids = truth["id"].to_numpy().copy()
        first, second = later & (ids == one), later & (ids == other)
        ids[first], ids[second] = other, one
        truth["id"] = ids
        spots |= {(frame, one)}
    return truth, spots


def tripled(truth: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[Spot]]:
    """Two more boxes on an object, moved by a tenth of its size at most."""
    spots = set(inside(truth, rng, 0.05))
    chosen = truth[pd.MultiIndex.from_frame(truth[["frame", "id"]]).isin(list(spots))]
    parts = [truth]
    for number in (1, 2):
        moved = chosen.assign(id=-number * 10_000 - np.arange(len(chosen)))
        for edge, side in (("left", "width"), ("top", "height")):
            moved[edge] = chosen[edge] + rng.uniform(-0.1, 0.1, len(chosen)) * chosen[side]
        parts.append(moved)
    return pd.concat(parts).sort_values("frame", kind="stable"), spots


def resized(truth: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[Spot]]:
    """Boxes three to five times as wide or as high as their object."""
    spots = set(inside(truth, rng, 0.05))
    mine = pd.MultiIndex.from_frame(truth[["frame", "id"]]).isin(list(spots))
    factor = rng.uniform(3, 5, int(mine.sum()))
    wide = rng.random(int(mine.sum())) < 0.5
    changed = truth.copy()
    changed.loc[mine, "width"] *= np.where(wide, factor, 1.0)
    changed.loc[mine, "height"] *= np.where(wide, 1.0, factor)
    return changed, spots


def faults(
    judge: Assertion,
    inject: Inject,
    *,
    seed: int = 0,
    by_object: bool = True,
    names: Sequence[str] | None = None,
) -> Faults:
    """Faults put into every sequence of true tracks, and what one assertion makes of them.

    A fault is found when a finding has its frame as a member, and names its object (``by_object``). A finding
    that belongs to no fault is false; the natural gaps of the truth count as such.
    """
    total = Faults(0, 0, 0, 0)
    for name in names or kitti_sequences():
        faulty, spots = inject(kitti(name), np.random.default_rng(seed))
        batch = truth_batch(faulty, name)
        findings = findings_of(judge, batch)
        members = findings.members or [np.array([row]) for row in findings.row]
        evidence = findings.evidence or [None] * len(findings)
        found: set[Spot] = set()
        false = 0
        for rows, line in zip(members, evidence, strict=True):
            if by_object:
                hit = {(int(row), int((line or {})["object"])) for row in rows} & spots
            else:
                hit = {spot for spot in spots if spot[0] in set(rows.tolist())}
            found |= hit
            false += not hit
        total += Faults(len(spots), len(found), false, len(faulty))
    return total


def true_rule() -> Consistency:
    """Consistency over the true ids."""
    return Consistency(explode=DETECTIONS, id="id", attributes=["class_name"], within=WITHIN_S)


def fault_table(seed: int = 0) -> dict[str, Faults]:
    """Every kind of fault with the assertion that looks for it."""
    kinds, gone, _ = true_rule().assertions
    names = kitti_sequences()
    tables = [kitti(name) for name in names[:5]]
    parts = [table.assign(frame=table["frame"] + 1000 * n) for n, table in enumerate(tables)]
    limits = fit_class_sizes(truth_batch(pd.concat(parts), "fitted"), DETECTIONS, kind="class_name")
    return {
        "drops, flicker": faults(gone, dropped, seed=seed),
        "duplicates at IoU >= 0.85, duplicate_boxes": faults(
            duplicate_boxes(DETECTIONS), duplicated, seed=seed, by_object=False
        ),
        "relabels, class_name": faults(kinds, relabelled, seed=seed),
        "exchanged ids, jump": faults(
            jump(DETECTIONS, id="id", heights_per_s=30), exchanged, seed=seed, by_object=False
        ),
        "two more boxes on one, multibox": faults(
            multibox(DETECTIONS, overlap=0.5), tripled, seed=seed, by_object=False
        ),
        "3 to 5 times too wide or high, class_size": faults(
            class_size(limits, DETECTIONS, kind="class_name"),
            resized,
            seed=seed,
            by_object=False,
            names=names[5:],
        ),
    }
