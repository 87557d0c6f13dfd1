"""Flicker, appear and their corrections on real detections; faults put into true tracks.

``--table`` prints the tables of docs/precision.md.

A flicker flag is right when, in at least half of the frames of the gap, a truth box overlaps the
interpolated box by IoU >= 0.5 (truth centres, where there are no boxes: lies in its middle half); an appear
flag when no box of the blip overlaps a truth box by so much. One set of parameters for all sequences.
"""

import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from benchmarks.assertions._videos import (
    DETECTIONS,
    SIDES,
    Video,
    frames_batch,
    kitti,
    kitti_sequences,
    pedestrians,
    sparse_pedestrians,
)
from benchmarks.figure import Figure
from outrider.assertions import Assertion, Batch, Consistency, Findings, IouTracker, MotionTracker
from outrider.assertions.boxes import overlap_of_pairs, overlaps
from outrider.assertions.library import class_size, duplicate_boxes, fit_class_sizes, jump, multibox
from outrider.assertions.window_state import WindowState

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
OVERLAP = 0.5
WITHIN_S, TRUSTED = 0.5, 0.85
SEQUENCES = ("TUD-Stadtmitte", "KITTI-13")
SPARSE = ("MOT17-02", "MOT17-09", "MOT17-11")
CANDIDATES = np.arange(0.70, 0.951, 0.01)
"""Values of ``trusted`` among which leave-one-out chooses."""


def rule(*, trusted: float = TRUSTED) -> Consistency:
    """What is measured."""
    return Consistency(
        explode=DETECTIONS, tracker=MotionTracker(), score="conf", trusted=trusted, within=WITHIN_S
    )


def naive_rule() -> Consistency:
    """Overlap with the last box, every gap and every short track."""
    return Consistency(explode=DETECTIONS, tracker=IouTracker(), within=WITHIN_S)


def findings_of(judge: Assertion, batch: Batch) -> Findings:
    """Findings over a whole stream of one entity, rows as in ``batch``."""
    if judge.window is None:
        return judge.findings(batch)
    (view,) = WindowState(judge.window).update(batch, ends=True)
    return judge.findings(view.batch)


# ---- real detections -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """Findings of one rule in one video, and which are right."""

    video: Video
    flicker: Findings
    appear: Findings
    flicker_right: Floats
    appear_right: Floats


def judged(video: Video, consistency: Consistency) -> Judged:
    """Findings of flicker and appear, held against truth."""
    flicker, appear = (findings_of(judge, video.batch) for judge in consistency.assertions[-2:])
    return Judged(video, flicker, appear, right_flickers(video, flicker), right_appearances(video, appear))


def boxes_of(batch: Batch) -> list[Floats]:
    """Detected boxes of every frame."""
    lists = batch.to_arrow().column(DETECTIONS).to_pylist()
    return [np.array([[box[side] for side in SIDES] for box in boxes]).reshape(-1, 4) for boxes in lists]


def hits(boxes: Floats, truth: Floats) -> Bools:
    """Which boxes overlap a truth box by at least ``OVERLAP``; of truth centres, have one in their middle."""
    if not len(truth):
        return np.zeros(len(boxes), dtype=np.bool_)
    if truth.shape[1] == 2:
        away = np.abs(truth[None] - (boxes[:, None, :2] + boxes[:, None, 2:] / 2))
        middle: Bools = np.any(np.all(away <= boxes[:, None, 2:] / 4, axis=2), axis=1)
        return middle
    near: Bools = overlaps(boxes, truth).max(axis=1, initial=0.0) >= OVERLAP
    return near


def right_flickers(video: Video, findings: Findings) -> Floats:
    """1 where the object is truly there in at least half of the frames of the gap, 0 where not.

    nan where no frame of the gap has truth; shape (findings,).
    """
    right, known = np.zeros(len(findings)), np.zeros(len(findings))
    labels = findings.weak_labels
    for row, finding, value in zip(labels.row, labels.finding, labels.value, strict=True):
        truth = video.truth[row]
        if truth is not None:
            known[finding] += 1
            right[finding] += hits(np.array([[value[side] for side in SIDES]]), truth)[0]
    return np.where(known > 0, (2 * right >= known) & (right > 0), np.nan)


def right_appearances(video: Video, findings: Findings) -> Floats:
    """1 where no box of the blip is a truth box, 0 where one is, shape (findings,)."""
    wrong = np.zeros(len(findings), dtype=np.bool_)
    boxes, labels = boxes_of(video.batch), findings.weak_labels
    for row, finding, element in zip(labels.row, labels.finding, labels.element, strict=True):
        truth = video.truth[row]
        if truth is not None:
            wrong[finding] |= hits(boxes[row][[element]], truth)[0]
    return (~wrong).astype(np.float64)


