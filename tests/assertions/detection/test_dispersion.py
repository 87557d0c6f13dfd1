"""Dispersion of windows: as large as what repeats, and never a way to more observations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chi2, norm, t

from outrider.assertions.detection.dispersion import Dispersion, _student


def test_records_in_runs_count_as_many_as_there_are_runs() -> None:
    rng = np.random.default_rng(1)
    runs = np.array([1, 5, 25])
    hits = np.stack([run * rng.binomial(500 // run, 0.2, 400) for run in runs]).astype(float)
    found = Dispersion.of(hits, np.full((3, 400), 500.0), needed=5.0)
    # few blocks of many windows err to the side of more
    assert (found.ratio >= 0.8 * runs).all()
    assert (found.ratio <= 2.5 * runs).all()
    assert found.most.tolist() == [500.0] * 3


def test_runs_that_last_over_many_windows_are_seen_in_blocks_of_windows() -> None:
    rng = np.random.default_rng(2)
    kept = np.repeat(rng.binomial(50, 0.3, 42), 4)  # a mix that stays for four windows
    hits = (10 * kept).astype(float)[None]
    found = Dispersion.of(hits, np.full((1, 168), 500.0), needed=5.0)
    assert 25 < found.ratio[0] < 70  # 10 within a window, and 4 windows that are one


def test_a_share_that_never_came_is_dispersed_as_its_column() -> None:
    rng = np.random.default_rng(3)
    hits = np.stack([20.0 * rng.binomial(25, 0.4, 60), np.zeros(60), np.zeros(60)])
    group, column = np.array([0, -1, -1]), np.array([0, 0, 1])
    found = Dispersion.of(hits, np.full((3, 60), 500.0), needed=5.0, group=group, column=column)
    assert found.ratio[1] == pytest.approx(found.ratio[0])
    assert found.ratio[2] < 2.0


@pytest.mark.parametrize("freedom", [23, 60, 167])
def test_the_error_of_an_estimated_variance_is_that_of_students_test(freedom: int) -> None:
    chance = np.exp(-9.0)
    factor = _student(np.array([freedom]), 9.0)[0]
    exact = (t.isf(chance, freedom) / norm.isf(chance)) ** 2
    assert exact * 0.9 < factor < exact * 1.1
    # the mean over the estimate's error of the chance that a deviation has
    grid = chi2.ppf((np.arange(200_000) + 0.5) / 200_000, freedom) / freedom
    assert np.exp(-9.0 * factor * grid).mean() == pytest.approx(chance, rel=0.3)


counts = arrays(np.float64, (3, 24), elements=st.integers(0, 50).map(float))


@given(counts, counts)
def test_no_window_counts_for_more_than_it_holds(hits: np.ndarray, more: np.ndarray) -> None:
    seen = hits + more
    found = Dispersion.of(hits, seen, needed=10.0)
    won, own = found.effective(hits, seen)
    assert (found.ratio >= 1.0).all()
    assert (own <= seen + 1e-9).all()
    assert (won <= own + 1e-9).all()
    one = found.effective(hits[:, 0], seen[:, 0])
    assert np.allclose(one[0], won[:, 0])
    assert np.allclose(one[1], own[:, 0])
