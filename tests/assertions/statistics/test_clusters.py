from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions.statistics.clusters import Clusters

START = np.datetime64("2026-01-05", "us")


def times(*hours: float) -> Any:
    return START + (np.array(hours) * 3600e6).astype("timedelta64[us]")


def test_clusters_take_days_where_there_are_eight_and_else_hours() -> None:
    days = Clusters.of((), times(*(24 * np.arange(16) // 2)))
    assert days.stretches is not None
    assert (int(days.stretches.max()) + 1, days.stretch) == (8, "")
    hours = Clusters.of((), times(*np.arange(16)))
    assert hours.stretches is not None
    assert (int(hours.stretches.max()) + 1, hours.stretch) == (16, "2026-01-05, 16 hours of one day")


@pytest.mark.parametrize(
    ("hours", "told"),
    [
        ((0, 1, 2, 2.5), "2026-01-05, 3 hours of one day"),
        ((0, 30, 49), "2026-01-05 to 2026-01-07, 3 days"),
        ((0, 0.5), "2026-01-05, one hour"),
        ((3, 3, 3), "rows whose event times do not differ"),
        ((3,), "2026-01-05, one hour"),
    ],
)
def test_clusters_name_the_stretch_that_is_too_short(hours: tuple[float, ...], told: str) -> None:
    found = Clusters.of((), times(*hours))
    assert (found.stretches, found.stretch) == (None, told)


def test_clusters_count_stretches_by_their_rows() -> None:
    rare = np.r_[np.zeros(1000), 24 * np.arange(1, 12)]
    found = Clusters.of((), times(*rare))
    assert (found.stretches, found.stretch) == (None, "2026-01-05 to 2026-01-16, 12 days")


def test_clusters_without_times_say_nothing_of_time() -> None:
    assert Clusters.of(np.arange(4)).stretch == ""
    assert Clusters.of((), rows=0).scatter(np.zeros(0)).variance == 0.0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 11), st.floats(-1, 1)), min_size=20, max_size=60))
def test_scatter_is_that_of_both_clusters_less_the_crossing(rows: list[tuple[int, int, float]]) -> None:
    entity, day, value = (np.array(part) for part in zip(*rows, strict=True))
    found = Clusters.of(entity, times(*(24 * day)))
    own = found.by_entity(value).variance
    assert found.scatter(value).variance >= own
    if found.stretches is not None:

        def squares(names: Any) -> float:
            kinds = np.unique(names, return_inverse=True, axis=0)[1].ravel()
            sums, count = np.bincount(kinds, value), kinds.max() + 1
            return float((sums**2).sum() * count / (count - 1))

        parts = [squares(names) for names in (entity, day, np.stack([entity, day], axis=1))]
        both = max(parts[0] + parts[1] - parts[2], parts[0], parts[1])
        assert found.scatter(value).variance == pytest.approx(both)


def test_clusters_name_no_time_that_is_unknown() -> None:
    nowhere = np.full(4, np.datetime64("NaT", "us"))
    assert Clusters.of((), nowhere).stretch == ""
    some = Clusters.of((), np.concatenate([times(*(24 * np.arange(7))), nowhere]))
    assert (some.stretches, some.stretch) == (None, "2026-01-05 to 2026-01-11, 7 days")
