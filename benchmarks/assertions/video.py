"""Flicker, appear and their corrections on real detections; faults put into true tracks.

One setting, the README's, on five sequences of two detectors. Of each sequence the calibration is fitted on
the other sequences of its detector. ``--write`` writes ``benchmarks/results/assertions.video.json``
with the tables of docs/precision.md.

A flicker flag is right when, in at least half of the frames of the gap, a true box overlaps the interpolated
box by IoU >= 0.5; an appear flag when no box of the blip overlaps a true box by so much. A true flicker is a
person paired with a detection, not in the next frames, and again within half a second; it is found when an
added box of a flag overlaps that person by IoU >= 0.5 in one of these frames.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from benchmarks.assertions._track_faults import Faults, fault_table, true_tracks
from benchmarks.assertions._videos import (
    DETECTIONS,
    DPM,
    FASTER_RCNN,
    FRAMES_PER_S,
    SIDES,
    WITHIN_S,
    Video,
    findings_of,
    frames_batch,
    true_people,
    video,
)
from benchmarks.figure import Figure
from benchmarks.results import Result, clustered_share, plain, share, write
from outrider.assertions import (
    Assertion,
    Batch,
    Calibration,
    Consistency,
    Findings,
    IouTracker,
    MotionTracker,
    calibrate_boxes,
)
from outrider.assertions.consistency.boxes import overlaps
from outrider.assertions.library import duplicate_boxes

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
NAME = "assertions.video"
OVERLAP = 0.5
SEQUENCES = (*DPM, *FASTER_RCNN)
DATA = {name: f"MOT17, DPM boxes above 0: {name}" for name in DPM} | {
    name: f"MOT15, Faster R-CNN: {name}" for name in FASTER_RCNN
}
ALL_DATA = "MOT17 (DPM boxes above 0: 02, 09, 11) and MOT15 (Faster R-CNN: TUD-Stadtmitte, KITTI-13)"
EVERY_BOX = -np.inf
"""DPM gives boxes down to about -0.5, a quarter of which are nothing; above 0 nine of ten are people."""
TRIED = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
"""Values of ``trusted`` that are shown, and among which leaving one sequence out chooses."""
WANTED = (0.75, 0.8)
"""Precision on the other sequences by which it chooses."""
LEAST_FLAGS = 5
"""Sequences with fewer flags have no say in what ``trusted`` is chosen."""
TRACKERS = (
    *(MotionTracker(sure=one) for one in (0.5, 0.9)),
    *(MotionTracker(overlap=one) for one in (0.1, 0.3)),
    *(MotionTracker(overlap_unsure=one) for one in (0.3, 0.5)),
    *(MotionTracker(widen=one) for one in (0.1, 0.3)),
    *(MotionTracker(history=one) for one in (0.2, 0.6)),
    *(MotionTracker(position_gain=one) for one in (0.4, 0.8)),
    *(MotionTracker(velocity_gain=one) for one in (0.15, 0.45)),
    MotionTracker(memory_s=0.6),
    MotionTracker(height_ratio=0.7),
)
"""The tracker with one constant moved: its own were chosen with these sequences in view."""
OVERLAPS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
PROMISED_FALSE = 1.0
"""False flags per 1,000 boxes that ``duplicate_boxes`` may have."""


def calibration(name: str, least: float = 0.0) -> Calibration:
    """What a score is worth by the labelled boxes of the detector's other sequences."""
    others = [one for one in (DPM if name in DPM else FASTER_RCNN) if one != name]
    return calibrate_boxes(Batch.concat([loaded(one, least).batch for one in others]), score="conf")


def rule(chance: Calibration) -> Consistency:
    """The README's example, which names no attribute that these boxes have."""
    return Consistency(
        explode=DETECTIONS, tracker=MotionTracker(), within=WITHIN_S, score="conf", calibration=chance
    )


def uncalibrated_rule() -> Consistency:
    """The same without a score."""
    return Consistency(explode=DETECTIONS, tracker=MotionTracker(), within=WITHIN_S)


