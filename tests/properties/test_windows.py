"""Windows and groups judge the same however the stream is cut and where it restarts, as a slow loop says."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions import Batch, Group, Window
from outrider.assertions.windows.state import View, WindowState

START = datetime(2026, 1, 5, tzinfo=UTC)
WINDOWS: list[Window | Group] = [
    Window(rows=3, idle_s=3.0),
    Window(rows=2, idle_s=3.0, lateness_s=1.0),
    Window(rows=4, idle_s=4.0, lateness_s=2.0, columns=("inputs.n",)),
    Window(seconds=1.5, idle_s=3.0),
    Window(seconds=2.0, idle_s=3.0, lateness_s=1.5, rows=3),
    Window(rows=3, idle_s=3.0, max_entities=10),
    Group(by="entity", wait_s=2.0),
]


@dataclass(frozen=True)
class Arrival:
    entity: str | None
    id: str
    ts_s: float
    after_s: float
    """Seconds since the record before."""
    is_bounded: bool = False
    """Its time is believed up to its receipt only."""


arrivals = st.lists(
    st.builds(
        Arrival,
        entity=st.sampled_from(["a", "b", "c", None]),
        id=st.sampled_from(["x", "y", "z"]),
        ts_s=st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 7.0]),
        after_s=st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 2.5, 4.0]),
        is_bounded=st.booleans(),
    ),
    max_size=16,
)


@dataclass
class Segment:
    rows: list[tuple[float, int]] = field(default_factory=list)
    seen: set[tuple[str, float]] = field(default_factory=set)
    newest: float = -np.inf
    reach: float = -np.inf
    floor: float = -np.inf
    last: float = 0.0

    def let_come(self, clock: float) -> None:
        """Give up what came from ahead of receipt once its time has come."""
        if self.reach < self.newest <= clock:
            self.floor = self.newest


@dataclass
class Judged:
    """Context of every judged record, the records that ended an entity, and what was not judged."""

    context: dict[int, list[int]] = field(default_factory=dict)
    order: dict[str | None, list[int]] = field(default_factory=dict)
    ends: set[int] = field(default_factory=set)
    late: int = 0
    duplicates: int = 0


def slowly(window: Window | Group, stream: list[Arrival]) -> Judged:
    """One record after the other."""
    told = Judged()
    open_: dict[str, Segment] = {}
    lateness = np.inf if isinstance(window, Group) else window.lateness_s
    idle = window.wait_s if isinstance(window, Group) else window.idle_s
    done: list[tuple[str | None, Segment]] = []
    now = 0.0
    for index, arrival in enumerate(stream):
        now += arrival.after_s
        if arrival.entity is None:
            done.append((None, Segment([(arrival.ts_s, index)])))
            continue
        own = open_.get(arrival.entity)
        if own is not None and now - own.last >= idle:
            done.append((arrival.entity, own))
            own = None
        if own is None:
            own = open_[arrival.entity] = Segment(last=now)
        if lateness and now - own.last >= lateness:
            own.floor = max(own.floor, own.reach)
        own.let_come(now - lateness)
        own.last = now
        is_late = arrival.ts_s < max(own.reach - lateness, own.floor)
        reach = min(arrival.ts_s, now + lateness) if arrival.is_bounded else arrival.ts_s
        own.reach = max(own.reach, reach)
        if is_late:
            told.late += 1
        elif (arrival.id, arrival.ts_s) in own.seen:
            told.duplicates += 1
        else:
            own.rows.append((arrival.ts_s, index))
            own.seen.add((arrival.id, arrival.ts_s))
            own.newest = max(own.newest, arrival.ts_s)
    for entity, segment in [*done, *open_.items()]:
        rows = sorted(segment.rows)
        told.ends.add(rows[-1][1])
        told.order.setdefault(entity, []).extend(index for _, index in rows)
        for place, (_, index) in enumerate(rows):
            told.context[index] = within(window, rows[: place + 1])
    return told


def within(window: Window | Group, rows: list[tuple[float, int]]) -> list[int]:
    """What of an entity's rows so far the last of them may look at."""
    if isinstance(window, Window):
        rows = rows[-window.capacity :]
        if window.seconds is not None:
            rows = [row for row in rows if row[0] >= rows[-1][0] - window.seconds]
    return [index for _, index in rows]