def corrected(batch: Batch, findings: Iterable[Findings]) -> list[Floats]:
    """Boxes with what the findings add and without what they remove."""
    boxes = boxes_of(batch)
    kept = [np.ones(len(found), dtype=np.bool_) for found in boxes]
    added: list[list[Floats]] = [[] for _ in boxes]
    for labels in (one.weak_labels for one in findings):
        for row, kind, element, value in zip(
            labels.row, labels.kind, labels.element, labels.value, strict=True
        ):
            if kind == "remove":
                kept[row][element] = False
            else:
                added[row].append(np.array([[value[side] for side in SIDES]]))
    return [
        np.concatenate([found[keep], *more]) for found, keep, more in zip(boxes, kept, added, strict=True)
    ]


def f1(boxes: Sequence[Floats], truth: Sequence[Floats | None]) -> float:
    """Harmonic mean of precision and recall of boxes, paired one to one at IoU >= ``OVERLAP``."""
    paired = total = 0
    for found, true in zip(boxes, truth, strict=True):
        if true is None:
            continue
        total += len(found) + len(true)
        likeness = overlaps(found, true)
        rows, columns = linear_sum_assignment((likeness >= OVERLAP) * (1 + likeness), maximize=True)
        paired += int((likeness[rows, columns] >= OVERLAP).sum())
    return 2 * paired / total


def left_out(sequences: Sequence[Judged], elsewhere: float = 0.75) -> tuple[Floats, Floats, list[float]]:
    """Flicker and appear flags of each part under the ``trusted`` chosen on the other parts.

    Parts are the halves of each sequence; the least value is chosen at which flicker is right in at least
    the share ``elsewhere`` of the other parts. ``sequences`` hold every gap (trusted 0) and every blip
    (trusted above 1).
    """
    parts: list[tuple[Floats, Floats, Floats, Floats]] = []
    for one in sequences:
        middle = one.video.batch.rows // 2
        for early in (True, False):
            gap, blip = ((found.row < middle) == early for found in (one.flicker, one.appear))
            parts.append(
                (
                    one.flicker.severity[gap],
                    one.flicker_right[gap],
                    1 - one.appear.severity[blip],
                    one.appear_right[blip],
                )
            )
    flicker, appear, chosen = [], [], []
    for number, part in enumerate(parts):
        others = [other for index, other in enumerate(parts) if index != number]
        sure, right = np.concatenate([o[0] for o in others]), np.concatenate([o[1] for o in others])
        good = [one for one in CANDIDATES if (sure >= one).any() and right[sure >= one].mean() >= elsewhere]
        trusted = float(min(good, default=CANDIDATES[-1]))
        chosen.append(round(trusted, 2))
        flicker.append(part[1][part[0] >= trusted])
        appear.append(part[3][part[2] < trusted])
    return np.concatenate(flicker), np.concatenate(appear), chosen


# ---- faults put into true tracks -----------------------------------------------------------------------


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


Inject = Callable[[pd.DataFrame, np.random.Generator], tuple[pd.DataFrame, set[Spot]]]


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
            duplicate_boxes(DETECTIONS, overlap=0.8), duplicated, seed=seed, by_object=False
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


# ---- what is shown -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table of precision."""

    sequence: str
    assertion: str
    flags: int
    right: float
    naive_flags: int
    naive_right: float


def precision_lines() -> tuple[list[Line], list[Judged]]:
    """Precision of flicker and appear on every sequence that has truth, and the findings behind it."""
    lines, ours = [], []
    for video in [*map(pedestrians, SEQUENCES), *map(sparse_pedestrians, SPARSE)]:
        mine, naive = judged(video, rule()), judged(video, naive_rule())
        ours.append(mine)
        sides = [("flicker", mine.flicker_right, naive.flicker_right)]
        if video.name in SEQUENCES:  # sparse truth is incomplete: it can confirm an object, not deny it
            sides.append(("appear", mine.appear_right, naive.appear_right))
        for name, right, other in sides:
            right, other = right[~np.isnan(right)], other[~np.isnan(other)]
            lines.append(
                Line(
                    video.name,
                    name,
                    len(right),
                    float(np.mean(right)) if len(right) else np.nan,
                    len(other),
                    float(np.mean(other)),
                )
            )
    return lines, ours


def pooled(lines: Iterable[Line], assertion: str, sequences: Iterable[str]) -> tuple[int, float, float]:
    """Flags, precision and the naive precision of an assertion over several sequences."""
    mine = [line for line in lines if line.assertion == assertion and line.sequence in sequences]
    flags = sum(line.flags for line in mine)
    right = sum(line.flags * line.right for line in mine if line.flags) / flags
    naive = sum(line.naive_flags * line.naive_right for line in mine) / sum(line.naive_flags for line in mine)
    return flags, right, naive


@dataclass(frozen=True, slots=True)
class Corrected:
    """F1 of a sequence as detected, with all naive gaps filled, with our corrections."""

    sequence: str
    before: float
    naive_filled: float
    after: float


