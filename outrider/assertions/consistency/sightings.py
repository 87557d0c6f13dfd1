"""Sightings of objects in frames: flicker, short appearances and contradictions.

A decision depends on at most four times ``within`` before its frame, so a window of that length gives equal
answers however the stream is cut.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
PAIRS_AT_ONCE = 2_000_000
SCORE_UNITS = 1_000_000


class SightingGaps(NamedTuple):
    """Gaps in the sightings of objects: the elements just before and after."""

    before: Ids
    after: Ids
    share: Floats
    """Share of frames that show the object, from ``within`` before the gap to its end."""
    sureness: Floats
    """Mean score of the object around the gap; NaN without scores."""

    def where(self, kept: Bools) -> "SightingGaps":
        """Subset of the gaps."""
        return SightingGaps(self.before[kept], self.after[kept], self.share[kept], self.sureness[kept])


class Blips(NamedTuple):
    """Objects that are present only briefly: ``start`` to ``stop`` in ``Sightings.order``."""

    start: Ids
    stop: Ids
    share: Floats
    """Share of frames that do not show the object, from ``within`` before to ``within`` after."""
    sureness: Floats
    """Mean score of the object; NaN without scores."""

    def where(self, kept: Bools) -> "Blips":
        """Subset of the blips."""
        return Blips(self.start[kept], self.stop[kept], self.share[kept], self.sureness[kept])


class Deviations(NamedTuple):
    """Elements that contradict the other sightings of their object."""

    element: Ids
    majority: Ids
    """Code of the most frequent value; -1 for a tie."""
    share: Floats
    """Share of the sightings with that value."""

    def where(self, kept: Bools) -> "Deviations":
        """Subset of the deviations."""
        return Deviations(self.element[kept], self.majority[kept], self.share[kept])


@dataclass(frozen=True)
class Sightings:
    """Objects by frame, as arrays.

    Attributes
    ----------
    entity
        Code of the stream each frame belongs to; frames of one stream are consecutive, shape (frames,).
    time
        Microseconds, ascending inside a stream, shape (frames,).
    judged
        Mask of the new frames, whose arrival may decide an event; the others are context, shape (frames,).
    last
        True on the last frame of a stream that has ended, shape (frames,).
    frame
        Frame of each element, ascending, shape (elements,).
    object
        Code >= 0 of the object that an element shows, or -1 for none, shape (elements,).
    within
        Maximum length of a gap or appearance that counts as an error, in microseconds.
    score
        Model confidence of each element in millionths, shape (elements,); empty without scores. Integers make
        sums independent of how the stream is cut.
    """

    entity: Ids
    time: Ids
    judged: Bools
    last: Bools
    frame: Ids
    object: Ids
    within: int
    score: Ids

    @cached_property
    def order(self) -> Ids:
        """Elements with an object, sorted by stream, object and frame."""
        shown = np.flatnonzero(self.object >= 0)
        stream = self.entity[self.frame[shown]]
        many = int(self.object.max(initial=0)) + 1
        return shown[np.argsort(stream * many + self.object[shown], kind="stable")]

    @cached_property
    def is_first(self) -> Bools:
        """Mask of the first sighting of each object, along ``order``."""
        element = self.order
        stream, thing = self.entity[self.frame[element]], self.object[element]
        first: Bools = np.r_[True, (stream[1:] != stream[:-1]) | (thing[1:] != thing[:-1])][: len(element)]
        return first

    @cached_property
    def clock(self) -> Ids:
        """Time along ``order``, made ascending. Objects are separated by more than any window."""
        return _clock(self.time[self.frame[self.order]], self.is_first, self.within)

    @cached_property
    def frame_clock(self) -> Ids:
        """Time along the frames, made ascending across streams."""
        return _clock(self.time, self._is_first_frame, self.within)

    @cached_property
    def _is_first_frame(self) -> Bools:
        first: Bools = np.r_[True, self.entity[1:] != self.entity[:-1]][: len(self.entity)]
        return first

    @cached_property
    def _final_frame(self) -> Ids:
        """Last frame of each frame's stream."""
        final = np.flatnonzero(np.r_[self._is_first_frame[1:], True])
        found: Ids = final[np.cumsum(self._is_first_frame) - 1]
        return found

    def gaps(self, *, trusted: float = 0.0) -> SightingGaps:
        """Objects absent for at least a frame and back within ``within``.

        Only those decided by the new frames. ``trusted`` is the minimum mean score of the object, from
        ``within`` before the gap to ``within`` after it. Without scores a gap is decided at the frame in
        which the object is back; with scores ``within`` later.
        """
        element, frame, clock = self.order, self.frame[self.order], self.clock
        near = ~self.is_first[1:] & (np.diff(frame) > 1) & (np.diff(clock) <= self.within)
        back = np.flatnonzero(near).astype(np.int64)
        if not len(self.score):
            back = back[self.judged[frame[back + 1]]]
            sureness = np.full(len(back), np.nan)
        else:
            back = back[self._decided(frame[back + 1], self.within)]
            sureness = self._mean_score(
                np.searchsorted(clock, clock[back] - self.within, "left"),
                np.searchsorted(clock, clock[back + 1] + self.within, "right"),
            )
            real = sureness >= trusted
            back, sureness = back[real], sureness[real]
        seen = back + 2 - np.searchsorted(clock, clock[back] - self.within, "left")
        missing = frame[back + 1] - frame[back] - 1
        return SightingGaps(element[back], element[back + 1], seen / (seen + missing), sureness)

    def blips(self, *, trusted: float = np.inf) -> Blips:
        """Objects present for less than ``within``, absent before and after.

        Only those decided by the new frames. With scores, objects of a mean score of at least ``trusted`` are
        left out.
        """
        frame, clock = self.frame[self.order], self.clock
        start = np.flatnonzero(self.is_first | np.r_[True, np.diff(clock) > self.within][: len(clock)])
        stop = np.r_[start[1:], len(clock)][: len(start)]
        first, final = frame[start], frame[stop - 1]
        before = first - 1
        was_there = ~self._is_first_frame[first] & (
            self.frame_clock[first] - self.frame_clock[before] <= self.within
        )
        short = (
            (clock[stop - 1] - clock[start] < self.within) & was_there & (final < self._final_frame[final])
        )
        start, stop = start[short], stop[short]
        decided = self._decided(frame[stop - 1], self.within)
        start, stop = start[decided].astype(np.int64), stop[decided].astype(np.int64)
        sureness = np.full(len(start), np.nan)
        if len(self.score):
            sureness = self._mean_score(start, stop)
            unsure = sureness < trusted
            start, stop, sureness = start[unsure], stop[unsure], sureness[unsure]
        low = np.searchsorted(self.frame_clock, self.frame_clock[frame[start]] - self.within, "left")
        high = np.searchsorted(self.frame_clock, self.frame_clock[frame[stop - 1]] + self.within, "right")
        share = np.clip(1 - (stop - start) / (high - low), 0.01, 1.0)
        return Blips(start, stop, share, sureness)

    def deviations(self, value: Ids) -> Deviations:
        """Elements that contradict most sightings of their object nearby.

        Sightings count from ``within`` before to ``within`` after, and only elements decided by the new
        frames. After a permanent change the first element with the new value is listed, without a majority.

        Parameters
        ----------
        value
            Code >= 0 of each element's value, -1 if unknown, shape (elements,).
        """
        at = np.flatnonzero(value[self.order] >= 0)
        codes, clock, thing = value[self.order][at], self.clock[at], np.cumsum(self.is_first)[at]
        changed = np.r_[False, (thing[1:] == thing[:-1]) & (codes[1:] != codes[:-1])][: len(at)]
        winner, share = np.full(len(at), -1, dtype=np.int64), np.full(len(at), 0.5)
        if not changed.any():
            return Deviations(at[:0], winner[:0], share[:0])
        low = np.searchsorted(clock, clock - self.within, side="left")
        high = np.searchsorted(clock, clock + self.within, side="right")
        run = np.cumsum(changed)
        mixed = np.flatnonzero(run[low] != run[high - 1])
        majority, best, own = _majorities(codes, mixed, low[mixed], high[mixed])
        minority = np.zeros(len(at), dtype=np.bool_)
        minority[mixed] = own < best
        winner[mixed], share[mixed] = majority, best / (high - low)[mixed]
        kept = np.flatnonzero(~minority)
        earlier, later = kept[:-1], kept[1:]
        near = (thing[later] == thing[earlier]) & (clock[later] - clock[earlier] <= self.within)
        switch = later[near & (codes[later] != codes[earlier])]
        winner[switch], share[switch] = -1, 0.5
        found = np.union1d(np.flatnonzero(minority), switch)
        element = self.order[at[found]]
        decided = self._decided(self.frame[element], self.within)
        return Deviations(element[decided], winner[found][decided], share[found][decided])

    def _decided(self, frame: Ids, delay: int) -> Bools:
        """Mask of the frames for which time ``frame + delay`` has just passed.

        The end of a stream decides all open frames. If the stream was silent for more than ``within`` longer
        than the delay, frames stay undecided: the window may have dropped their context.
        """
        clock, count = self.frame_clock, len(self.time)
        due = clock[frame] + delay
        at = np.searchsorted(clock, due, side="right")
        found = np.minimum(at, count - 1)
        inside = (at < count) & (self.entity[found] == self.entity[frame])
        now = self.judged[found] & (clock[found] - due <= self.within)
        return np.where(inside, now, self.last[self._final_frame[frame]]).astype(np.bool_)

    def _mean_score(self, start: Ids, stop: Ids) -> Floats:
        """Mean score of the elements from ``start`` to ``stop`` in ``order``, from exact integer sums."""
        total = np.r_[0, np.cumsum(self.score[self.order])]
        mean: Floats = (total[stop] - total[start]) / (np.maximum(stop - start, 1) * SCORE_UNITS)
        return mean


