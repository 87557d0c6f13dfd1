"""Scene of a view: its frames and the objects in them."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import entity_codes

from .sightings import SCORE_UNITS, Sightings
from .tracker import Frame, Tracker, Tracks

Ids = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
_NONE: Ids = np.zeros(0, dtype=np.int64)

WARM_UP, CHUNK, SETTLE = 3, 6, 3
"""Event time in units of ``within``: the tracker restarts for every ``CHUNK``, runs ``WARM_UP`` before it,
and continues ``SETTLE`` after it, until all events that began in the chunk are decided."""
REACH, REACH_TRACKED = 4, WARM_UP + CHUNK + SETTLE
"""Required length of the window, in units of ``within``."""
REMEMBERED_RUNS = 1024


class Objects(NamedTuple):
    """Elements of a list column, or the records themselves.

    Attributes
    ----------
    row
        Row of the view, ascending, shape (elements,).
    position
        Position in the list; -1 for the record itself.
    columns
        Arrow array of each field, by short name; plain values have the name of their list.
    """

    row: Ids
    position: Ids
    columns: dict[str, pa.Array]

    def column(self, name: str) -> pa.Array:
        """Values of a field. All null if no record of the view has the field."""
        found = self.columns.get(name)
        return pa.nulls(len(self.row)) if found is None else found

    def numbers(self, name: str) -> Floats:
        """Values of a field of numbers, NaN for null, shape (elements,)."""
        values: Floats = self.column(name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return values

    def require(self, fields: Sequence[str], of: str, advice: str = "") -> None:
        """Raise ValueError if all elements of list ``of`` lack a field.

        An empty list lacks none; the message names the field and the existing ones.
        """
        lacking = [name for name in fields if len(self.row) and name not in self.columns]
        if lacking:
            there = ", ".join(name for name in self.columns if name != of) or "none"
            raise ValueError(f"{of} has no field {lacking[0]!r}; there are {there}{advice}")

    def sides(self, box: Sequence[str], of: str) -> Floats:
        """Left, top, width and height of boxes, NaN for null.

        Shape (elements, 4) in total; raises ValueError if the boxes of list ``of`` lack these fields.
        """
        advice = "; send left, top, width and height of a box, or name the fields that are these: box=(...)"
        self.require(box, of, advice)
        return np.column_stack([self.numbers(name) for name in box])


class Seen(NamedTuple):
    """Frames of a view with their objects.

    Where tracker runs overlap, a frame is repeated.

    Attributes
    ----------
    sightings
        Objects by frame.
    row
        Row of the view of each frame.
    element
        Index into :class:`Objects` of each element of ``sightings``.
    begins
        Mask of the frames at which an event may begin that is judged here; other tracker runs judge the rest.
    names
        Name of each object code.
    """

    sightings: Sightings
    row: Ids
    element: Ids
    begins: Bools
    names: Sequence[Any]


def objects_of(view: Batch, explode: str | None, fields: Sequence[str] = ()) -> Objects:
    """Elements of a view with all their fields. Without ``explode`` the records, with columns ``fields``."""
    if explode is None:
        present = {name: view.arrow(name) for name in fields if view.has(name)}
        return Objects(np.arange(view.rows), np.full(view.rows, -1), present)
    if not view.has(explode):
        view = view.with_columns({explode: pa.nulls(view.rows)})
    elements = view.explode(explode)
    table = elements.to_arrow()
    short = {
        name.removeprefix(f"{explode}."): table.column(name)
        for name in table.schema.names
        if name == explode or name.startswith(f"{explode}.")
    }
    return Objects(elements.parent.astype(np.int64), elements.element.astype(np.int64), short)


def micros(view: Batch) -> Ids:
    """Event time in microseconds, shape (rows,)."""
    return view.column("ts").astype("datetime64[us]").astype(np.int64)


def seen_by_id(view: Batch, objects: Objects, identity: pa.Array, score: Ids, within: int) -> Seen:
    """Objects identified by an id field."""
    codes, names = entity_codes(identity)
    sightings = Sightings(
        entity=_entities(view),
        time=micros(view),
        judged=view.is_new,
        last=view.is_last,
        frame=objects.row,
        object=codes,
        within=within,
        score=score,
    )
    everything = np.ones(view.rows, dtype=np.bool_)
    return Seen(sightings, np.arange(view.rows), np.arange(len(objects.row)), everything, names)


class TrackedPiece(NamedTuple):
    """Consecutive rows of one stream covered by one tracker run. With the ids of their boxes."""

    low: int
    high: int
    begin: int
    end: int
    ended: bool
    ids: Ids


class TrackedRun(NamedTuple):
    """Saved state of a tracker run. Digest and box ids of each frame, and the tracks."""

    digests: list[bytes]
    ids: list[Ids]
    tracks: Tracks


@dataclass
class Runs:
    """Cached tracker runs over pieces of streams.

    A tracker's answer depends on all earlier frames, so in a sliding window it would depend on how the stream
    is cut. Runs therefore start at fixed event times. They are continued if the next view has the same
    frames; losing the cache costs time only.
    """

    tracker: Tracker
    known: OrderedDict[tuple[int, bytes], TrackedRun] = field(default_factory=OrderedDict)

    def seen(self, view: Batch, objects: Objects, boxes: Floats, score: Ids, within: int) -> Seen:
        """Objects identified by the tracker. Named by row and position of their first box."""
        time = micros(view)
        bounds = np.searchsorted(objects.row, np.arange(view.rows + 1))
        pieces = [
            piece._replace(ids=self._ids(piece, time, boxes, score, bounds))
            for piece in _pieces(view, time, within)
        ]
        names: list[tuple[int, int]] = []
        rows, elements, frames, things, streams, begins, judged, ended = ([_NONE] for _ in range(8))
        total = 0
        for number, piece in enumerate(pieces):
            row = np.arange(piece.low, piece.high)
            here = np.arange(bounds[piece.low], bounds[piece.high])
            codes, first = np.unique(piece.ids, return_index=True)
            things.append(np.searchsorted(codes, piece.ids) + len(names))
            names += zip(
                objects.row[here[first]].tolist(), objects.position[here[first]].tolist(), strict=True
            )
            rows.append(row)
            elements.append(here)
            frames.append(objects.row[here] - piece.low + total)
            streams.append(np.full(len(row), number))
            begins.append(((time[row] >= piece.begin) & (time[row] < piece.end)).astype(np.int64))
            judged.append((view.is_new[row] & (time[row] >= piece.begin)).astype(np.int64))
            ended.append(np.r_[np.zeros(len(row) - 1, dtype=np.int64), piece.ended])
            total += len(row)
        every, element = np.concatenate(rows), np.concatenate(elements)
        sightings = Sightings(
            entity=np.concatenate(streams),
            time=time[every],
            judged=np.concatenate(judged).astype(np.bool_),
            last=np.concatenate(ended).astype(np.bool_),
            frame=np.concatenate(frames),
            object=np.concatenate(things),
            within=within,
            score=score[element] if len(score) else score,
        )
        return Seen(sightings, every, element, np.concatenate(begins).astype(np.bool_), names)

    def _ids(self, piece: TrackedPiece, time: Ids, boxes: Floats, score: Ids, bounds: Ids) -> Ids:
        """Ids of all boxes of a piece; continues from the cached run if its frames are equal."""
        frames, digests = [], []
        for row in range(piece.low, piece.high):
            part = slice(bounds[row], bounds[row + 1])
            sure = score[part] / SCORE_UNITS if len(score) else np.ones(len(boxes[part]))
            frame = Frame(boxes[part], sure, float(time[row] - piece.begin) / 1e6)
            digest = blake2b(frame.boxes.tobytes() + sure.tobytes(), digest_size=16)
            digest.update(int(time[row]).to_bytes(8, "little", signed=True))
            frames.append(frame)
            digests.append(digest.digest())
        key = piece.begin, digests[0]
        run = self.known.pop(key, None)
        done = len(run.digests) if run is not None else 0
        if run is None or run.digests != digests[:done]:
            run, done = TrackedRun([], [], Tracks.none()), 0
        tracks, found = run.tracks, list(run.ids)
        for frame in frames[done:]:
            tracks, ids = self.tracker.step(tracks, frame)
            found.append(ids)
        self.known[key] = TrackedRun(digests, found, tracks)
        if len(self.known) > REMEMBERED_RUNS:
            self.known.popitem(last=False)
        return np.concatenate(found)


def _pieces(view: Batch, time: Ids, within: int) -> Iterator[TrackedPiece]:
    """Pieces with possible decisions, by stream and time; consecutive ones overlap."""
    entity, chunk_size = _entities(view), CHUNK * within
    edges = np.flatnonzero(np.r_[True, np.diff(entity) > 0, True][: len(entity) + 1])
    for start, stop in pairwise(edges.tolist()):
        mine = time[start:stop]
        for chunk in np.unique(mine // chunk_size).tolist():
            begin, end = chunk * chunk_size, (chunk + 1) * chunk_size
            low = start + int(np.searchsorted(mine, begin - WARM_UP * within, "left"))
            high = start + int(np.searchsorted(mine, end + SETTLE * within, "left"))
            ended = high == stop and bool(view.is_last[stop - 1])
            if ended or (view.is_new[low:high] & (time[low:high] >= begin)).any():
                yield TrackedPiece(low, high, begin, end, ended, _NONE)


def _entities(view: Batch) -> Ids:
    """Index of each row's stream; a view has the rows of a stream together."""
    return np.cumsum(view.previous_rows() < 0) - 1