def naive_rule() -> Consistency:
    """Overlap with the last box, every gap and every short track."""
    return Consistency(explode=DETECTIONS, tracker=IouTracker(), within=WITHIN_S)


@cache
def loaded(name: str, least: float = 0.0) -> Video:
    """A sequence, read once."""
    return video(name, least=least)


# ---- what is right -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """Findings of one rule in one video with all their corrections, and which are right."""

    video: Video
    flicker: Findings
    appear: Findings
    flicker_right: Bools
    appear_right: Bools


def judged(seen: Video, consistency: Consistency) -> Judged:
    """Findings of flicker and appear, held against truth."""
    flicker, appear = (findings_of(judge, seen.batch) for judge in telling(consistency))
    return Judged(seen, flicker, appear, right_flickers(seen, flicker), right_appearances(seen, appear))


def telling(consistency: Consistency) -> tuple[Assertion, ...]:
    """Flicker and appear with all their corrections: they say where a gap's box lies."""
    return tuple(replace(consistency, corrects=("flicker", "appear")).assertions[-2:])


def boxes_of(batch: Batch) -> list[Floats]:
    """Detected boxes of every frame."""
    lists = batch.to_arrow().column(DETECTIONS).to_pylist()
    return [np.array([[box[side] for side in SIDES] for box in boxes]).reshape(-1, 4) for boxes in lists]


def hits(boxes: Floats, truth: Floats) -> Bools:
    """Boxes that overlap a true box by at least ``OVERLAP``, shape (boxes,)."""
    near: Bools = overlaps(boxes, truth).max(axis=1, initial=0.0) >= OVERLAP
    return near


def right_flickers(seen: Video, findings: Findings) -> Bools:
    """True where somebody is there in at least half of the frames of the gap, shape (findings,)."""
    right, frames = np.zeros(len(findings)), np.zeros(len(findings))
    labels = findings.weak_labels
    for row, finding, value in zip(labels.row, labels.finding, labels.value, strict=True):
        frames[finding] += 1
        right[finding] += hits(np.array([[value[side] for side in SIDES]]), seen.truth[row])[0]
    found: Bools = (2 * right >= frames) & (right > 0)
    return found


def right_appearances(seen: Video, findings: Findings) -> Bools:
    """True where no box of the blip is a true box, shape (findings,)."""
    wrong = np.zeros(len(findings), dtype=np.bool_)
    boxes, labels = boxes_of(seen.batch), findings.weak_labels
    for row, finding, element in zip(labels.row, labels.finding, labels.element, strict=True):
        wrong[finding] |= hits(boxes[row][[element]], seen.truth[row])[0]
    return ~wrong


def paired(boxes: Floats, truth: Floats) -> NDArray[np.int64]:
    """True boxes that are paired one to one with a box at IoU >= ``OVERLAP``."""
    likeness = overlaps(boxes, truth)
    rows, columns = linear_sum_assignment((likeness >= OVERLAP) * (1 + likeness), maximize=True)
    found: NDArray[np.int64] = columns[likeness[rows, columns] >= OVERLAP].astype(np.int64)
    return found


def true_flickers(seen: Video) -> list[tuple[int, range]]:
    """People detected, missed for some frames, detected again within ``WITHIN_S``; and the frames."""
    last: dict[int, int] = {}
    found = []
    reach = WITHIN_S * FRAMES_PER_S[seen.name] + 1e-9
    for frame, boxes in enumerate(boxes_of(seen.batch)):
        for one in seen.people[frame][paired(boxes, seen.truth[frame])].tolist():
            before = last.get(one, frame)
            if 1 < frame - before <= reach:
                found.append((one, range(before + 1, frame)))
            last[one] = frame
    return found


