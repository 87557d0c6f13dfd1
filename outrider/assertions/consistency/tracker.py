"""Trackers: give boxes an identity from frame to frame.

For models whose boxes have none.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .boxes import centred, cornered, overlaps

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


class Frame(NamedTuple):
    """Boxes of one picture.

    Attributes
    ----------
    boxes
        ``left, top, width, height``, shape (n, 4).
    scores
        Model confidence of each box, shape (n,).
    time_s
        Time of the picture in seconds, later than that of the previous frame.
    """

    boxes: Floats
    scores: Floats
    time_s: float


@dataclass(frozen=True, slots=True)
class Tracks:
    """State of a tracker between two frames.

    Attributes
    ----------
    id
        Shape (tracks,).
    place
        Smoothed centre and size at the last sighting, shape (tracks, 4).
    velocity
        Change of ``place`` per second, shape (tracks, 4).
    seen_s
        Time of the last sighting in seconds, shape (tracks,).
    hits
        Number of sightings so far, shape (tracks,).
    next_id
        Id of the next new object.
    """

    id: Ids
    place: Floats
    velocity: Floats
    seen_s: Floats
    hits: Ids
    next_id: int = 0

    @classmethod
    def none(cls) -> "Tracks":
        """State before the first frame."""
        whole, real = np.zeros(0, dtype=np.int64), np.zeros(0)
        return cls(whole, np.zeros((0, 4)), np.zeros((0, 4)), real, whole)

    def to_json(self) -> str:
        """JSON text of the tracks, for :meth:`from_json`; exact."""
        return json.dumps({name: np.asarray(getattr(self, name)).tolist() for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> "Tracks":
        """Tracks from the text of :meth:`to_json`."""
        saved: dict[str, Any] = json.loads(text)
        return cls(
            id=np.array(saved["id"], dtype=np.int64),
            place=np.array(saved["place"], dtype=np.float64).reshape(-1, 4),
            velocity=np.array(saved["velocity"], dtype=np.float64).reshape(-1, 4),
            seen_s=np.array(saved["seen_s"], dtype=np.float64),
            hits=np.array(saved["hits"], dtype=np.int64),
            next_id=saved["next_id"],
        )


class Tracker(Protocol):
    """Protocol of trackers: assign an object id to each box.

    A pure function of its tracks and the next frame.
    """

    def step(self, tracks: Tracks, frame: Frame) -> tuple[Tracks, Ids]:
        """Tracks after the frame, and each box's object id, shape (n,)."""
        ...


def track(frames: Sequence[Frame], tracker: Tracker | None = None) -> list[Ids]:
    """Object ids of the boxes of each frame of a sequence.

    Parameters
    ----------
    tracker
        :class:`MotionTracker` by default.

    Examples
    --------
    >>> frames = [Frame(np.array([[10.0 * n, 0, 20, 40]]), np.array([0.9]), n / 10) for n in range(4)]
    >>> [ids.tolist() for ids in track(frames)]
    [[0], [0], [0], [0]]
    """
    judge = tracker or MotionTracker()
    tracks, found = Tracks.none(), []
    for frame in frames:
        tracks, ids = judge.step(tracks, frame)
        found.append(ids)
    return found


@dataclass(frozen=True, slots=True)
class IouTracker:
    """Tracker that matches each box by overlap with the last one.

    Attributes
    ----------
    overlap
        Minimum intersection over union of an object's consecutive boxes.
    memory_s
        Seconds without a sighting after which an object is forgotten.
    """

    overlap: float = 0.3
    memory_s: float = 0.6

    def step(self, tracks: Tracks, frame: Frame) -> tuple[Tracks, Ids]:
        """Tracks after the frame, and each box's object id, shape (n,)."""
        kept = _recent(tracks, frame.time_s - self.memory_s)
        likeness = overlaps(cornered(kept.place), frame.boxes)
        known, box = _pairs(np.where(likeness >= self.overlap, likeness, 0.0))
        place, velocity = kept.place.copy(), kept.velocity
        place[known] = centred(frame.boxes[box])
        return _seen(replace(kept, place=place, velocity=velocity), frame, known, box)


