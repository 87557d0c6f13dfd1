import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from outrider.assertions.statistics.wilson import wilson_interval, wilson_limits

PACKAGE = Path(__file__).parents[3] / "outrider"
counts = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts, st.sampled_from([0.8, 0.95, 0.999]))
def test_wilson_interval_agrees_with_scipy(given: tuple[int, int], confidence: float) -> None:
    hits, trials = given
    expected = binomtest(hits, trials).proportion_ci(confidence, method="wilson")
    found = wilson_interval(hits, trials, confidence=confidence)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0.0 <= found[0] <= hits / trials <= found[1] <= 1.0


@given(counts)
def test_wilson_interval_of_90_percent_has_one_sided_limits_of_95(given: tuple[int, int]) -> None:
    hits, trials = given
    low, high = wilson_interval(hits, trials, confidence=0.9)
    at_least = binomtest(hits, trials, alternative="greater").proportion_ci(0.95, method="wilson")
    at_most = binomtest(hits, trials, alternative="less").proportion_ci(0.95, method="wilson")
    assert (low, high) == pytest.approx((at_least.low, at_most.high), abs=1e-12)


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_gives_the_textbook_number(hits: int, trials: int, low: float, high: float) -> None:
    # Newcombe, Statistics in Medicine 1998, table I, method 3.
    assert wilson_interval(hits, trials) == pytest.approx((low, high), abs=5e-5)


def test_wilson_interval_of_arrays_is_that_of_each_number() -> None:
    hits, trials = np.array([[0, 3], [60, 0]]), np.array([60, 60])
    low, high = wilson_interval(hits, trials)
    each = np.array([wilson_interval(int(h), 60) for h in hits.ravel()])
    assert (low.ravel().tolist(), high.ravel().tolist()) == (each[:, 0].tolist(), each[:, 1].tolist())
    low, high = wilson_interval(hits, 60)
    assert low.ravel().tolist() == each[:, 0].tolist()


def test_wilson_interval_of_numbers_is_of_plain_floats() -> None:
    assert [type(limit) for limit in (*wilson_interval(3, 60), *wilson_limits(0.5, 8.5, 2.0))] == [float] * 4


def test_wilson_interval_without_trials_tells_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    low, high = wilson_interval(np.array([0, 0]), np.array([0, 9]))
    assert (low[0], high[0]) == (0.0, 1.0)
    assert high[1] < 0.4


@pytest.mark.parametrize(("hits", "trials"), [(3, 2), (-1, 2), (float("nan"), 2)])
def test_wilson_interval_of_counts_out_of_range_is_refused(hits: float, trials: int) -> None:
    with pytest.raises(ValueError, match=f"got {hits} hits of {trials} trials"):
        wilson_interval(hits, trials)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_wilson_interval_of_no_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        wilson_interval(1, 2, confidence=confidence)


def _squares(node: ast.AST) -> bool:
    """Whether an expression divides by four times a square, as the formula does under its root."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and ast.unparse(node.right).replace("(", "").startswith("4 * ")
    )


@pytest.mark.costly("reads every file of the package")
def test_wilson_formula_stands_in_one_module() -> None:
    holders = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if any(map(_squares, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    ]
    assert holders == ["assertions/statistics/wilson.py"]