def found_flickers(seen: Video, findings: Findings, kept: Bools) -> int:
    """Number of true flickers that the added boxes of the kept findings find."""
    wanted = {
        (frame, one): number for number, (one, frames) in enumerate(true_flickers(seen)) for frame in frames
    }
    found: set[int] = set()
    labels = findings.weak_labels
    for row, finding, value in zip(labels.row.tolist(), labels.finding.tolist(), labels.value, strict=True):
        if not kept[finding] or not len(seen.truth[row]):
            continue
        likeness = overlaps(np.array([[value[side] for side in SIDES]]), seen.truth[row])[0]
        number = wanted.get((row, int(seen.people[row][likeness.argmax()])))
        if likeness.max() >= OVERLAP and number is not None:
            found.add(number)
    return len(found)


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


def f1(boxes: Sequence[Floats], truth: Sequence[Floats]) -> float:
    """Harmonic mean of precision and recall of boxes, paired one to one at IoU >= ``OVERLAP``."""
    hit = sum(len(paired(found, true)) for found, true in zip(boxes, truth, strict=True))
    return 2 * hit / sum(len(found) + len(true) for found, true in zip(boxes, truth, strict=True))


# ---- one sequence --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """What the setting does on one sequence that nothing was fitted on, and the naive rule beside it."""

    sequence: str
    boxes: int
    boxes_right: int
    flags: int
    right: int
    flickers: int
    found: int
    appear_flags: int
    appear_right: int
    confidence: float
    before: float
    after: float
    naive_flags: int
    naive_right: int
    naive_after: float
    naive_appear_flags: int
    naive_appear_right: int
    appear_corrections: int


def line_of(name: str, least: float = 0.0) -> Line:
    """The setting on one sequence."""
    seen, setting = loaded(name, least), rule(calibration(name, least))
    mine, naive = judged(seen, setting), judged(seen, naive_rule())
    flicker, appear = (findings_of(judge, seen.batch) for judge in setting.assertions)
    every = np.ones(len(mine.flicker), dtype=np.bool_)
    boxes = boxes_of(seen.batch)
    return Line(
        name,
        sum(map(len, boxes)),
        sum(int(hits(found, true).sum()) for found, true in zip(boxes, seen.truth, strict=True)),
        len(mine.flicker),
        int(mine.flicker_right.sum()),
        len(true_flickers(seen)),
        found_flickers(seen, mine.flicker, every),
        len(mine.appear),
        int(mine.appear_right.sum()),
        float(mine.flicker.severity.mean()) if len(every) else np.nan,
        f1(boxes, seen.truth),
        f1(corrected(seen.batch, [flicker, appear]), seen.truth),
        len(naive.flicker),
        int(naive.flicker_right.sum()),
        f1(corrected(seen.batch, [naive.flicker]), seen.truth),
        len(naive.appear),
        int(naive.appear_right.sum()),
        len(appear.weak_labels),
    )


@cache
def lines() -> tuple[Line, ...]:
    """Every sequence."""
    return tuple(map(line_of, SEQUENCES))


@dataclass(frozen=True, slots=True)
class Gaps:
    """Every gap of a sequence with the mean chance around it, and every blip with its own."""

    chance: Floats
    right: Bools
    appear_chance: Floats
    appear_right: Bools

    def flicker(self, trusted: float) -> tuple[int, int]:
        """Flags and right ones under another ``trusted``."""
        kept = self.chance >= trusted
        return int(kept.sum()), int(self.right[kept].sum())

    def appear(self, trusted: float) -> tuple[int, int]:
        """Flags and right ones under another ``trusted``."""
        kept = self.appear_chance < min(trusted, 1 - trusted)
        return int(kept.sum()), int(self.appear_right[kept].sum())


@cache
def every_gap(name: str) -> Gaps:
    """All gaps and blips of a sequence."""
    setting, seen = rule(calibration(name)), loaded(name)
    gaps = findings_of(telling(replace(setting, trusted=0.0))[0], seen.batch)
    blips = findings_of(telling(replace(setting, trusted=0.5))[1], seen.batch)
    return Gaps(gaps.severity, right_flickers(seen, gaps), 1 - blips.severity, right_appearances(seen, blips))


