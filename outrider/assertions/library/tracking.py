"""Tracking: objects that appear, disappear or move impossibly."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.consistency import Check, Consistency, Interpolate
from outrider.assertions.consistency.boxes import SIDES
from outrider.assertions.consistency.calibration import Calibration
from outrider.assertions.consistency.scene import objects_of, seen_by_id
from outrider.assertions.consistency.tracker import MotionTracker, Tracker
from outrider.assertions.windows.window import Window

NO_SCORE = np.zeros(0, dtype=np.int64)
TRUSTED = 0.85
"""Minimum mean score of an object considered real, without calibration."""


def flicker(
    boxes: str = "outputs.detections",
    *,
    within: float = 0.5,
    id: str | None = None,
    tracker: Tracker | None = None,
    score: str | None = None,
    calibration: Calibration | None = None,
    trusted: float | None = None,
    corrects: bool | None = None,
    interpolate: Interpolate | None = None,
    by: str = "entity",
    name: str = "flicker",
    level: Level = "warning",
) -> Assertion:
    """Object that disappears and comes back within a moment.

    The proposed correction adds the boxes in between.

    A check of :class:`Consistency`, which documents the parameters; without ``id`` a :class:`MotionTracker`
    identifies objects. Corrections are proposed with ``calibration``, or if ``corrects`` is true; ``trusted``
    is 0.7 with ``calibration``, else 0.85.

    Finds
    -----
    Detections that a model misses between two that it made.

    Cost
    ----
    With ids about 3 µs per record (picture) of 5 boxes and 20 µs per gap; with a tracker 600 µs per record.

    Measured
    --------
    Real detections of MOT17 (DPM) and MOT15 (Faster R-CNN), five sequences, each calibrated on others: 83 %
    [79, 86] of 386 flags are right (80 to 100 % by sequence), with a naive tracker and all gaps 72 % of
    1,208; 6 to 55 % of true flickers found. Without calibration 72 % [69, 74] of 1,142, 35 to 80 % by
    sequence. True tracks of KITTI with 1,172 boxes dropped: all found, nothing else flagged
    (`python -m benchmarks.assertions.video`).

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> shown = [{"track": 7, "left": 1.0}]
    >>> times = [f"2026-01-05T10:00:00.{n}00Z" for n in range(3)]
    >>> lists = zip(times, [shown, [], shown])
    >>> frames = [{"ts": t, "entity": "c", "outputs": {"detections": d}} for t, d in lists]
    >>> Checker([flicker(id="track")]).check(Batch.from_records(frames, model="m")).row
    array([1])
    """
    rule = Consistency(
        explode=boxes,
        id=id,
        tracker=(tracker or MotionTracker()) if id is None else None,
        within=within,
        score=score,
        calibration=calibration,
        trusted=_trusted(trusted, calibration),
        corrects=_corrects(corrects, "flicker"),
        interpolate=interpolate,
        by=by,
        checks=("flicker",),
        level=level,
    )
    return rule.named(name)


def appear(
    boxes: str = "outputs.detections",
    *,
    within: float = 0.5,
    id: str | None = None,
    tracker: Tracker | None = None,
    score: str | None = None,
    calibration: Calibration | None = None,
    trusted: float | None = None,
    corrects: bool | None = None,
    by: str = "entity",
    name: str = "appear",
    level: Level = "warning",
) -> Assertion:
    """Object that is present for a moment only.

    The correction, if requested, removes its boxes.

    A check of :class:`Consistency`, which documents the parameters; without ``id`` a :class:`MotionTracker`
    identifies objects. Corrections are proposed only if ``corrects`` is true; ``trusted`` is 0.7 with
    ``calibration`` (objects of a probability below 0.3 are flagged), else 0.85.

    Finds
    -----
    Ghosts: detections of nothing, which rarely last. Also objects that the model loses again immediately.

    Cost
    ----
    With ids about 3 µs per record (picture) of 5 boxes and 20 µs per flag; with a tracker 600 µs per record.

    Measured
    --------
    Real detections of MOT15 (Faster R-CNN, TUD-Stadtmitte and KITTI-13), each calibrated on the other: 84 %
    [75, 90] of 86 flags are right. On MOT17 (DPM, boxes above 0) it is silent; with every DPM box it is
    right in 61 % [53, 68] of 166 on MOT17-02. Without calibration 56 % [51, 61] of 348 over all five, 22 to
    80 % by sequence (`python -m benchmarks.assertions.video`).

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> shown = [{"track": 7, "left": 1.0}]
    >>> times = [f"2026-01-05T10:00:00.{n}00Z" for n in range(3)]
    >>> lists = zip(times, [[], shown, []])
    >>> frames = [{"ts": t, "entity": "c", "outputs": {"detections": d}} for t, d in lists]
    >>> Checker([appear(id="track")]).check(Batch.from_records(frames, model="m")).row
    array([1])
    """
    rule = Consistency(
        explode=boxes,
        id=id,
        tracker=(tracker or MotionTracker()) if id is None else None,
        within=within,
        score=score,
        calibration=calibration,
        trusted=_trusted(trusted, calibration),
        corrects=_corrects(corrects, "appear"),
        by=by,
        checks=("appear",),
        level=level,
    )
    return rule.named(name)


def _trusted(trusted: float | None, calibration: Calibration | None) -> float | None:
    return TRUSTED if trusted is None and calibration is None else trusted


def _corrects(corrects: bool | None, check: Check) -> Sequence[Check] | None:
    if corrects is None:
        return None
    return (check,) if corrects else ()


def jump(
    boxes: str = "outputs.detections",
    *,
    id: str = "track",
    heights_per_s: float = 30.0,
    within: float = 1.0,
    by: str = "entity",
    box: tuple[str, str, str, str] = SIDES,
    name: str = "jump",
    level: Level = "warning",
) -> Assertion:
    """Object that moves faster than anything can.

    Severity is the greatest speed in the record divided by the limit.

    Parameters
    ----------
    id
        Field with the object's id.
    heights_per_s
        Greatest speed of a box's centre, in heights of the box per second.
    within
        Maximum time in seconds between two compared sightings.

    Finds
    -----
    Ids that a tracker passes from one object to another.

    Cost
    ----
    About 2 µs per record of 5 boxes.

    Measured
    --------
    KITTI tracking truth with 83 pairs of ids swapped, objects at least six heights apart: all found, no false
    flag in 16,858 boxes (`python -m benchmarks.assertions.video`).

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> places = [10.0, 12.0, 300.0]
    >>> times = [f"2026-01-05T10:00:00.{n}00Z" for n in range(3)]
    >>> shown = [[{"track": 7, "left": x, "top": 0.0, "width": 20.0, "height": 40.0}] for x in places]
    >>> frames = [{"ts": t, "entity": "c", "outputs": {"detections": d}} for t, d in zip(times, shown)]
    >>> Checker([jump()]).check(Batch.from_records(frames, model="m")).row
    array([2])
    """
    if heights_per_s <= 0:
        raise ValueError(f"heights_per_s must be > 0, got {heights_per_s}")

    def judge(view: Batch) -> NDArray[np.float64]:
        objects = objects_of(view, boxes)
        seen = seen_by_id(view, objects, objects.column(id), NO_SCORE, round(within * 1e6)).sightings
        sides = objects.sides(box, boxes)
        centre, height = sides[:, :2] + sides[:, 2:] / 2, sides[:, 3]
        order = seen.order
        before, after = order[:-1], order[1:]
        elapsed = np.diff(seen.clock)
        near = ~seen.is_first[1:] & (elapsed <= seen.within) & (elapsed > 0)
        before, after, elapsed_s = before[near], after[near], elapsed[near] / 1e6
        size = np.maximum((height[before] + height[after]) / 2, 1e-9)
        speed = np.linalg.norm(centre[after] - centre[before], axis=1) / size / elapsed_s
        severity = np.zeros(view.rows)
        fast = speed > heights_per_s
        np.maximum.at(severity, objects.row[after[fast]], speed[fast] / heights_per_s)
        return severity

    return assertion(
        name=name,
        level=level,
        description=f"No object of {boxes} moves more than {heights_per_s:g} of its heights a second.",
        window=Window(by=by, seconds=within, columns=(boxes,)),
    )(judge)
