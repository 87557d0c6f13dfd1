"""Distances of distributions agree with scipy and with slow, obvious loops."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.distance import jensenshannon

from outrider.assertions.drift import (
    chi_square,
    jensen_shannon,
    ks_distance,
    ks_of_counts,
    psi,
    total_variation,
    wasserstein,
    wasserstein_of_counts,
)

Floats = NDArray[np.float64]
FINITE = st.floats(-1e9, 1e9)
COARSE = st.integers(-3, 3).map(float)
VALUES = st.one_of(*(arrays(np.float64, st.integers(1, 60), elements=each) for each in (FINITE, COARSE)))
COUNTS = arrays(np.float64, 7, elements=st.integers(0, 30).map(float))


def shapes(rng: np.random.Generator, rows: int) -> dict[str, Floats]:
    return {
        "normal": rng.normal(size=rows),
        "shifted": rng.normal(0.2, size=rows),
        "far": rng.normal(100.0, size=rows),
        "lognormal": np.exp(2 * rng.normal(size=rows)),
        "cauchy": rng.standard_cauchy(rows),
        "whole": rng.integers(0, 20, rows).astype(float),
        "rounded": np.round(rng.normal(size=rows), 2),
        "constant": np.full(rows, 3.0),
        "mostly zero": np.where(rng.random(rows) < 0.9, 0.0, rng.normal(size=rows)),
    }


@given(VALUES, VALUES)
def test_ks_and_wasserstein_of_few_values_are_those_of_a_loop_and_scipy(one: Floats, two: Floats) -> None:
    apart = max(abs(np.mean(one <= value) - np.mean(two <= value)) for value in np.append(one, two))
    assert ks_distance(one, two) == pytest.approx(apart, abs=1e-12)
    expected = stats.wasserstein_distance(one, two)
    assert wasserstein(one, two) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sizes", [(40_000, 30_000), (100, 60_000), (60_000, 100)])
def test_ks_of_many_values_is_that_of_scipy(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    before, now = (shapes(rng, size) for size in sizes)
    for name, one in before.items():
        for two in (now[name], now["shifted"], now["rounded"]):
            with warnings.catch_warnings(action="ignore"):  # of its p-value at a distance of 0
                expected = stats.ks_2samp(one, two, method="asymp").statistic
            assert ks_distance(one, two) == pytest.approx(expected, abs=1e-12), name


def test_distances_of_nothing_are_nan() -> None:
    assert np.isnan([ks_distance([], [1.0]), wasserstein([1.0], []), psi([0, 0], [1, 2])]).all()
    assert np.isnan([ks_of_counts([0], [1]), total_variation([0], [1]), jensen_shannon([1], [0])]).all()
    assert chi_square([0, 0], [1, 2]) == (0.0, 0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_with_their_number(wrong: float) -> None:
    with pytest.raises(ValueError, match="current: finite values expected, got 1 null or infinite of 2"):
        ks_distance([1.0], [2.0, wrong])


@given(COUNTS, COUNTS)
def test_distances_of_counts_are_those_of_scipy(one: Floats, two: Floats) -> None:
    if not one.any() or not two.any():
        return
    p, q = one / one.sum(), two / two.sum()
    apart = max(abs(p[:cell].sum() - q[:cell].sum()) for cell in range(8))
    assert ks_of_counts(one, two) == pytest.approx(apart, abs=1e-12)
    assert jensen_shannon(one, two) == pytest.approx(jensenshannon(p, q, 2), abs=1e-7)
    assert total_variation(one, two) == pytest.approx(max(p[q < p].sum() - q[q < p].sum(), 0.0), abs=1e-12)
    known = one + two > 0
    if known.sum() > 1:
        table = stats.chi2_contingency(np.vstack([one, two])[:, known], correction=False)
        statistic, freedom = chi_square(one, two)
        assert statistic == pytest.approx(table.statistic, abs=1e-9)
        assert freedom == table.dof
    if known.all() and (one > 0).all() and (two > 0).all():
        expected_psi = sum((b - a) * np.log(b / a) for a, b in zip(p, q, strict=True))
        assert psi(one, two) == pytest.approx(expected_psi, abs=1e-12)


@given(COUNTS, COUNTS)
def test_wasserstein_of_counts_is_the_area_between_both_lines(one: Floats, two: Floats) -> None:
    if not one.any() or not two.any():
        return
    edges = np.array([0.0, 1.0, 1.5, 4.0, 4.25, 5.0, 9.0, 10.0])
    at = np.linspace(0.0, 10.0, 200_001)
    lines = [np.interp(at, edges, np.append(0.0, np.cumsum(each) / each.sum())) for each in (one, two)]
    area = np.trapezoid(np.abs(lines[0] - lines[1]), at)
    assert wasserstein_of_counts(one, two, edges) == pytest.approx(area, abs=1e-6)


def test_counts_of_other_cells_or_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match=r"counts of the same cells expected, got shapes \(2,\) and \(3,\)"):
        psi([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="reference: counts >= 0 expected, got -1"):
        total_variation([-1, 2], [1, 2])
    with pytest.raises(ValueError, match="edges: 3 expected for 2 cells, got 2"):
        wasserstein_of_counts([1, 2], [1, 2], [0.0, 1.0])