def chosen_elsewhere(name: str, wanted: float) -> float:
    """Least ``trusted`` at which flicker is right in ``wanted`` of every other sequence's flags."""
    others = [every_gap(one) for one in SEQUENCES if one != name]
    for trusted in TRIED:
        counts = [one.flicker(trusted) for one in others]
        if all(right >= wanted * flags for flags, right in counts if flags >= LEAST_FLAGS):
            return trusted
    return TRIED[-1]


# ---- duplicates ----------------------------------------------------------------------------------------


def false_duplicates(truth: pd.DataFrame, name: str, overlap: float) -> int:
    """True boxes that ``duplicate_boxes`` would take for a second one."""
    first = int(truth["frame"].min())
    frames = int(truth["frame"].max()) - first + 1
    batch = frames_batch(truth, frames=frames, name=name, fields=SIDES, first=first)
    return int(duplicate_boxes(DETECTIONS, overlap=overlap).severities(batch).sum())


@dataclass(frozen=True, slots=True)
class Duplicates:
    """False flags of ``duplicate_boxes`` in the truth of one sequence."""

    sequence: str
    boxes: int
    false: dict[float, int]
    """By ``overlap``."""


@cache
def duplicates() -> tuple[Duplicates, ...]:
    """Every sequence whose true boxes are known."""
    return tuple(
        Duplicates(name, len(truth), {one: false_duplicates(truth, name, one) for one in OVERLAPS})
        for name, truth in true_tracks().items()
    )


def overlap_elsewhere(left_out: str) -> float:
    """Least ``overlap`` with at most one false flag per 1,000 boxes over all other sequences."""
    others = [one for one in duplicates() if one.sequence != left_out]
    boxes = sum(one.boxes for one in others)
    return next(one for one in OVERLAPS if 1000 * sum(o.false[one] for o in others) <= PROMISED_FALSE * boxes)


# ---- what is shown -------------------------------------------------------------------------------------


def pooled(kind: str) -> list[Result]:
    """Precision over all sequences, with both intervals, and the naive rule's."""
    prefix = "" if kind == "flicker" else "appear_"
    counts = {
        what: [int(getattr(one, what)) for one in lines()]
        for what in (f"{prefix}right", f"{prefix}flags", f"naive_{prefix}right", f"naive_{prefix}flags")
    }
    right, flags, naive_right, naive_flags = counts.values()
    data = f"{ALL_DATA}; clusters: sequences"
    return [
        share(f"video.{kind}_precision", sum(right), sum(flags), ALL_DATA),
        clustered_share(f"video.{kind}_precision_clustered", right, flags, data),
        share(f"video.naive_{kind}_precision", sum(naive_right), sum(naive_flags), ALL_DATA),
    ]


def results() -> list[Result]:
    """All that the documentation quotes."""
    found: list[Result] = []
    for one in lines():
        found += _of_sequence(one, one.sequence, DATA[one.sequence])
    found += [*pooled("flicker"), *pooled("appear")]
    hit, true = sum(one.found for one in lines()), sum(one.flickers for one in lines())
    found.append(share("video.flicker_recall", hit, true, ALL_DATA))
    for name, wanted in product(SEQUENCES, WANTED):
        trusted = chosen_elsewhere(name, wanted)
        flags, right = every_gap(name).flicker(trusted)
        stem = f"wanted={wanted:g} {name}"
        found.append(
            plain(f"video.trusted_elsewhere {stem}", trusted, "chance", len(SEQUENCES) - 1, ALL_DATA)
        )
        found.append(share(f"video.flicker_precision_at_trusted_elsewhere {stem}", right, flags, DATA[name]))
    for trusted in TRIED:
        for name in SEQUENCES:
            flags, right = every_gap(name).flicker(trusted)
            if flags:
                found.append(
                    share(f"video.flicker_precision trusted={trusted:g} {name}", right, flags, DATA[name])
                )
    for name in DPM:
        data = f"MOT17, every DPM box: {name}"
        found += _of_sequence(line_of(name, EVERY_BOX), f"{name} every box", data)
    found += _uncalibrated()
    for name in SEQUENCES:
        found += other_trackers(name)
    data = "KITTI tracking truth, seed 0"
    for what, fault in fault_table().items():
        rate = fault.false_per_1000
        found += [
            share(f"video.recall of {what}", fault.found, fault.put_in, data),
            plain(f"video.false_per_1000 of {what}", rate, "/1,000 boxes", fault.boxes, data),
        ]
    return found + _of_duplicates()


