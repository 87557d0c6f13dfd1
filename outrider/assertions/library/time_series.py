"""Time series: an entity's consecutive records, across batches.

An entity restarts after a silence of ``idle_s`` seconds (receive time).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.windows.window import Window

from .reading import Floats, arrow, before, codes, earlier, fired, graded, numbers, short, valid


def stuck_value(
    column: str,
    *,
    rows: int = 5,
    tolerance: float = 0.0,
    by: str = "entity",
    idle_s: float = 3600.0,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Value that has not changed for a number of records.

    Severity is 1; a null in between is no evidence and does not fire.

    Parameters
    ----------
    rows
        Number of an entity's records, including the judged one, that must all be equal.
    tolerance
        Largest difference that counts as equal.

    Finds
    -----
    Frozen sensors and cameras, caches that no longer expire, a feed that repeats its last value.

    Cost
    ----
    0.92 µs per record in blocks of 64, 0.55 in blocks of 10,000. In addition: the window's state.

    Measured
    --------
    elec2 as it came: the price of Victoria stuck for a day is flagged 7,377 times, all in the stretch of
    one and the same value that the data are known for. Demand frozen for six hours, judged after the
    third: 1.00 (0.99 to 1.00) of 490 found, 1.00 (0.99 to 1.00) of 491 flags right; 0 (0 to 0.11) flags
    per 1,000 records as they came.

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> series = Batch.from_columns({"entity": ["s"] * 4, "inputs.t": [20.1, 20.5, 20.5, 20.5]}, model="m")
    >>> Checker([stuck_value("inputs.t", rows=3)]).check(series).row
    array([3])
    """

    def judge(batch: Batch) -> Floats:
        value = numbers(batch, column)
        past = before(value, earlier(batch, by, rows - 1))
        # NaN, also for what was before the first record, makes the comparison False.
        with np.errstate(over="ignore", invalid="ignore"):
            same = (np.abs(past - value[:, None]) <= tolerance).all(axis=1)
        return fired(same)

    return assertion(
        name=name or f"stuck_{short(column)}",
        level=level,
        description=f"{column} has not moved for {rows} records.",
        window=Window(by=by, rows=rows, columns=(column,), idle_s=idle_s),
    )(judge)


