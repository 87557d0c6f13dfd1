"""A windowed assertion judges the same however the stream is cut, and as a slow obvious loop says."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.assertions import Assertion, Batch, Window, assertion
from outrider.assertions.checker import severities_of
from outrider.assertions.window import MIN_IDLE_S, WindowState

START = datetime(2026, 1, 5, tzinfo=UTC)
IDLE_S = 3.0
ROWS = 3


def context_sum(batch: Batch) -> NDArray[np.float64]:
    """Sum over each record's window: depends on every record in it, and on nothing else."""
    value, entity = batch.column("inputs.x"), batch.column("entity")
    total = np.zeros(batch.rows)
    for row in range(batch.rows):
        own = [r for r in range(row + 1) if entity[r] is not None and entity[r] == entity[row]] or [row]
        total[row] = sum(value[r] * 1000.0**place for place, r in enumerate(reversed(own[-ROWS:])))
    return total


SUMMED: Assertion = assertion(window=Window(rows=ROWS, idle_s=IDLE_S))(context_sum)


@dataclass(frozen=True)
class Arrival:
    entity: str | None
    value: int
    after_s: float
    """Seconds since the record before."""


arrivals = st.lists(
    st.builds(
        Arrival,
        entity=st.sampled_from(["a", "b", "c", None]),
        value=st.integers(1, 9),
        after_s=st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.5, 4.0]),
    ),
    max_size=14,
)


def received(stream: list[Arrival]) -> list[datetime]:
    return [START + timedelta(seconds=s) for s in np.cumsum([a.after_s for a in stream]).tolist()]


def as_batch(stream: list[Arrival], times: list[datetime]) -> Batch:
    columns: dict[str, Any] = {
        "entity": np.array([a.entity for a in stream], dtype=object),
        "received": times,
        "inputs.x": np.array([a.value for a in stream], dtype=np.int64),
    }
    return Batch.from_columns(columns, model="m", rows=len(stream))


def slowly(stream: list[Arrival]) -> list[float]:
    """One record after the other, each entity's records in a list."""
    kept: dict[str, list[tuple[datetime, int]]] = {}
    found = []
    for arrival, time in zip(stream, received(stream), strict=True):
        if arrival.entity is None:
            found.append(float(arrival.value))
            continue
        own = kept.get(arrival.entity, [])
        if own and time - own[-1][0] > timedelta(seconds=IDLE_S):
            own = []
        kept[arrival.entity] = own = [*own, (time, arrival.value)][-ROWS:]
        found.append(sum(value * 1000.0**place for place, (_, value) in enumerate(reversed(own))))
    return found


def streamed(parts: list[Batch]) -> list[float]:
    state = WindowState(SUMMED.window or Window())
    found: list[float] = []
    for part in parts:
        view, positions = state.update(part)
        severity = np.zeros(part.rows)
        severity[positions] = SUMMED.severities(view)[view.is_new]
        found += severity.tolist()
    return found


def cut(stream: list[Arrival], data: st.DataObject) -> list[Batch]:
    """Any split into batches, none of which spans more of receive time than may be joined."""
    times, edges = received(stream), [0]
    for row in range(1, len(stream)):
        spans = (times[row] - times[edges[-1]]).total_seconds() >= MIN_IDLE_S
        if spans or data.draw(st.booleans()):
            edges.append(row)
    edges.append(len(stream))
    whole = as_batch(stream, times)
    return [whole.slice(start, stop - start) for start, stop in pairwise(edges)]


@given(arrivals, st.data())
def test_any_split_judges_as_the_slow_loop(stream: list[Arrival], data: st.DataObject) -> None:
    assert streamed(cut(stream, data)) == slowly(stream)


@given(arrivals)
def test_one_batch_judges_as_the_slow_loop_while_nobody_is_silent(stream: list[Arrival]) -> None:
    together = [Arrival(a.entity, a.value, 0.0) for a in stream]
    whole = as_batch(together, received(together))
    assert severities_of(SUMMED, whole).tolist() == slowly(together)


@given(arrivals, st.data())
def test_empty_batches_between_change_nothing(stream: list[Arrival], data: st.DataObject) -> None:
    parts = cut(stream, data)
    with_empty = [piece for part in parts for piece in (part.slice(0, 0), part, part.slice(0, 0))]
    assert streamed(with_empty) == slowly(stream)
