import numpy as np

from outrider.behavioral_tests import generator, sample_rows


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
