import math

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from outrider.assertions.statistics.kappa import agreement


def test_kappa_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    for classes in (2, 4):
        first = rng.integers(classes, size=300)
        second = np.where(rng.random(300) < 0.6, first, rng.integers(classes, size=300))
        found = agreement(first.tolist(), second.tolist())
        assert found.kappa == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
        assert found.accuracy == pytest.approx(float((first == second).mean()))
        assert found.kappa_low < found.kappa < found.kappa_high
        assert found.accuracy_low < found.accuracy < found.accuracy_high


def test_the_interval_of_kappa_covers_the_truth() -> None:
    # Two raters who agree with probability 0.7 and else draw evenly: kappa is 0.7 by definition.
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        first = rng.integers(3, size=150)
        second = np.where(rng.random(150) < 0.7, first, rng.integers(3, size=150))
        found = agreement(first.tolist(), second.tolist())
        covered += found.kappa_low <= 0.7 <= found.kappa_high
    assert covered >= 180  # 0.95 less four standard errors of 200 trials


def test_what_is_not_defined_is_nan() -> None:
    nothing = agreement([], [])
    assert nothing.n == 0
    assert math.isnan(nothing.accuracy)
    alike = agreement(["yes"] * 5, ["yes"] * 5)
    assert (alike.accuracy, math.isnan(alike.kappa)) == (1.0, True)


def test_ratings_of_other_length_are_refused() -> None:
    with pytest.raises(ValueError, match="one rating of each"):
        agreement(["a"], [])
