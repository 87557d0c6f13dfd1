"""Arrival of records: in time, late, or after their entity ended.

A long silence ends an entity. Results depend only on an entity's own arrivals in sequence, not on how the
stream is cut into batches. Rows are sorted by entity, then arrival.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NEVER = np.int64(-(2**62))
"""Time before any record's, far enough from the int64 limit to subtract from."""


@dataclass(frozen=True, slots=True)
class WatermarkPolicy:
    """Lateness and idle time of a window, in µs.

    ``lateness`` None holds all records back until the end.
    """

    lateness: int | None
    idle: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrived records as columns, by entity, then arrival; shape (rows,).

    Attributes
    ----------
    round
        Number of segments of the entity that ended before the record, since the last update of the state.
    late
        True if the record is older than its entity's watermark.
    newest
        Latest ``ts`` of the segment up to and including the record, in µs.
    reach
        The same, with each ``ts`` limited to what may move the watermark.
    floor
        Latest ``ts`` at the entity's last release of held-back records after a silence.
    """

    round: Ints
    late: Bools
    newest: Ints
    reach: Ints
    floor: Ints


def judge_arrivals(
    pace: WatermarkPolicy,
    ts: Ints,
    clock: Ints,
    first: Bools,
    *,
    known: Bools,
    seen: Ints,
    newest: Ints,
    reach: Ints,
    floor: Ints,
    ahead: Bools | None = None,
) -> Arrivals:
    """Segment, lateness and watermark of every record.

    A record with a ``ts`` after its receipt moves the watermark at most to the time of receipt, and is held
    back until the watermark, or during silence the receive time, reaches its ``ts``.

    Parameters
    ----------
    ts, clock, first
        Event and receive time of each row in µs, and whether it is the first of its entity.
    known, seen, newest, reach, floor
        Earlier state of the entity of each first row: whether there is any, its last receive time, its newest
        ``ts``, its reach and its floor.
    ahead
        Mask of rows whose ``ts`` is limited to the time of receipt; None is none.
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
    top, before_top = _running(ts, np.where(continues[at], newest, NEVER), at, starts)
    lateness, far, before_far = pace.lateness, top, before_top
    are_apart = (ahead is not None and ahead.any()) or bool((continues[at] & (reach != newest)).any())
    if are_apart and lateness is not None:
        believed = ts if ahead is None else np.where(ahead, np.minimum(ts, clock + lateness), ts)
        far, before_far = _running(believed, np.where(continues[at], reach, NEVER), at, starts)
    floors = np.full(rows, NEVER)
    if lateness or are_apart:
        floors[at] = np.where(continues[at], floor, NEVER)
    if lateness:
        silent = (gap >= lateness) & ~breaks & (before_far > NEVER)
        floors = np.where(silent, np.maximum(before_far, floors), floors)
    if are_apart and lateness is not None:
        has_come = (before_top > before_far) & (clock - lateness >= before_top) & ~breaks
        floors = np.where(has_come, np.maximum(before_top, floors), floors)
    floors = running_max(floors, starts)
    if lateness is None:
        late = np.zeros(rows, dtype=np.bool_)
    else:
        late = ts < np.maximum(before_far - lateness, floors)
    return Arrivals(_rounds(breaks, at), late, top, far, floors)


def _running(values: Ints, held: Ints, at: Ints, starts: Bools) -> tuple[Ints, Ints]:
    """Running maximum of each segment, including and excluding the row itself."""
    before = np.full(len(values), NEVER)
    before[at] = held
    top = running_max(np.maximum(values, before), starts)
    inner = np.flatnonzero(~starts)
    before[inner] = top[inner - 1]
    return top, before


def _rounds(breaks: Bools, at: Ints) -> Ints:
    """Number of breaks of each row's entity so far."""
    if not breaks.any():
        return np.zeros(len(breaks), dtype=np.int64)
    total = np.cumsum(breaks)
    base: Ints = total[at] - breaks[at]
    rounds: Ints = total - np.repeat(base, np.diff(np.append(at, len(breaks))))
    return rounds


def running_max(values: Ints, starts: Bools) -> Ints:
    """Running maximum, restarted at each start."""
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
    """Stable sort order of keys in [0, bound).

    Numpy sorts 16-bit keys by counting, which is several times faster.
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