def _of_sequence(one: Line, name: str, data: str) -> list[Result]:
    found = [
        share(f"video.boxes_right {name}", one.boxes_right, one.boxes, data),
        share(f"video.flicker_recall {name}", one.found, one.flickers, data),
    ]
    if one.flags:
        found.append(share(f"video.flicker_precision {name}", one.right, one.flags, data))
        found.append(
            plain(f"video.flicker_confidence {name}", one.confidence, "mean chance", one.flags, data)
        )
    found.append(plain(f"video.appear_flags {name}", one.appear_flags, "flags", one.appear_flags, data))
    if one.appear_flags:
        found.append(share(f"video.appear_precision {name}", one.appear_right, one.appear_flags, data))
    found.append(share(f"video.naive_flicker_precision {name}", one.naive_right, one.naive_flags, data))
    found.append(
        share(f"video.naive_appear_precision {name}", one.naive_appear_right, one.naive_appear_flags, data)
    )
    rows = loaded(one.sequence).batch.rows
    for what, value in (
        ("detected", one.before),
        ("corrected", one.after),
        ("naive_filled", one.naive_after),
    ):
        found.append(plain(f"video.f1_{what} {name}", value, "F1", rows, data))
    return found


def other_trackers(name: str) -> list[Result]:
    """Precision of flicker on a sequence with each constant of the tracker moved in turn."""
    seen, setting = loaded(name), rule(calibration(name))
    rights = [judged(seen, replace(setting, tracker=one)).flicker_right for one in TRACKERS]
    means = [float(right.mean()) for right in rights]
    every = np.concatenate(rights)
    stem, data = f"video.flicker_precision_other_trackers {name}", DATA[name]
    return [
        plain(f"{stem} lowest", min(means), "share", len(every), data),
        plain(f"{stem} highest", max(means), "share", len(every), data),
        plain(f"{stem} together", float(every.mean()), "share", len(every), data),
    ]


def _uncalibrated() -> list[Result]:
    parts = [judged(loaded(name), uncalibrated_rule()) for name in SEQUENCES]
    found = []
    for kind, rights in (
        ("flicker", [one.flicker_right for one in parts]),
        ("appear", [one.appear_right for one in parts]),
    ):
        name = f"video.uncalibrated_{kind}_precision"
        found += [
            share(f"{name} {one}", int(right.sum()), len(right), DATA[one])
            for one, right in zip(SEQUENCES, rights, strict=True)
        ]
        every = np.concatenate(rights)
        found.append(share(name, int(every.sum()), len(every), ALL_DATA))
    return found


def _of_duplicates() -> list[Result]:
    data = "true boxes of KITTI (10 sequences), MOT17 (3, hidden people too) and MOT15 (2)"
    found = []
    for one in duplicates():
        overlap = overlap_elsewhere(one.sequence)
        found.append(plain(f"duplicates.overlap_elsewhere {one.sequence}", overlap, "IoU", 14, data))
        found.append(
            plain(
                f"duplicates.false_per_1000 {one.sequence}",
                1000 * one.false[overlap] / one.boxes,
                "/1,000 boxes",
                one.boxes,
                f"true boxes of {one.sequence}",
            )
        )
    boxes = [one.boxes for one in duplicates()]
    for overlap in OVERLAPS:
        rate = clustered_share(
            f"duplicates.false_per_1000 overlap={overlap:g}",
            [one.false[overlap] for one in duplicates()],
            boxes,
            data,
        )
        low, high = 1000 * (rate.low or 0.0), 1000 * (rate.high or 0.0)
        found.append(replace(rate, value=1000 * rate.value, low=low, high=high, unit="/1,000 boxes"))
    return [*found, visible_duplicates()]


