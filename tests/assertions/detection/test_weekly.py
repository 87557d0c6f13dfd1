"""Odds that earlier weeks lead one to expect, at their ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions.detection import Hours, weekly_odds
from outrider.assertions.detection.weekly import WEEK

NOW = 2 * WEEK + 30
"""Hour in which the blocks begin."""


def odds_of(hits: np.ndarray, seen: np.ndarray, own: np.ndarray, *, first: int = 0) -> np.ndarray:
    hour = NOW + np.arange(len(own)) // 60
    return weekly_odds(own, hour, Hours(first, hits, seen), spread=np.ones(len(own) - 1))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_odds_are_one_where_all_or_none_was_flagged(share: float) -> None:
    seen = np.full(NOW, 500.0)
    assert (odds_of(share * seen, seen, np.full(600, 9.0)) == 1.0).all()


def test_odds_are_one_where_no_hour_is_known() -> None:
    none = np.zeros(0)
    assert (odds_of(none, none, np.full(600, 9.0)) == 1.0).all()
    assert (odds_of(np.zeros(NOW), np.zeros(NOW), np.full(600, 9.0)) == 1.0).all()


def test_odds_are_one_where_the_second_week_is_not_known() -> None:
    hits = np.where(np.arange(NOW) % WEEK >= 33, 300.0, 50.0)
    seen = np.where(np.arange(NOW) < WEEK, 0.0, 500.0)
    assert (odds_of(np.minimum(hits, seen), seen, np.full(600, 9.0)) == 1.0).all()


def test_odds_stay_finite_without_an_observation_of_these_days() -> None:
    seen = np.full(NOW, 500.0)
    own = np.zeros(600)
    own[300] = 1.0
    assert np.isfinite(odds_of(seen / 2, seen, own)).all()


def test_odds_of_a_step_between_hours_are_those_of_the_step() -> None:
    seen = np.full(NOW, 100_000.0)
    hits = np.where(np.arange(NOW) % WEEK >= 35, 0.2, 0.1) * seen
    odds = odds_of(hits, seen, np.full(600, 9.0))
    assert odds[299] == pytest.approx(0.25 / (1 / 9), rel=0.02)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=NOW, max_size=NOW),
    st.lists(st.integers(0, 9), min_size=2, max_size=200),
    st.integers(0, WEEK),
)
def test_odds_are_finite_and_never_below_one(past: list[tuple[int, int]], own: list[int], first: int) -> None:
    hits, more = np.array(past, dtype=np.float64).T
    odds = odds_of(hits, hits + more, np.array(own, dtype=np.float64), first=first)
    assert np.isfinite(odds).all()
    assert (odds >= 1.0).all()
