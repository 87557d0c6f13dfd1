"""Scatter of days in the evidence of a risen loss, at its ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions.detection import LossBlocks, loss_rise, onset_shares
from outrider.assertions.detection.loss_rises import DAYS, dispersion_of_days

PER_DAY, BLOCK = 10, 50.0


def blocks_of(losses: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Blocks of days with exactly these losses: lost, seen and day of each."""
    lost = np.repeat(np.array(losses) * BLOCK, PER_DAY)
    return lost, np.full(len(lost), BLOCK), np.arange(len(lost)) // PER_DAY


@pytest.mark.parametrize("loss", [0.0, 0.1, 1.0])
def test_days_of_one_loss_have_no_dispersion_once_enough_are_known(loss: float) -> None:
    lost, seen, day = blocks_of([loss] * (DAYS + 2))
    onsets = np.arange(1, len(lost))
    assert dispersion_of_days(lost, seen, day, onsets) == pytest.approx(1.0)


def test_few_days_are_presumed_to_scatter_and_less_with_each() -> None:
    found = []
    for days in range(1, DAYS + 2):
        lost, seen, day = blocks_of([0.1] * days)
        found.append(dispersion_of_days(lost, seen, day, np.array([(days - 1) * PER_DAY + 1]))[0])
    assert found[0] > 3.0
    assert (np.diff(found[1:]) <= 1e-9).all()
    assert found[-1] == 1.0


def test_a_step_between_days_is_no_scatter_for_the_onset_at_it() -> None:
    lost, seen, day = blocks_of([0.1] * 10 + [0.3] * 10)
    at = np.array([10 * PER_DAY, 4 * PER_DAY])
    found = dispersion_of_days(lost, seen, day, at)
    assert found[0] == 1.0
    assert found[1] > 5.0


def test_little_of_a_day_behind_an_onset_counts_little_of_the_scatter() -> None:
    lost, seen, day = blocks_of([0.05, 0.2] * 8)
    found = dispersion_of_days(lost, seen, day, np.array([10, len(lost) - 2]))
    assert 1.0 < found[1] < found[0] / 3


def test_one_block_has_a_finite_dispersion() -> None:
    one = np.ones(1)
    assert np.isfinite(dispersion_of_days(one, one, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)))


def test_a_bad_day_among_days_that_scatter_is_no_rise_and_a_loss_that_stays_high_is_one() -> None:
    usual = [0.06, 0.15] * 7
    for after, is_risen in (([0.2], False), ([0.4] * 5, True)):
        lost, seen, day = blocks_of(usual + after)
        share = onset_shares(day * 86_400.0 + np.arange(len(day)), np.arange(len(day)), horizon_s=604_800)
        blocks = LossBlocks(lost[:, None], seen[:, None], np.ones(1))
        assert loss_rise(blocks, share, needed=4.6) > np.log(101)
        assert (loss_rise(blocks, share, needed=4.6, day=day) > np.log(101)) == is_risen


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 2)), min_size=2, max_size=80)
)
def test_the_dispersion_is_finite_and_at_least_one(rows: list[tuple[int, int, int]]) -> None:
    lost, more, days = np.array(rows, dtype=np.float64).T
    found = dispersion_of_days(lost, lost + more, np.cumsum(days).astype(np.int64), np.arange(1, len(rows)))
    assert np.isfinite(found).all()
    assert (found >= 1.0).all()