def visible_duplicates() -> Result:
    """False flags among the people of MOT17 who are not hidden to three quarters or more."""
    parts = [one[one["vis"] > 0.25] for one in map(true_people, DPM)]
    overlap = overlap_elsewhere("")
    false = sum(false_duplicates(one, name, overlap) for one, name in zip(parts, DPM, strict=True))
    boxes = sum(map(len, parts))
    rate = share(
        "duplicates.false_per_1000 visible", false, boxes, "true boxes of MOT17, more than a quarter visible"
    )
    low, high = 1000 * (rate.low or 0.0), 1000 * (rate.high or 0.0)
    return replace(rate, value=1000 * rate.value, low=low, high=high, unit="/1,000 boxes")


def tables(named: Mapping[str, Result]) -> dict[str, str]:
    """Tables of docs/precision.md by name."""
    return {
        "sequences": "\n".join(_sequences(named)),
        "together": "\n".join(_together(named)),
        "trusted": "\n".join(_trusted(named)),
        "faults": "\n".join(_faults(named)),
        "duplicates": "\n".join(_overlaps(named)),
    }


def _sequences(named: Mapping[str, Result]) -> list[str]:
    text = [
        "| sequence | flicker: right of flags | true flickers found | appear: right of flags | "
        "F1 as detected | corrected | every naive gap filled |",
        "|---|---|---|---|---:|---:|---:|",
    ]
    rows = [(name, name) for name in SEQUENCES] + [
        (f"{name} every box", f"{name}, every box") for name in DPM
    ]
    for key, shown in rows:
        f1s = [named[f"video.f1_{what} {key}"].value for what in ("detected", "corrected", "naive_filled")]
        cells = [
            said(named.get(f"video.{what} {key}"))
            for what in ("flicker_precision", "flicker_recall", "appear_precision")
        ]
        text.append(f"| {shown} | {' | '.join(cells)} | {' | '.join(f'{one:.3f}' for one in f1s)} |")
    return text


def _together(named: Mapping[str, Result]) -> list[str]:
    text = ["| over the five sequences | right | clustered by sequence | naive |", "|---|---|---|---|"]
    for kind in ("flicker", "appear"):
        every, naive = named[f"video.{kind}_precision"], named[f"video.naive_{kind}_precision"]
        text.append(
            f"| **{kind}** | {said(every)} | {ends(named[f'{every.name}_clustered'])} | {said(naive)} |"
        )
    return text


def _trusted(named: Mapping[str, Result]) -> list[str]:
    text = [f"| `trusted` | {' | '.join(SEQUENCES)} |", f"|---|{'---|' * len(SEQUENCES)}"]
    for trusted in TRIED:
        cells = [said(named.get(f"video.flicker_precision trusted={trusted:g} {one}")) for one in SEQUENCES]
        text.append(f"| {trusted:g} | {' | '.join(cells)} |")
    for wanted in WANTED:
        cells = []
        for one in SEQUENCES:
            trusted = named[f"video.trusted_elsewhere wanted={wanted:g} {one}"].value
            found = named[f"video.flicker_precision_at_trusted_elsewhere wanted={wanted:g} {one}"]
            cells.append(f"{trusted:g}: {said(found)}")
        text.append(f"| chosen for {wanted:g} on the others | {' | '.join(cells)} |")
    cells = []
    for one in SEQUENCES:
        stem = f"video.flicker_precision_other_trackers {one}"
        low, high, mean = (named[f"{stem} {what}"].value for what in ("lowest", "highest", "together"))
        cells.append(f"{low:.2f} to {high:.2f}, together {mean:.2f}")
    text.append(f"| 0.7, a constant of the tracker moved, {len(TRACKERS)} times | {' | '.join(cells)} |")
    return text


def _faults(named: Mapping[str, Result]) -> list[str]:
    text = [
        "| fault put into KITTI truth | put in | recall | false flags per 1,000 boxes |",
        "|---|---:|---|---:|",
    ]
    stem = "video.recall of "
    for name, recall in named.items():
        if name.startswith(stem):
            what = name.removeprefix(stem)
            false = named[f"video.false_per_1000 of {what}"]
            text.append(f"| {what} | {recall.n} | {recall.value:.3f} {ends(recall, 3)} | {false.value:.2f} |")
    return text


