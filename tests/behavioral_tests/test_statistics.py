import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from outrider.behavioral_tests import generator, sample_rows, wilson_interval


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_agrees_with_scipy(counts: tuple[int, int]) -> None:
    failures, cases = counts
    expected = binomtest(failures, cases).proportion_ci(method="wilson")
    assert wilson_interval(failures, cases) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_interval_gives_the_textbook_number() -> None:
    # Newcombe, Statistics in Medicine 1998, table I: 81 of 263.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def test_no_cases_tell_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_a_count_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="3 failures of 2 cases"):
        wilson_interval(3, 2)


def test_sampling_is_the_same_in_any_block_and_process() -> None:
    ids = [f"record-{row}" for row in range(1000)]
    whole = sample_rows("test_shift", ids, rate=0.1, seed=3)
    parts = np.concatenate(
        [sample_rows("test_shift", ids[at : at + 7], rate=0.1, seed=3) for at in range(0, 1000, 7)]
    )
    np.testing.assert_array_equal(whole, parts)
    # Frozen: a replay must ask about the records that the service asked about.
    assert np.flatnonzero(whole)[:5].tolist() == [21, 26, 30, 35, 60]


def test_sampling_keeps_its_rate_and_differs_between_tests() -> None:
    ids = [f"record-{row}" for row in range(20_000)]
    one, other = (sample_rows(name, ids, rate=0.1) for name in ("test_a", "test_b"))
    assert abs(one.mean() - 0.1) < 0.01
    assert abs((one & other).mean() - 0.01) < 0.005
    assert not sample_rows("test_a", ids, rate=0.0).any()
    assert sample_rows("test_a", ids, rate=1.0).all()


def test_a_generator_belongs_to_its_names() -> None:
    draws = [
        generator(*names).integers(1 << 60) for names in ((0, "a", 1), (0, "a", 1), (0, "a", 2), (1, "a", 1))
    ]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3
