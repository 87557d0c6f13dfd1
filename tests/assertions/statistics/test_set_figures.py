"""Macro-F1 and average precision: figures as scikit-learn has them, and bounds on their fall."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from outrider.assertions.statistics.loss_bounds import excess
from outrider.assertions.statistics.set_figures import SetFigure, average_precision, macro_f1, set_excess

SHARES = np.array([0.7, 0.25, 0.05])


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_macro_f1_is_that_of_the_labelled_classes(pairs: list[tuple[int, int]]) -> None:
    answers, labels = np.array(pairs).T
    expected = metrics.f1_score(labels, answers, labels=np.unique(labels), average="macro", zero_division=0)
    assert macro_f1(answers, labels, 4) == pytest.approx(expected)


@given(st.integers(0, 10_000), st.booleans())
def test_average_precision_is_that_of_the_labelled_classes(seed: int, has_ties: bool) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rng.integers(1, 40))
    scores = rng.random((len(labels), 3)).round(1 if has_ties else 9)
    expected = [
        metrics.average_precision_score(labels == number, scores[:, number]) for number in np.unique(labels)
    ]
    assert average_precision(scores, labels) == pytest.approx(np.mean(expected))


def answers(
    rng: np.random.Generator, rows: int, entities: int, lost: float, icc: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Champion, candidate, labels, entities: the candidate loses a share of the champion's right answers."""
    labels, entity = rng.choice(3, rows, p=SHARES), np.arange(rows) % entities
    other = (labels + rng.integers(1, 3, rows)) % 3
    champion = np.where(rng.random(rows) < 0.9, labels, other)
    share = (
        rng.beta(lost * (1 / icc - 1), (1 - lost) * (1 / icc - 1), entities)
        if icc
        else np.full(entities, lost)
    )
    candidate = np.where((champion == labels) & (rng.random(rows) < share[entity]), other, champion)
    return champion, candidate, labels, entity


def fall_of(lost: float) -> float:
    """Fall of macro-F1, of many rows."""
    champion, candidate, labels, _ = answers(np.random.default_rng(0), 2_000_000, 1, lost, 0.0)
    return macro_f1(champion, labels, 3) - macro_f1(candidate, labels, 3)


@pytest.mark.parametrize(("entities", "icc"), [(10, 0.1), (50, 0.5), (1_000, 0.0)])
def test_a_fall_is_seldom_bounded_below_the_true_one(entities: int, icc: float) -> None:
    truth, rng, missed = fall_of(0.02), np.random.default_rng(3), 0
    for _ in range(120):
        old, new, labels, entity = answers(rng, 1_000, entities, 0.02, icc)
        found = set_excess("macro_f1", old, new, labels, classes=3, entities=entity, error=0.05)
        missed += found.high < truth
    assert missed <= 12  # binomial: 12 or more of 120 at 5 % in one of 60 runs


def test_a_great_fall_is_proven_and_a_twin_stays_between() -> None:
    rng = np.random.default_rng(4)
    old, new, labels, entity = answers(rng, 2_000, 500, 0.3, 0.0)
    worse = set_excess("macro_f1", old, new, labels, classes=3, entities=entity)
    assert worse.low > 0.1
    twin = set_excess("macro_f1", old, old, labels, classes=3, entities=entity)
    assert (twin.value, twin.low < 0.0 < twin.high < 0.05) == (0.0, True)


@pytest.mark.parametrize("figure", ["macro_f1", "average_precision"])
def test_few_rows_tell_little(figure: SetFigure) -> None:
    labels = np.array([0, 1, 2, 0, 1, 2])
    said = labels if figure == "macro_f1" else np.eye(3)[labels]
    found = set_excess(figure, said, said, labels, classes=3)
    assert found.high > 0.3
    one = set_excess(figure, said, said, labels, classes=3, entities=["a"] * 6)
    assert (one.low, one.high) == (-1.0, 1.0)
    nothing = set_excess(figure, said[:0], said[:0], labels[:0], classes=3)
    assert (nothing.rows, nothing.high) == (0, 1.0)


def test_balanced_classes_are_bounded_about_as_their_errors_are() -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 4_000)
    champion, candidate = (np.where(rng.random(4_000) < right, labels, 1 - labels) for right in (0.9, 0.88))
    found = set_excess("macro_f1", champion, candidate, labels, classes=2)
    errors = excess((champion != labels).astype(float), (candidate != labels).astype(float))
    assert found.value == pytest.approx(errors.value, abs=1e-3)
    assert found.width == pytest.approx(errors.width, rel=0.25)


@pytest.mark.parametrize("rows", [2, 3, 4, 5])
def test_a_gain_on_every_one_of_few_rows_is_no_proof(rows: int) -> None:
    """Of equal models that never agree, one is right on all of five rows in 3 % of the cases."""
    labels = np.zeros(rows, dtype=np.intp)
    found = set_excess("macro_f1", labels - 1, labels, labels, classes=1, error=0.024)
    assert found.value == -1.0
    assert found.high > 0.02
    assert set_excess("macro_f1", labels, labels - 1, labels, classes=1, error=0.024).low < -0.02
