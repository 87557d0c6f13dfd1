"""McNemar's test, the paired difference and Holm's correction against references."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from outrider.behavioral_tests.statistics import holm, mcnemar_p, paired_difference


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_agrees_with_scipy(one: int, other: int) -> None:
    expected = binomtest(one, one + other).pvalue if one + other else 1.0
    assert mcnemar_p(one, other) == pytest.approx(expected, rel=1e-9)
    assert mcnemar_p(one, other) == mcnemar_p(other, one)


@pytest.mark.parametrize(
    ("table", "p", "interval"),
    [
        # Fagerland, Lydersen and Laake, Statistical Analysis of Contingency Tables, 2017, chapter 8:
        # complete response before and after therapy (Cavo et al. 2012), interval by Bonett and Price.
        ((59, 6, 16, 80), 0.052479, (-0.1195, -0.0032)),
        # Airway hyper-responsiveness (Bentur et al. 2009), p in Fagerland et al. 2013, table 4.
        ((1, 1, 7, 12), 0.0703, None),
    ],
)
def test_published_examples(
    table: tuple[int, int, int, int], p: float, interval: tuple[float, float] | None
) -> None:
    _, one, other, _ = table
    assert mcnemar_p(one, other) == pytest.approx(p, abs=5e-5)
    if interval is not None:  # of the first less the second
        assert paired_difference(other, one, sum(table)) == pytest.approx(interval, abs=5e-5)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 500), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_paired_interval_is_symmetric_and_holds_the_difference(
    one: int, other: int, same: int, confidence: float
) -> None:
    cases = one + other + same
    low, high = paired_difference(one, other, cases, confidence=confidence)
    mirrored = paired_difference(other, one, cases, confidence=confidence)
    assert (-mirrored[1], -mirrored[0]) == pytest.approx((low, high))
    assert -1.0 <= low <= high <= 1.0
    if cases and confidence >= 0.9:
        assert low <= (other - one) / cases <= high


def test_nothing_compared_tells_nothing() -> None:
    assert mcnemar_p(0, 0) == 1.0
    assert paired_difference(0, 0, 0) == (-1.0, 1.0)
    with pytest.raises(ValueError, match="at most 3 together"):
        paired_difference(2, 2, 3)
    with pytest.raises(ValueError, match="counts >= 0"):
        mcnemar_p(-1, 2)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_agrees_with_its_definition(p_values: list[float]) -> None:
    """A hypothesis is rejected at alpha when it and all with smaller p pass their step (Holm 1979)."""
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.2):
        rejected = [False] * len(p_values)
        for rank, index in enumerate(np.argsort(p_values, kind="stable")):
            if p_values[index] * (len(p_values) - rank) > alpha:
                break
            rejected[index] = True
        assert [value <= alpha for value in adjusted] == rejected
    assert all(new >= old for new, old in zip(adjusted, p_values, strict=True))


def test_holm_gives_the_textbook_numbers() -> None:
    # R: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm")
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([]) == []
