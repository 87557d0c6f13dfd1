"""Figures from counted outcomes are scikit-learn's on the records, and their intervals hold."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import brier_score_loss, f1_score, mean_absolute_error, roc_auc_score

from outrider.assertions.statistics.performance import (
    UNKNOWN,
    Estimated,
    MeasureHistogram,
    OutcomeCells,
    accuracy,
    auroc,
    brier_score,
    calibration_error,
    macro_f1,
    numbered,
    root,
)

Floats = NDArray[np.float64]


def cells_of(
    predicted: Floats, label: Floats, confidence: Floats, weight: Floats | None = None
) -> OutcomeCells:
    """Cells of records, each on its own: figures must not depend on how they are put together."""
    hit = predicted == label
    w = np.ones(len(hit)) if weight is None else weight
    bucket = np.minimum((confidence * 50).astype(np.int64), 49)
    ones = np.ones(len(hit), dtype=np.int64)
    said, true = predicted.astype(np.int64), label.astype(np.int64)
    return OutcomeCells(said, true, hit, bucket, ones, w, w * w, w * confidence, w * (confidence - hit) ** 2)


def binary(rng: np.random.Generator, rows: int) -> tuple[Floats, Floats, Floats]:
    label = rng.integers(0, 2, rows).astype(np.float64)
    score = 1 / (1 + np.exp(-(1.5 * (2 * label - 1) + 1.5 * rng.standard_normal(rows))))
    return (score > 0.5).astype(np.float64), label, score


@pytest.mark.parametrize("weighted", [False, True])
def test_figures_of_two_classes_are_those_of_scikit_learn(weighted: bool) -> None:
    rng = np.random.default_rng(1)
    predicted, label, score = binary(rng, 4000)
    weight = rng.uniform(0.5, 4.0, 4000) if weighted else None
    cells = cells_of(predicted, label, np.where(predicted == 1, score, 1 - score), weight)
    given = {"sample_weight": weight}
    assert accuracy(cells).value == pytest.approx(np.average(predicted == label, weights=weight), abs=1e-12)
    assert macro_f1(cells).value == pytest.approx(
        f1_score(label, predicted, average="macro", **given), abs=1e-12
    )
    assert brier_score(cells).value == pytest.approx(brier_score_loss(label, score, **given), abs=1e-12)
    found, exact = auroc(cells), roc_auc_score(label, score, **given)
    assert found.value == pytest.approx(exact, abs=1e-3)
    assert found.low < exact < found.high


def test_macro_f1_of_many_classes_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(2)
    label = rng.integers(0, 7, 2000).astype(np.float64)
    predicted = np.where(rng.random(2000) < 0.6, label, rng.integers(0, 9, 2000))
    found = macro_f1(cells_of(predicted, label, np.full(2000, 0.5)))
    assert found.value == pytest.approx(f1_score(label, predicted, average="macro"), abs=1e-12)
    assert auroc(cells_of(predicted, label, np.full(2000, 0.5))) is UNKNOWN


def test_calibration_error_is_that_of_a_slow_loop() -> None:
    rng = np.random.default_rng(3)
    predicted, label, score = binary(rng, 3000)
    sure = np.where(predicted == 1, score, 1 - score)
    slow = 0.0
    for low in range(10):
        inside = (sure >= low / 10) & (sure < (low + 1) / 10)
        if inside.any():
            slow += inside.mean() * abs((predicted == label)[inside].mean() - sure[inside].mean())
    assert calibration_error(cells_of(predicted, label, sure)).value == pytest.approx(slow, abs=1e-12)


@pytest.mark.parametrize("name", ["accuracy", "macro_f1", "auroc", "brier_score"])
def test_intervals_hold_what_a_large_sample_says(name: str) -> None:
    figure = {"accuracy": accuracy, "macro_f1": macro_f1, "auroc": auroc, "brier_score": brier_score}[name]
    rng = np.random.default_rng(4)

    def draw(rows: int) -> Estimated:
        predicted, label, score = binary(rng, rows)
        return figure(cells_of(predicted, label, np.where(predicted == 1, score, 1 - score)))

    truth = draw(400_000).value
    held = sum(found.low <= truth <= found.high for found in (draw(300) for _ in range(400)))
    assert 400 * 0.95 - 4 * math.sqrt(400 * 0.05 * 0.95) <= held


def test_an_unnamed_class_or_one_label_tells_no_f1_and_no_auroc() -> None:
    numbers = numbered(["a", "__other__", "a"], frozenset({"__other__"}))
    assert numbers.tolist() == [0, -1, 0]
    one = np.ones(3)
    cells = cells_of(numbers.astype(np.float64), one * 0, one * 0.5)
    assert macro_f1(cells) is UNKNOWN
    assert auroc(cells) is UNKNOWN
    assert accuracy(cells).value == pytest.approx(2 / 3)
    assert accuracy(cells.take(np.zeros(3, dtype=np.bool_))) is UNKNOWN


def test_histogram_gives_the_mean_exactly_and_quantiles_within_a_bucket() -> None:
    rng = np.random.default_rng(5)
    values = np.sort(rng.lognormal(0, 1, 5000))
    bucket = np.floor(8 * np.log2(values / 1e-9)).astype(np.int64)
    _, at = np.unique(bucket, return_inverse=True)
    records = np.bincount(at)
    weight = records.astype(np.float64)
    total = np.bincount(at, weights=values).astype(np.float64)
    counted = MeasureHistogram(records, weight, weight, total)
    assert counted.mean().value == pytest.approx(mean_absolute_error(values, values * 0), rel=1e-12)
    for rank in (0.5, 0.95):
        assert counted.quantile(rank).value == pytest.approx(np.quantile(values, rank), rel=0.09)
    sem = values.std() / math.sqrt(5000)
    assert counted.mean().high - counted.mean().value == pytest.approx(1.96 * sem, rel=0.02)
    assert root(Estimated(4.0, 1.0, 9.0, 5, 5.0)) == Estimated(2.0, 1.0, 3.0, 5, 5.0)
