"""The grid holds every number in one cell, whose ends are in order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from outrider.assertions.drift.grid import INFINITE, Grid, code_of

ANY = arrays(np.float64, st.integers(0, 50), elements=st.floats(allow_nan=True, allow_infinity=True))
NEAR = arrays(np.float64, st.integers(1, 50), elements=st.floats(-1e6, 1e6))


@given(ANY, st.floats(-1e6, 1e6))
def test_every_value_is_counted_once(values: NDArray[np.float64], centre: float) -> None:
    found = Grid(centre).counts(values)
    assert found.missing == np.isnan(values).sum()
    assert found.finite.sum() + found.infinite + found.missing == len(values)


@given(NEAR, st.floats(-1e6, 1e6))
def test_cells_hold_their_values_in_ascending_order(values: NDArray[np.float64], centre: float) -> None:
    grid = Grid(centre)
    cells = np.flatnonzero(grid.counts(values).finite)
    assert (code_of(code_of(cells) * 0 + cells) == code_of(cells)).all()
    lower, upper = grid.edges(cells)
    assert (np.diff(lower) >= 0).all()
    assert (lower <= upper).all()
    slack = 1e-9 * (np.abs(values) + abs(centre))
    for value, near in zip(values, slack, strict=True):
        assert ((lower - near <= value) & (value <= upper + near)).any()


def test_cells_are_a_sixteenth_as_wide_as_they_are_far() -> None:
    grid = Grid(5.0)
    lower, upper = grid.edges(np.arange(INFINITE + 16 * 1023, INFINITE + 16 * 1030))
    assert ((upper - lower) / (lower - 5.0) <= 1 / 16).all()


def test_weights_and_parts_add_up() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=300_000), rng.random(300_000)
    grid = Grid(0.0)
    whole = grid.counts(values, weights)
    parts = grid.counts(values[:7], weights[:7]) + grid.counts(values[7:], weights[7:])
    np.testing.assert_allclose(whole.codes, parts.codes)
    assert np.isclose(whole.finite.sum(), weights.sum())