def value_jump(
    column: str,
    *,
    above: float,
    by: str = "entity",
    idle_s: float = 3600.0,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Value that changed by more than possible since its predecessor.

    Severity is the step divided by the limit.

    Finds
    -----
    Swapped entities, lost samples, glitches, recalibrations.

    Cost
    ----
    0.59 µs per record in blocks of 64, 0.17 in blocks of 10,000. In addition: the window's state.

    Measured
    --------
    elec2, faults put into 350 of 35,312 half-hours: demand off by 0.3 for one record (both edges count): 0.99
    (0.98 to 1.00) of 696 found, 1.00 (0.99 to 1.00) of 690 flags right; 0 (0 to 0.11) flags per 1,000 records
    as they came. Does not indicate model errors: the model is wrong on 0.12 (0.09 to 0.14) of 556 flagged,
    0.27 of all at jumps of the price.

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> series = Batch.from_columns({"entity": ["s"] * 3, "inputs.t": [20.1, 20.5, 35.0]}, model="m")
    >>> Checker([value_jump("inputs.t", above=5)]).check(series).severity
    array([2.9])
    """
    if above <= 0:
        raise ValueError(f"above must be > 0, got {above}")

    def judge(batch: Batch) -> Floats:
        value = numbers(batch, column)
        with np.errstate(over="ignore", invalid="ignore"):
            step = np.abs(value - before(value, earlier(batch, by, 1))[:, 0])
            return graded(step > above, step / above)

    return assertion(
        name=name or f"jump_{short(column)}",
        level=level,
        description=f"{column} moved by more than {above:g} between two records.",
        window=Window(by=by, rows=2, columns=(column,), idle_s=idle_s),
    )(judge)


def value_spike(
    column: str,
    *,
    rows: int = 24,
    deviations: float = 8.0,
    least: float = 0.0,
    by: str = "entity",
    idle_s: float = 3600.0,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Value unusually far from the median of its three predecessors.

    Severity is the distance divided by the limit. The assertion fires only once the window is full.

    Parameters
    ----------
    rows
        Number of an entity's records, including the judged one; the others give the series' usual variation,
        >= 8.
    deviations
        Limit, in robust standard deviations (1.4826 times the median absolute deviation) of each record's
        distance from the median of the three before it; a steady trend is included and does not fire.
    least
        Distance that is never a spike, for series that are mostly constant.

    Finds
    -----
    Outliers of a series that has no fixed range: glitches, keying errors, price shocks.

    Cost
    ----
    2.4 µs per record in blocks of 64, 1.7 in blocks of 10,000. In addition: the window's state.

    Measured
    --------
    elec2, faults put into 350 of 35,312 half-hours: demand off by 0.3 for one record: 0.44 (0.39 to 0.50) of
    350 found, 0.56 (0.50 to 0.61) of 279 flags right; 3.6 (3 to 4.2) flags per 1,000 records as they came.
    Hardly indicates model errors: the model is wrong on 0.30 (0.28 to 0.33) of 1,188 flagged, 0.27 of all at
    spikes of the price.

    References
    ----------
    Hampel, "The Influence Curve and its Role in Robust Estimation", JASA 1974; the median of three keeps a
    spike from affecting its neighbours.

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> values = [1.0, 1.2, 0.9, 1.1, 1.0, 1.3, 0.9, 1.1, 9.0, 1.0]
    >>> series = Batch.from_columns({"entity": ["s"] * 10, "inputs.t": values}, model="m")
    >>> Checker([value_spike("inputs.t", rows=8)]).check(series).row
    array([8])
    """
    if rows < 8:
        raise ValueError(f"rows must be >= 8, got {rows}; four moves before the judged one are too few")

    def judge(batch: Batch) -> Floats:
        value = numbers(batch, column)
        index = earlier(batch, by, rows - 1)
        # NaN where a record is missing makes every comparison False: no verdict.
        off = value - np.median(before(value, index[:, :3]), axis=1)
        past = before(off, index[:, : rows - 4])
        usual = np.median(past, axis=1)
        spread = 1.4826 * np.median(np.abs(past - usual[:, None]), axis=1)
        limit = np.maximum(np.maximum(deviations * spread, least), 1e-12)
        distance = np.abs(off - usual)
        return graded(distance > limit, distance / limit)

    return assertion(
        name=name or f"spike_{short(column)}",
        level=level,
        description=f"{column} more than {deviations:g} deviations from where the series was going.",
        window=Window(by=by, rows=rows, columns=(column,), idle_s=idle_s),
    )(judge)


def time_gap(
    above_s: float,
    *,
    by: str = "entity",
    idle_s: float = 3600.0,
    name: str | None = None,
    level: Level = "info",
) -> Assertion:
    """Entity that was silent for too long.

    Severity is the gap divided by the limit; the first record after it is flagged.

    Finds
    -----
    Lost batches, devices that slept or lost their link, a stream that was filtered by mistake.

    Cost
    ----
    1 µs per record in blocks of 64, 0.13 in blocks of 10,000. In addition: the window's state.

    Measured
    --------
    elec2, faults put into 350 of 35,312 half-hours: half-hours lost (several in a row count as one): 1.00
    (0.99 to 1.00) of 346 found, 1.00 (0.99 to 1.00) of 346 flags right; 0 (0 to 0.11) flags per 1,000 records
    as they came.

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> days = ["2026-01-05T10:00:00", "2026-01-05T10:00:30", "2026-01-05T10:05:00"]
    >>> times = np.array(days, dtype="datetime64[us]")
    >>> series = Batch.from_columns({"entity": ["s"] * 3, "ts": times}, model="m")
    >>> Checker([time_gap(60.0)]).check(series).severity
    array([4.5])
    """
    if above_s <= 0:
        raise ValueError(f"above_s must be > 0, got {above_s}")
    if idle_s <= above_s:
        raise ValueError(f"idle_s must be > above_s, got {idle_s} and {above_s}; a gap would start anew")

    def judge(batch: Batch) -> Floats:
        time = batch.column("ts").astype("datetime64[us]").astype(np.int64) / 1e6
        silent = time - before(time, earlier(batch, by, 1))[:, 0]
        return graded(silent > above_s, silent / above_s)

    return assertion(
        name=name or "time_gap",
        level=level,
        description=f"Nothing came for more than {above_s:g} s.",
        window=Window(by=by, rows=2, columns=("ts",), idle_s=idle_s),
    )(judge)


def unseen_transition(
    column: str,
    allowed: Sequence[tuple[Any, Any]],
    *,
    by: str = "entity",
    idle_s: float = 3600.0,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Change from one label to another that is not allowed.

    Severity is 1; an unchanged label, and a null, do not fire.

    Parameters
    ----------
    allowed
        Pairs (label before, label after) of all allowed changes.

    Finds
    -----
    Sequences of states that the process cannot take: a closed account that acts, awake to deep sleep at once,
    entities mixed up; learned by :func:`outrider.assertions.learn`.

    Cost
    ----
    0.73 µs per record in blocks of 64, 0.27 in blocks of 10,000. In addition: the window's state.

    Measured
    --------
    ecg_mitdb, 1 % of beat labels swapped, allowed changes learned from the same patients' first 15
    minutes: 0.58 (0.52 to 0.63) of 277 found, 0.88 (0.82 to 0.92) of 182 flags right; 1.6 (1.1 to 2.4)
    flags per 1,000 records as they came. Learned from other patients: 0.44 (0.39 to 0.50) of 277 found,
    0.31 (0.26 to 0.35) of 401 flags right; 21 (19 to 23) flags per 1,000 records as they came. Learn per
    population.

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> states = {"entity": ["o"] * 3, "outputs.label": ["paid", "sent", "new"]}
    >>> judge = unseen_transition("outputs.label", [("new", "paid"), ("paid", "sent")])
    >>> Checker([judge]).check(Batch.from_columns(states, model="m")).row
    array([2])
    """
    pairs = tuple((first, second) for first, second in allowed)
    labels = tuple(dict.fromkeys(label for pair in pairs for label in pair))
    table = np.zeros((len(labels) + 1, len(labels) + 1), dtype=np.bool_)  # the last of each: any other label
    for first, second in pairs:
        table[labels.index(first), labels.index(second)] = True

    def judge(batch: Batch) -> Floats:
        found = arrow(batch, column)
        known = valid(found)
        code = codes(found, labels)
        previous = earlier(batch, by, 1)[:, 0]
        last = np.maximum(previous, 0)
        # Labels outside the table share a code; whether one of them stayed, only its value tells.
        if not batch.rows:
            return np.zeros(0)
        value = found.to_numpy(zero_copy_only=False)
        changed = (previous >= 0) & known & known[last] & np.asarray(value != value[last], dtype=np.bool_)
        return fired(changed & ~table[code[last], code])

    return assertion(
        name=name or f"transition_{short(column)}",
        level=level,
        description=f"{column} changed in a way that is none of the {len(pairs)} known ones.",
        window=Window(by=by, rows=2, columns=(column,), idle_s=idle_s),
    )(judge)