def corrections() -> list[Corrected]:
    """What the corrections do to F1, on every sequence whose truth has boxes."""
    found = []
    for video in map(pedestrians, SEQUENCES):
        mine, naive = judged(video, rule()), judged(video, naive_rule())
        found.append(
            Corrected(
                video.name,
                f1(boxes_of(video.batch), video.truth),
                f1(corrected(video.batch, [naive.flicker]), video.truth),
                f1(corrected(video.batch, [mine.flicker, mine.appear]), video.truth),
            )
        )
    return found


def held_out(elsewhere: float = 0.75) -> tuple[Floats, Floats, list[float]]:
    """Leave-one-half-of-a-sequence-out of ``trusted``; see :func:`left_out`."""
    every = []
    for video in map(pedestrians, SEQUENCES):
        gaps, blips = judged(video, rule(trusted=0.0)), judged(video, rule(trusted=1.1))
        every.append(replace(gaps, appear=blips.appear, appear_right=blips.appear_right))
    return left_out(every, elsewhere)


def table(today: str) -> str:
    """docs/precision.md between its marks."""
    lines, _ = precision_lines()
    text = [
        f"Measured {today} by `python -m benchmarks.assertions.video --table`.",
        "",
        "| sequence | assertion | flags | precision | naive tracker: flags | precision |",
        "|---|---|---:|---:|---:|---:|",
    ]
    text += [
        f"| {line.sequence} | {line.assertion} | {line.flags} | {line.right:.2f} | {line.naive_flags} | "
        f"{line.naive_right:.2f} |"
        for line in lines
    ]
    for name in ("flicker", "appear"):
        flags, right, naive = pooled(lines, name, SEQUENCES)
        text.append(f"| {' + '.join(SEQUENCES)} | **{name}** | {flags} | **{right:.2f}** | | {naive:.2f} |")
    text += ["", "| sequence | F1 as detected | every naive gap filled | corrected |", "|---|---:|---:|---:|"]
    text += [
        f"| {one.sequence} | {one.before:.3f} | {one.naive_filled:.3f} | {one.after:.3f} |"
        for one in corrections()
    ]
    text += [
        "",
        "| fault put into KITTI truth | put in | recall | false flags per 1,000 boxes |",
        "|---|---:|---:|---:|",
    ]
    text += [
        f"| {name} | {one.put_in} | {one.recall:.3f} | {one.false_per_1000:.2f} |"
        for name, one in fault_table().items()
    ]
    for elsewhere in (0.75, 0.8):
        flicker, appear, chosen = held_out(elsewhere)
        said = (
            f"`trusted` chosen for each half of a sequence on the other three (least value with flicker "
            f"right in {elsewhere:.0%} there: {', '.join(map(str, chosen))}): flicker {flicker.mean():.2f} "
            f"of {len(flicker)} flags, appear {appear.mean():.2f} of {len(appear)}."
        )
        text += ["", *textwrap.wrap(said, 140)]
    return "\n".join(text)


def main() -> None:
    """Print one line per figure."""
    lines, _ = precision_lines()
    for name, least, enough in (("flicker", 0.7, 30), ("appear", 0.8, 80)):
        flags, right, naive = pooled(lines, name, SEQUENCES)
        Figure(
            f"video.{name}_precision",
            right,
            "share",
            f"promised {least}; naive {naive:.2f}",
            right / least,
            1.0,
        ).show()
        Figure(f"video.{name}_flags", flags, "flags", f"promised {enough}", flags / enough, 1.0).show()
    for one in corrections():
        against = f"as detected; every naive gap filled: {one.naive_filled:.3f}"
        Figure(f"video.f1_{one.sequence}", one.after, "F1", against, one.after / one.before, 1.0).show()
    flicker, appear, _ = held_out()
    Figure(
        "video.flicker_held_out", float(flicker.mean()), "share", "promised 0.7", float(flicker.mean()) / 0.7
    ).show()
    Figure(
        "video.appear_held_out", float(appear.mean()), "share", "promised 0.8", float(appear.mean()) / 0.8
    ).show()
    for name, found in fault_table().items():
        if name.endswith("class_size"):  # a rough net without a promise
            Figure(f"video.recall of {name}", found.recall, "share", "all", found.recall).show()
            precision = found.found / (found.found + found.false)
            Figure(f"video.precision of {name}", precision, "share", "all", precision).show()
            continue
        against, room = "promised at most 1", 1.0 / max(found.false_per_1000, 0.01)
        Figure(
            f"video.recall of {name}", found.recall, "share", "promised 0.95", found.recall / 0.95, 1.0
        ).show()
        Figure(
            f"video.false flags of {name}", found.false_per_1000, "/1,000 boxes", against, room, 1.0
        ).show()


if __name__ == "__main__":
    if "--table" in sys.argv:
        from datetime import UTC, datetime

        print(table(datetime.now(UTC).date().isoformat()))
    else:
        main()