def _clock(time: Ids, is_first: Bools, within: int) -> Ids:
    """Ascending time in which groups are 8 ``within`` apart and longer silences are cut to that."""
    if not len(time):
        return time
    step = np.minimum(np.diff(time, prepend=time[:1]), 8 * within)
    clock: Ids = np.cumsum(np.where(is_first, 8 * within, step))
    return clock


def _majorities(codes: Ids, at: Ids, low: Ids, high: Ids) -> tuple[Ids, Ids, Ids]:
    """Most frequent code from ``low`` to ``high`` (-1: a tie), its count, and that of the code at ``at``."""
    winner, best, own = (np.zeros(len(at), dtype=np.int64) for _ in range(3))
    ends = np.cumsum(high - low)
    start = 0
    while start < len(at):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
        part = slice(start, stop)
        winner[part], best[part], own[part] = _majorities_of(codes, at[part], low[part], high[part])
        start = stop
    return winner, best, own


def _majorities_of(codes: Ids, at: Ids, low: Ids, high: Ids) -> tuple[Ids, Ids, Ids]:
    size = high - low
    owner = np.repeat(np.arange(len(at)), size)
    seen = codes[np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size - low, size)]
    many = int(codes.max()) + 1
    pair, count = np.unique(owner * many + seen, return_counts=True)
    judge, code = pair // many, pair % many
    ranked = np.lexsort((code, -count, judge))
    first = np.r_[True, np.diff(judge[ranked]) > 0]
    top = ranked[first]
    best = count[top]
    tied = np.bincount(judge[count == best[judge]], minlength=len(at)) > 1
    own = np.zeros(len(at), dtype=np.int64)
    mine = code == codes[at][judge]
    own[judge[mine]] = count[mine]
    return np.where(tied, -1, code[top]), best, own