def as_batch(stream: list[Arrival]) -> Batch:
    times = [START + timedelta(seconds=s) for s in np.cumsum([a.after_s for a in stream]).tolist()]
    columns: dict[str, Any] = {
        "id": np.array([a.id for a in stream], dtype=object),
        "ts": [START + timedelta(seconds=a.ts_s) for a in stream],
        "entity": np.array([a.entity for a in stream], dtype=object),
        "received": times,
        "inputs.n": np.arange(len(stream)),
        "inputs.other": np.arange(len(stream)),
    }
    return Batch.from_columns(columns, model="m", rows=len(stream))


def bounded(stream: list[Arrival]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.array([arrival.is_bounded for arrival in stream], dtype=np.bool_)


def note(
    told: Judged, window: Window | Group, views: list[View], batch: Batch, seq: np.ndarray[Any, Any]
) -> None:
    """What a function sees in the views, checked for what every view must be."""
    for view in views:
        rows = view.batch
        entity, ts = rows.column("entity"), rows.column("ts").astype(np.int64) / 1e6
        number = rows.column("inputs.n")
        assert rows.rows
        assert view.tags[:, 0].tolist() == number.tolist()
        new = view.positions >= 0
        assert (seq[view.positions[new]] == number[new]).all()
        assert rows.has("inputs.other") == (not window.columns)
        previous = rows.previous_rows()
        runs: dict[Any, list[tuple[float, int]]] = {}
        for row in range(rows.rows):
            key = entity[row] if entity[row] is not None else ("alone", row)
            run = runs.setdefault(key, [])
            seconds = None if isinstance(window, Group) else window.seconds
            reaches = bool(run) and (seconds is None or ts[row] - run[-1][0] <= seconds)
            assert previous[row] == (row - 1 if reaches else -1)
            assert not run or run[-1][0] <= ts[row]
            run.append((float(ts[row]), int(number[row])))
            if rows.is_new[row]:
                assert int(number[row]) not in told.context
                told.context[int(number[row])] = within(window, run)
                told.order.setdefault(entity[row], []).append(int(number[row]))
            if rows.is_last[row]:
                assert row + 1 == rows.rows or entity[row + 1] is None or entity[row + 1] != entity[row]
                told.ends.add(int(number[row]))


def streamed(window: Window | Group, stream: list[Arrival], data: st.DataObject) -> Judged:
    told = Judged()
    state = WindowState(window)
    batch, edges, ahead = as_batch(stream), [0], bounded(stream)
    edges += [row for row in range(1, len(stream)) if data.draw(st.booleans(), label="cut")] + [len(stream)]
    for start, stop in pairwise(edges):
        seq = np.arange(start, stop)
        part = batch.slice(start, stop - start)
        note(told, window, state.update(part, seq[:, None], ahead=ahead[start:stop]), part, seq)
        if stop and stop < len(stream) and data.draw(st.booleans(), label="tick"):
            until = batch.column("received").astype(np.int64)[stop]
            note(told, window, state.advance(int(until)), part, seq)
        if data.draw(st.booleans(), label="restart"):
            state = WindowState.restore(window, state.checkpoint())
    note(told, window, state.finish(), batch, np.zeros(0, dtype=np.int64))
    assert (state.rows, state.entities) == (0, 0)
    told.late, told.duplicates = state.late, state.duplicates
    return told


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@given(stream=arrivals, data=st.data())
def test_any_split_and_restart_judges_as_the_slow_loop(
    window: Window | Group, stream: list[Arrival], data: st.DataObject
) -> None:
    assert streamed(window, stream, data) == slowly(window, stream)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@given(stream=arrivals)
def test_one_batch_that_ends_judges_as_the_slow_loop(window: Window | Group, stream: list[Arrival]) -> None:
    told, state, batch = Judged(), WindowState(window), as_batch(stream)
    seq = np.arange(len(stream))
    note(told, window, state.update(batch, seq[:, None], ahead=bounded(stream), ends=True), batch, seq)
    told.late, told.duplicates = state.late, state.duplicates
    assert told == slowly(window, stream)
    assert (state.rows, state.entities, state.nbytes) == (0, 0, 0)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@given(stream=arrivals)
def test_no_time_ahead_of_receipt_makes_a_later_record_late_that_is_on_time(
    window: Window | Group, stream: list[Arrival]
) -> None:
    state, batch = WindowState(window), as_batch(stream)
    on_time = batch.column("ts") >= batch.column("received")
    state.update(batch, ahead=np.ones(batch.rows, dtype=np.bool_))
    assert not on_time[state.late_positions].any()
