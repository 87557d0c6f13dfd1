"""Detection: boxes of one picture that cannot all be right."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.consistency.boxes import SIDES, overlap_of_pairs
from outrider.assertions.consistency.scene import objects_of
from outrider.assertions.findings import CorrectionKind, Findings, WeakLabels

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
PAIRS_AT_ONCE = 1_000_000
REMOVE: CorrectionKind = "remove"


class Pairs(NamedTuple):
    """Overlapping boxes of one picture, as indices among all boxes."""

    first: Ids
    second: Ids
    overlap: Floats


def multibox(
    boxes: str = "outputs.detections",
    *,
    overlap: float = 0.5,
    box: tuple[str, str, str, str] = SIDES,
    name: str = "multibox",
    level: Level = "warning",
) -> Assertion:
    """Three boxes that all overlap each other.

    Severity is the number of boxes in such groups.

    Parameters
    ----------
    overlap
        Minimum intersection over union of each pair of the three.
    box
        Fields: left, top, width, height.

    Finds
    -----
    Clusters of boxes on one object that non-maximum suppression did not remove (Kang et al., MLSys 2020). Two
    overlapping boxes may be two people who hug; three are rarely three objects.

    Cost
    ----
    About 5 µs per record of 5 boxes; pairs of boxes are compared, so it grows with their number squared.

    Measured
    --------
    KITTI tracking truth with two more boxes put on 589 objects: all found, no other picture flagged (18,036
    boxes). The detections of MOT15 and MOT17 have no such boxes: their makers suppressed them
    (`python -m benchmarks.assertions.video`).

    Examples
    --------
    >>> three = [{"left": float(n), "top": 0.0, "width": 20.0, "height": 40.0} for n in range(3)]
    >>> batch = Batch.from_records([{"outputs": {"detections": d}} for d in (three, three[:2])], model="m")
    >>> multibox().severities(batch)
    array([3., 0.])
    """

    def judge(batch: Batch) -> Floats:
        objects = objects_of(batch, boxes)
        pairs = overlapping(objects.sides(box, boxes), objects.row, overlap)
        severity = np.zeros(batch.rows)
        picture = objects.row[pairs.first]
        counts = np.bincount(picture, minlength=batch.rows)
        for row in np.flatnonzero(counts >= 3).tolist():
            low, high = np.searchsorted(picture, (row, row + 1))
            numbers, places = np.unique(
                np.concatenate([pairs.first[low:high], pairs.second[low:high]]), return_inverse=True
            )
            near = np.zeros((len(numbers), len(numbers)))
            one, other = places[: high - low], places[high - low :]
            near[one, other] = near[other, one] = 1
            severity[row] = float(((near @ near) * near).any(axis=1).sum())
        return severity

    return assertion(name=name, level=level, description=f"Three boxes of {boxes} on one another.")(judge)


def duplicate_boxes(
    boxes: str = "outputs.detections",
    *,
    overlap: float = 0.85,
    same: str | None = None,
    score: str | None = None,
    box: tuple[str, str, str, str] = SIDES,
    name: str = "duplicate_boxes",
    level: Level = "warning",
) -> Assertion:
    """Two boxes on one object.

    Severity is the number of surplus boxes. Correction: removal of these, of two boxes the one with the lower
    score.

    Parameters
    ----------
    overlap
        Minimum intersection over union of two boxes of one object.
    same
        Field that must also be equal, such as the class; without it two classes on one object count as well.
    score
        Field with the model's score; without it the later of two boxes is the surplus one.
    box
        Fields: left, top, width, height.

    Finds
    -----
    Duplicates that non-maximum suppression did not remove, two classes for one object. False on objects that
    briefly hide each other.

    Cost
    ----
    About 6 µs per record of 5 boxes; pairs of boxes are compared, so it grows with their number squared.

    Measured
    --------
    KITTI tracking truth with 585 duplicates at IoU >= 0.85: all found. False flags per 1,000 true boxes: 0.68
    [0, 1.40] over 15 sequences of KITTI, MOT17 and MOT15, 0 to 1.38 by sequence, all of people hidden by
    others (`python -m benchmarks.assertions.video`).

    Examples
    --------
    >>> twice = [{"left": float(n), "top": 0.0, "width": 20.0, "height": 40.0} for n in range(2)]
    >>> batch = Batch.from_records([{"outputs": {"detections": d}} for d in (twice, twice[:1])], model="m")
    >>> duplicate_boxes().severities(batch)
    array([1., 0.])
    """

    def judge(batch: Batch) -> Findings:
        objects = objects_of(batch, boxes)
        pairs = overlapping(objects.sides(box, boxes), objects.row, overlap)
        first, second = pairs.first, pairs.second
        if same is not None:
            objects.require([same], boxes)
            values = objects.column(same)
            alike = pc.equal(values.take(pa.array(first)), values.take(pa.array(second)))
            kept = alike.fill_null(False).to_numpy(zero_copy_only=False)
            first, second = first[kept], second[kept]
        extra = second
        if score is not None:
            sure = np.nan_to_num(objects.numbers(score))
            extra = np.where(sure[first] < sure[second], first, second)
        extra = np.unique(extra)
        rows, counts = np.unique(objects.row[extra], return_counts=True)
        labels = WeakLabels(
            row=objects.row[extra],
            finding=np.searchsorted(rows, objects.row[extra]).astype(np.int64),
            kind=[REMOVE] * len(extra),
            field=(boxes,) * len(extra),
            element=objects.position[extra],
            value=(None,) * len(extra),
            confidence=np.full(len(extra), overlap),
        )
        evidence = [{"boxes": int(count)} for count in counts]
        return Findings(rows, counts.astype(np.float64), evidence=evidence, weak_labels=labels)

    return assertion(name=name, level=level, description=f"An object boxed twice in {boxes}.")(judge)


def class_size(
    limits: Mapping[str, Mapping[str, tuple[float, float]]],
    boxes: str = "outputs.detections",
    *,
    kind: str = "class",
    box: tuple[str, str, str, str] = SIDES,
    name: str = "class_size",
    level: Level = "warning",
) -> Assertion:
    """Box of a size or shape that its class cannot have.

    Severity is the largest excess of the record: 1 at the limit, 2 at twice (or half) of it.

    Parameters
    ----------
    limits
        By class, then by measure (``width``, ``height``, ``area`` in pixels, ``aspect`` = width / height),
        the smallest and largest possible value; :func:`fit_class_sizes` reads them from validated data.
    kind
        Field with the class.
    box
        Fields: left, top, width, height.

    Finds
    -----
    Swapped classes, boxes around half of an object or around several, false detections of impossible shape.

    Cost
    ----
    About 1 µs per record of 5 boxes.

    Measured
    --------
    KITTI tracking truth, limits fitted on five sequences, 344 boxes of five others made 3 to 5 times too wide
    or high: 50 % [45, 56] found, 6.5 false flags per 1,000 boxes. A rough net: densities
    (:func:`~outrider.assertions.learn_observations`) look at several features at once
    (`python -m benchmarks.assertions.video`).

    Examples
    --------
    >>> wide = {"left": 0.0, "top": 0.0, "width": 90.0, "height": 30.0, "class": "person"}
    >>> batch = Batch.from_records([{"outputs": {"detections": [wide]}}], model="m")
    >>> class_size({"person": {"aspect": (0.2, 1.5)}}).severities(batch)
    array([2.])
    """

    def judge(batch: Batch) -> Floats:
        objects = objects_of(batch, boxes)
        measured = _measures(objects.sides(box, boxes))
        objects.require([kind], boxes)
        classes = objects.column(kind)
        excess = np.zeros(len(objects.row))
        for one, bounds in limits.items():
            mine = pc.equal(classes, pa.scalar(one)).fill_null(False).to_numpy(zero_copy_only=False)
            for what, (low, high) in bounds.items():
                value = measured[what][mine]
                ratio = np.maximum(value / high, low / np.maximum(value, 1e-9))
                excess[mine] = np.maximum(excess[mine], np.where(ratio > 1, ratio, 0.0))
        severity = np.zeros(batch.rows)
        np.maximum.at(severity, objects.row, excess)
        return severity

    return assertion(
        name=name, level=level, description=f"Box of {boxes} too large, small or odd for its class."
    )(judge)


def fit_class_sizes(
    batch: Batch,
    boxes: str = "outputs.detections",
    *,
    kind: str = "class",
    margin: float = 0.25,
    least: int = 100,
    box: tuple[str, str, str, str] = SIDES,
) -> dict[str, dict[str, tuple[float, float]]]:
    """Height and aspect range of each class in validated data.

    Ranges are widened by the share ``margin``. Classes with fewer than ``least`` boxes get no limits, as
    their range is unreliable.
    """
    objects = objects_of(batch, boxes)
    measured = _measures(objects.sides(box, boxes))
    classes = np.asarray(objects.column(kind).to_pylist(), dtype=object)
    return {
        str(one): {
            what: (
                float(measured[what][classes == one].min()) / (1 + margin),
                float(measured[what][classes == one].max()) * (1 + margin),
            )
            for what in ("height", "aspect")
        }
        for one in sorted({one for one in classes.tolist() if one is not None})
        if (classes == one).sum() >= least
    }


def overlapping(sides: Floats, picture: Ids, overlap: float) -> Pairs:
    """Pairs of boxes in one picture with enough overlap.

    ``overlap`` is the minimum intersection over union. ``sides`` holds left, top, width, height, shape
    (boxes, 4); ``picture`` the ascending picture number of each box, shape (boxes,).
    """
    kept = []
    for first, second in _pairs(picture):
        ratio = overlap_of_pairs(sides[first], sides[second])
        near = ratio >= overlap
        kept.append(Pairs(first[near], second[near], ratio[near]))
    none = np.zeros(0, dtype=np.int64)
    return Pairs(
        np.concatenate([none, *(part.first for part in kept)]),
        np.concatenate([none, *(part.second for part in kept)]),
        np.concatenate([np.zeros(0), *(part.overlap for part in kept)]),
    )


def _pairs(picture: Ids) -> Iterator[tuple[Ids, Ids]]:
    """All pairs of boxes of one picture, each once, in blocks of limited size."""
    end = np.searchsorted(picture, picture, side="right")
    others = end - np.arange(len(picture)) - 1
    total = np.cumsum(others)
    start = 0
    while start < len(picture):
        done = int(total[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total, done + PAIRS_AT_ONCE, side="right")))
        count = others[start:stop]
        first = np.repeat(np.arange(start, stop), count)
        second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(count) - count, count)
        yield first, second
        start = stop


def _measures(sides: Floats) -> dict[str, Floats]:
    width, height = sides[:, 2], sides[:, 3]
    return {
        "width": width,
        "height": height,
        "area": width * height,
        "aspect": width / np.maximum(height, 1e-9),
    }