@dataclass(frozen=True, slots=True)
class MotionTracker:
    """Tracker with constant velocity that matches confident boxes and established objects first.

    Predicts each object's box from its smoothed velocity (an alpha-beta filter, the steady state of a Kalman
    filter), then matches in two rounds: boxes with a high score, then the others, which must fit better.
    Boxes are compared after widening both (fast, small objects at a low frame rate do not overlap their
    previous box) and must have a similar height.

    Attributes
    ----------
    sure
        Minimum score of a box in the first round.
    overlap
        Minimum intersection over union of prediction and box, widened, in the first round.
    overlap_unsure
        The same in the second round.
    widen
        Share of width and height added on each side before boxes are compared.
    height_ratio
        Minimum ratio of the smaller to the larger height.
    history
        Bonus of an object seen five times or more over a newer one when both compete for one box.
    position_gain, velocity_gain
        Share of the prediction's error that corrects place and velocity; the first sightings count more.
    memory_s
        Seconds without a sighting after which an object is forgotten.

    References
    ----------
    Two rounds: Zhang et al., "ByteTrack", ECCV 2022. Widened boxes: Yang et al., "Hard to Track Objects with
    Irregular Motions and Similar Appearances? Make It Easier by Buffering the Matching Space", WACV 2023.
    """

    sure: float = 0.7
    overlap: float = 0.2
    overlap_unsure: float = 0.4
    widen: float = 0.2
    height_ratio: float = 0.5
    history: float = 0.4
    position_gain: float = 0.6
    velocity_gain: float = 0.3
    memory_s: float = 1.0

    def step(self, tracks: Tracks, frame: Frame) -> tuple[Tracks, Ids]:
        """Tracks after the frame, and each box's object id, shape (n,)."""
        kept = _recent(tracks, frame.time_s - self.memory_s)
        place = centred(frame.boxes)
        elapsed_s = frame.time_s - kept.seen_s
        predicted = kept.place + kept.velocity * elapsed_s[:, None]
        predicted[:, 2:] = np.maximum(predicted[:, 2:], 1.0)
        likeness = self._likeness(predicted, place, frame.boxes)
        worth = likeness + self.history * np.minimum(kept.hits, 5)[:, None] / 5
        sure = np.asarray(frame.scores) >= self.sure
        known, box = _pairs(np.where((likeness >= self.overlap) & sure, worth, 0.0))
        rest = np.where((likeness >= self.overlap_unsure) & ~sure, worth, 0.0)
        rest[known] = 0.0
        late = _pairs(rest)
        known, box = np.concatenate([known, late[0]]), np.concatenate([box, late[1]])
        return _seen(self._moved(kept, predicted, place[box], elapsed_s, known), frame, known, box)

    def _likeness(self, predicted: Floats, place: Floats, boxes: Floats) -> Floats:
        likeness = overlaps(cornered(predicted), boxes, buffer=self.widen)
        low = np.minimum(predicted[:, None, 3], place[None, :, 3])
        high = np.maximum(predicted[:, None, 3], place[None, :, 3])
        return np.where(low >= self.height_ratio * high, likeness, 0.0)

    def _moved(self, kept: Tracks, predicted: Floats, sighted: Floats, elapsed: Floats, known: Ids) -> Tracks:
        """Tracks whose sighted members have place and velocity corrected by the prediction error."""
        error = sighted - predicted[known]
        hits = kept.hits[known][:, None]
        gain = np.maximum(self.position_gain, 1.0 / (hits + 1))
        # The second sighting says more of the velocity than later ones; sizes change slowly.
        turn = np.where(hits > 1, self.velocity_gain, 2 * self.velocity_gain) * np.array([1.0, 1.0, 0.3, 0.3])
        place, velocity = kept.place.copy(), kept.velocity.copy()
        place[known] = predicted[known] + gain * error
        velocity[known] += turn * error / np.maximum(elapsed[known], 1e-6)[:, None]
        return replace(kept, place=place, velocity=velocity)


def _recent(tracks: Tracks, oldest_s: float) -> Tracks:
    keep = tracks.seen_s >= oldest_s - 1e-9
    return Tracks(
        tracks.id[keep],
        tracks.place[keep],
        tracks.velocity[keep],
        tracks.seen_s[keep],
        tracks.hits[keep],
        tracks.next_id,
    )


def _pairs(worth: Floats) -> tuple[Ids, Ids]:
    """Rows and columns of the assignment of greatest total value; pairs of value 0 are left out."""
    from scipy.optimize import linear_sum_assignment  # 0.1 s to load

    if not worth.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    paired = worth[rows, columns] > 0
    return rows[paired].astype(np.int64), columns[paired].astype(np.int64)


def _seen(tracks: Tracks, frame: Frame, known: Ids, box: Ids) -> tuple[Tracks, Ids]:
    """Tracks after a frame: matched ones are sighted, every other box starts a new object."""
    count = len(frame.boxes)
    new = np.setdiff1d(np.arange(count), box)
    ids = np.empty(count, dtype=np.int64)
    ids[box] = tracks.id[known]
    ids[new] = tracks.next_id + np.arange(len(new))
    seen_s, hits = tracks.seen_s.copy(), tracks.hits.copy()
    seen_s[known] = frame.time_s
    hits[known] += 1
    return Tracks(
        id=np.concatenate([tracks.id, ids[new]]),
        place=np.concatenate([tracks.place, centred(frame.boxes[new])]),
        velocity=np.concatenate([tracks.velocity, np.zeros((len(new), 4))]),
        seen_s=np.concatenate([seen_s, np.full(len(new), frame.time_s)]),
        hits=np.concatenate([hits, np.ones(len(new), dtype=np.int64)]),
        next_id=tracks.next_id + len(new),
    ), ids
