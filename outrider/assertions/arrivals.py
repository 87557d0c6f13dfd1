"""Arrival of records: in time, late, or after their entity ended.

A long silence ends an entity.

Everything here follows from an entity's own arrivals, one after the other, so that no answer depends on how
the stream was cut into batches. Rows are sorted by entity, then arrival.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NEVER = np.int64(-(2**62))
"""Before every time that a record can have, and far enough from the edge to subtract from."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Delay and idle time of a window, in µs.

    ``lateness`` None holds all records back to the end.
    """

    lateness: int | None
    idle: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrived records as columns, by entity, then arrival.

    Attributes
    ----------
    round
        How many segments of its entity ended before the record, since the state was last updated.
    late
        Older than what its entity's watermark had passed.
    newest
        Latest ``ts`` of the segment up to and including the record.
    floor
        Latest ``ts`` at the last silence that made the entity give up what it held back.
    """

    round: Ints
    late: Bools
    newest: Ints
    floor: Ints


def judge_arrivals(
    pace: Pace,
    ts: Ints,
    clock: Ints,
    first: Bools,
    *,
    known: Bools,
    seen: Ints,
    newest: Ints,
    floor: Ints,
) -> Arrivals:
    """Segment, lateness and watermark of every record.

    Parameters
    ----------
    ts, clock, first
        Event and receive time of each row, and whether it is the first of its entity.
    known, seen, newest, floor
        What is known from before about the entity of each first row: whether anything, when it was last seen
        (receive time), its newest ``ts`` and its floor.
    """
    rows = len(ts)
    at = np.flatnonzero(first)
    before = np.empty_like(clock)
    before[1:] = clock[:-1]
    before[at] = np.where(known, seen, clock[at])
    gap = clock - before
    breaks = gap >= pace.idle
    starts = first | breaks
    continues = np.zeros(rows, dtype=np.bool_)
    continues[at] = known & ~breaks[at]
    held = np.full(rows, NEVER)
    held[at] = np.where(continues[at], newest, NEVER)
    top = running_max(np.maximum(ts, held), starts)
    previous = held.copy()
    inner = np.flatnonzero(~starts)
    previous[inner] = top[inner - 1]
    floors = np.full(rows, NEVER)
    if pace.lateness:
        floors[at] = np.where(continues[at], floor, NEVER)
        silent = (gap >= pace.lateness) & ~breaks & (previous > NEVER)
        floors = running_max(np.where(silent, previous, floors), starts)
    if pace.lateness is None:
        late = np.zeros(rows, dtype=np.bool_)
    else:
        late = ts < np.maximum(previous - pace.lateness, floors)
    return Arrivals(_rounds(breaks, at), late, top, floors)


def _rounds(breaks: Bools, at: Ints) -> Ints:
    """Breaks of each row's entity so far."""
    if not breaks.any():
        return np.zeros(len(breaks), dtype=np.int64)
    total = np.cumsum(breaks)
    base: Ints = total[at] - breaks[at]
    rounds: Ints = total - np.repeat(base, np.diff(np.append(at, len(breaks))))
    return rounds


def running_max(values: Ints, starts: Bools) -> Ints:
    """Largest value so far, anew from every start."""
    falls = values[1:] < values[:-1]
    falls &= ~starts[1:]
    if not falls.any():
        return values
    # Ranks are small enough to lift every run above the one before it.
    order = np.argsort(values, kind="stable")
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    lifted = np.maximum.accumulate(ranks + (np.cumsum(starts) - 1) * len(values))
    highest: Ints = values[order[lifted % len(values)]]
    return highest


def stable_order(keys: Ints, bound: int) -> Ints:
    """Stable order of keys in [0, bound).

    Numpy sorts 16 bits by counting, which is several times faster.
    """
    if not (keys[1:] < keys[:-1]).any():
        return np.arange(len(keys))
    order: Ints = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    shift = 16
    while bound > 1 << shift:
        order = order[np.argsort(((keys[order] >> shift) & 0xFFFF).astype(np.uint16), kind="stable")]
        shift += 16
    return order


def order_by_time(keys: Ints, ts: Ints, bound: int) -> Ints:
    """Order by key, then time, then position."""
    order = stable_order(keys, bound)
    key, time = keys[order], ts[order]
    if ((time[1:] < time[:-1]) & (key[1:] == key[:-1])).any():
        order = order[np.lexsort((time, key))]
    return order