def _overlaps(named: Mapping[str, Result]) -> list[str]:
    text = [
        "| `overlap` of `duplicate_boxes` | false flags per 1,000 true boxes, clustered by sequence |",
        "|---|---|",
    ]
    for overlap in OVERLAPS:
        rate = named[f"duplicates.false_per_1000 overlap={overlap:g}"]
        text.append(f"| {overlap:g} | {rate.value:.2f} {ends(rate)} |")
    return text


def said(one: Result | None) -> str:
    """Share with n and interval; nothing where nothing was said."""
    if one is None:
        return ""
    return f"{one.value:.2f} {ends(one)} of {one.n}"


def ends(one: Result, digits: int = 2) -> str:
    """Interval of a result."""
    return f"[{one.low:.{digits}f}, {one.high:.{digits}f}]"


def main() -> None:
    """Print one line per figure."""
    for one in lines():
        right = one.right / max(one.flags, 1)
        naive = one.naive_right / one.naive_flags
        against = f"promised 0.7; n {one.flags}; naive {naive:.2f} of {one.naive_flags}"
        Figure(f"video.flicker_precision {one.sequence}", right, "share", against, right / 0.7, 1.0).show()
        recall = one.found / one.flickers
        against = f"promised 0.05; n {one.flickers}"
        Figure(f"video.flicker_recall {one.sequence}", recall, "share", against, recall / 0.05, 1.0).show()
        if one.appear_flags:
            right = one.appear_right / one.appear_flags
            naive = one.naive_appear_right / one.naive_appear_flags
            against = f"promised 0.7; n {one.appear_flags}; naive {naive:.2f} of {one.naive_appear_flags}"
            Figure(f"video.appear_precision {one.sequence}", right, "share", against, right / 0.7, 1.0).show()
        against = f"as detected {one.before:.3f}; every naive gap filled: {one.naive_after:.3f}"
        Figure(f"video.f1 {one.sequence}", one.after, "F1", against, one.after / one.before, 1.0).show()
    for name, wanted in product(SEQUENCES, WANTED):
        trusted = chosen_elsewhere(name, wanted)
        flags, hit = every_gap(name).flicker(trusted)
        against = f"promised 0.7; trusted {trusted:g}: {wanted:g} on the others; n {flags}"
        Figure(f"video.flicker_held_out {name}", hit / flags, "share", against, hit / flags / 0.7).show()
    for name, found in fault_table().items():
        show_faults(name, found)
    for dup in duplicates():
        overlap = overlap_elsewhere(dup.sequence)
        rate = 1000 * dup.false[overlap] / dup.boxes
        against = f"promised {PROMISED_FALSE:g}; overlap {overlap:g} chosen on the others; n {dup.boxes}"
        room = PROMISED_FALSE / max(rate, 0.01)
        Figure(f"video.false duplicates {dup.sequence}", rate, "/1,000 boxes", against, room).show()


def show_faults(name: str, found: Faults) -> None:
    """Recall and false flags of one kind of fault."""
    if name.endswith("class_size"):  # a rough net without a promise
        Figure(f"video.recall of {name}", found.recall, "share", "all", found.recall).show()
        precision = found.found / (found.found + found.false)
        Figure(f"video.precision of {name}", precision, "share", "all", precision).show()
        return
    against, room = "promised at most 1", 1.0 / max(found.false_per_1000, 0.01)
    Figure(f"video.recall of {name}", found.recall, "share", "promised 0.95", found.recall / 0.95, 1.0).show()
    Figure(f"video.false flags of {name}", found.false_per_1000, "/1,000 boxes", against, room, 1.0).show()


if __name__ == "__main__":
    if "--write" in sys.argv:
        found = results()
        write(NAME, found, tables({one.name: one for one in found}))
    else:
        main()
