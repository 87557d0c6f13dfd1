"""Performance figures from counted outcomes, with intervals: accuracy, F1, AUROC, Brier, calibration.

Labelled records are counted by answer, label and bucket of confidence, so that counts of any periods add up.
Accuracy, F1, Brier and calibration equal those of the records; AUROC is exact up to half the share of pairs
within one bucket, which its interval includes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from .wilson import wilson_limits

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

QUANTILE = NormalDist().inv_cdf(0.975)
CALIBRATION_BINS = 10
_ODD_SHARE = 0.05
"""Share of scores below one half from which they may be scores of a fixed class, not of the answer."""
_SHARES = frozenset({"share", "accuracy", "f1", "auroc", "brier", "calibration", "selection_rate"})
_SHARES |= {"tpr", "fpr", "ppv", "auroc_weighted"}


@dataclass(frozen=True, slots=True)
class Estimated:
    """Figure with its 95 % interval.

    Attributes
    ----------
    value, low, high
        ``nan`` if it cannot be computed.
    records
        Number of labelled records, unweighted.
    effective
        Kish's effective number of records, of equal weight.
    """

    value: float
    low: float
    high: float
    records: int
    effective: float


UNKNOWN = Estimated(math.nan, math.nan, math.nan, 0, 0.0)


@dataclass(frozen=True, slots=True)
class OutcomeCells:
    """Counts of labelled records by answer and label; arrays (cells,).

    Attributes
    ----------
    predicted, label
        Class index; -1 for a class without a name.
    hit
        Whether the answer is the label.
    bucket
        Bucket of the answer's confidence, 0 … ``buckets`` - 1; -1 without a confidence.
    records, weight, squares
        Number, sum of weights and sum of their squares.
    confidence, brier
        Weighted sums of the confidence and of (confidence - hit)².
    buckets
        Number of equal buckets of [0, 1], a multiple of ``CALIBRATION_BINS``.
    """

    predicted: Integers
    label: Integers
    hit: Bools
    bucket: Integers
    records: Integers
    weight: Floats
    squares: Floats
    confidence: Floats
    brier: Floats
    buckets: int = 50

    def take(self, cells: NDArray[np.intp] | Bools) -> "OutcomeCells":
        """Subset of the cells."""
        return OutcomeCells(
            self.predicted[cells],
            self.label[cells],
            self.hit[cells],
            self.bucket[cells],
            self.records[cells],
            self.weight[cells],
            self.squares[cells],
            self.confidence[cells],
            self.brier[cells],
            self.buckets,
        )

    @property
    def effective(self) -> float:
        """Kish's effective number of records."""
        squares = float(self.squares.sum())
        return float(self.weight.sum()) ** 2 / squares if squares > 0 else 0.0

    @property
    def with_confidence(self) -> "OutcomeCells":
        """Cells of answers with a confidence."""
        return self.take(self.bucket >= 0)


def accuracy(cells: OutcomeCells) -> Estimated:
    """Share of answers that equal the label, with Wilson's interval.

    Examples
    --------
    >>> one = np.array([0, 1]); n = np.array([9, 1])
    >>> found = accuracy(OutcomeCells(one, one * 0, one == 0, one - 2, n, n * 1.0, n * 1.0, n * 0.0, n * 0.0))
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.9, 0.596, 0.982)
    """
    total, n = float(cells.weight.sum()), cells.effective
    if not (total > 0 and n > 0):
        return UNKNOWN
    value = float(cells.weight[cells.hit].sum()) / total
    low, high = wilson_limits(min(value, 1.0), n, QUANTILE)
    return Estimated(value, low, high, int(cells.records.sum()), n)


def macro_f1(cells: OutcomeCells) -> Estimated:
    """Unweighted mean of the classes' F1, with a delta-method interval.

    Averaged over classes that occur as answer or label. NaN if a class has no name.

    References
    ----------
    Takahashi et al., "Confidence interval for micro-averaged F1 and macro-averaged F1 scores", Applied
    Intelligence 2022.
    """
    total, n = float(cells.weight.sum()), cells.effective
    if not (total > 0 and n > 0) or (cells.predicted < 0).any() or (cells.label < 0).any():
        return UNKNOWN
    share = cells.weight / total
    classes, place = np.unique(np.concatenate([cells.predicted, cells.label]), return_inverse=True)
    answered, true = place[: len(share)], place[len(share) :]
    own = answered == true
    right = np.bincount(answered[own], weights=share[own], minlength=len(classes))
    both = np.bincount(answered, weights=share, minlength=len(classes))
    both += np.bincount(true, weights=share, minlength=len(classes))
    f1 = 2.0 * right / both
    value = float(f1.mean())
    # Derivative by the share of each cell; that of a right one by 2·right and by both, whose weight is 2.
    slope = np.where(own, 2.0 / both[answered], 0.0) - (f1 / both)[answered] - (f1 / both)[true]
    spread = math.sqrt(max(0.0, float(share @ (slope / len(classes)) ** 2)) / n)
    return _around(value, spread, cells, n)


def auroc(cells: OutcomeCells) -> Estimated:
    """Area under the ROC curve of a binary target.

    The confidence is the probability of the answered class, the rest that of the other. NaN with more
    classes, or labels of a single class.

    References
    ----------
    DeLong, DeLong & Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
    characteristic curves", Biometrics 1988. Weighted; ties within a bucket widen the interval.
    """
    known = cells.with_confidence
    classes = np.unique(np.concatenate([known.predicted, known.label]))
    if len(classes) != 2 or classes[0] < 0 or len(np.unique(known.label)) < 2:
        return UNKNOWN
    half = known.buckets
    level = np.where(known.predicted == classes[1], half + known.bucket, half - 1 - known.bucket)
    negative, positive = (
        _Side.of(level[s], known.weight[s], known.take(s).effective, levels=2 * half)
        for s in (known.label == one for one in classes)
    )
    value, spread, tied = _area(negative, positive)
    found = _around(value, spread, known, known.effective)
    low, high = max(found.low - tied, 0.0), min(found.high + tied, 1.0)
    return Estimated(value, low, high, found.records, found.effective)


@dataclass(frozen=True, slots=True)
class ScoreCells:
    """Counts of labelled records by class and its score; arrays (cells,).

    Attributes
    ----------
    of_class
        Index of the class of the score; each record is counted once for every class.
    bucket
        Bucket of the score, in ascending order, 0 … ``buckets`` - 1.
    is_label
        Whether the class is the label.
    records, weight, squares
        As in :class:`OutcomeCells`.
    """

    of_class: Integers
    bucket: Integers
    is_label: Bools
    records: Integers
    weight: Floats
    squares: Floats
    buckets: int

    def take(self, cells: NDArray[np.intp] | Bools) -> "ScoreCells":
        """Subset of the cells."""
        return ScoreCells(
            self.of_class[cells],
            self.bucket[cells],
            self.is_label[cells],
            self.records[cells],
            self.weight[cells],
            self.squares[cells],
            self.buckets,
        )


def class_auroc(cells: ScoreCells, *, is_weighted: bool = False) -> Estimated:
    """Mean one-vs-rest area under the ROC curve over the classes.

    Over classes with both positive and negative labels. Intervals assume full dependence between the classes
    and include ties within a bucket, so they are conservative.

    Parameters
    ----------
    is_weighted
        Weight the classes by their share of labels; otherwise equally (macro).

    References
    ----------
    Provost & Domingos, "Well-trained PETs", CeDER working paper 2000 (weighted one against the rest). Hand &
    Till, "A simple generalisation of the area under the ROC curve", Machine Learning 2001, on both.
    """
    areas, shares, own, n = [], [], None, 0.0
    for one in np.unique(cells.of_class):
        own = cells.take(cells.of_class == one)
        total, squares = float(own.weight.sum()), float(own.squares.sum())
        n = total * total / squares if squares > 0 else 0.0
        sides = [_side(own.take(own.is_label == is_label)) for is_label in (False, True)]
        if all(side.effective > 0 for side in sides):
            areas.append(_area(*sides))
            shares.append(float(sides[1].weights.sum()))
    if own is None or len(areas) < 2:
        return UNKNOWN
    part = np.array(shares if is_weighted else [1.0] * len(areas))
    value, spread, tied = part @ np.array(areas) / part.sum()
    half = QUANTILE * spread + tied
    low, high = max(0.0, value - half), min(1.0, value + half)
    return Estimated(float(value), float(low), float(high), int(own.records.sum()), n)


@dataclass(frozen=True, slots=True)
class _Side:
    """Weights of one side's records by score level, and their effective number."""

    weights: Floats
    effective: float

    @classmethod
    def of(cls, level: Integers, weight: Floats, effective: float, *, levels: int) -> "_Side":
        """Side of cells whose scores are at levels."""
        return cls(np.bincount(level, weights=weight, minlength=levels).astype(np.float64), effective)


def _side(cells: ScoreCells) -> _Side:
    squares = float(cells.squares.sum())
    effective = float(cells.weight.sum()) ** 2 / squares if squares > 0 else 0.0
    return _Side.of(cells.bucket, cells.weight, effective, levels=cells.buckets)


def _area(negative: _Side, positive: _Side) -> tuple[float, float, float]:
    """Area under the ROC curve, its standard error, and half the share of tied pairs."""
    no, yes = (side.weights / side.weights.sum() for side in (negative, positive))
    above = np.cumsum(no) - no / 2  # chance that a negative ranks below, ties half
    below = 1.0 - (np.cumsum(yes) - yes / 2)
    value = float(yes @ above)
    spread = float(yes @ above**2) - value**2, float(no @ below**2) - value**2
    variance = max(spread[0], 0.0) / positive.effective + max(spread[1], 0.0) / negative.effective
    return value, math.sqrt(variance), float(yes @ no) / 2


def brier_score(cells: OutcomeCells) -> Estimated:
    """Mean squared difference between the confidence and the hit (0 or 1).

    For two classes this is Brier's score (1950) of either class; for more, that of the answered class only.
    """
    known = cells.with_confidence
    total, n = float(known.weight.sum()), known.effective
    if not (total > 0 and n > 0):
        return UNKNOWN
    value = float(known.brier.sum()) / total
    mean = known.brier / np.where(known.weight > 0, known.weight, 1.0)
    spread = math.sqrt(max(0.0, float(known.weight @ (mean - value) ** 2) / total) / n)
    return _around(value, spread, known, n)


@dataclass(frozen=True, slots=True)
class ScoreConvention:
    """Evidence that scores belong to a fixed class, not to the answer.

    Attributes
    ----------
    below
        Share of scores under one half, impossible for the answer's own probability with two classes.
    brier, brier_of_class
        Brier score as read, and with the scores read as those of the fixed class.
    """

    below: float
    brier: float
    brier_of_class: float

    def __str__(self) -> str:
        return (
            f"{self.below:.0%} of the scores of two classes are below 0.5 beside their own answer: they may "
            f"be of the positive class (Brier {self.brier:.3f} as read, {self.brier_of_class:.3f} if so); "
            'if they are, set score_of = "positive" in the model'
        )


def score_convention(cells: OutcomeCells) -> ScoreConvention | None:
    """Evidence that scores belong to a fixed class, or None.

    Examples
    --------
    >>> answered, hit = np.array([1, 0]), np.array([True, True])
    >>> n, sure = np.array([60, 40]), np.array([54.0, 4.0])  # score 0.9 with class 1, 0.1 with class 0
    >>> brier = np.array([0.6, 32.4])
    >>> seen = OutcomeCells(answered, answered, hit, answered * 40 + 5, n, n * 1.0, n * 1.0, sure, brier)
    >>> found = score_convention(seen)
    >>> found.below, found.brier, round(found.brier_of_class, 3)
    (0.4, 0.33, 0.01)
    """
    known = cells.with_confidence
    total = float(known.weight.sum())
    if total <= 0.0 or len(np.unique(np.concatenate([known.predicted, known.label]))) != 2:
        return None
    under = known.take(known.bucket < known.buckets // 2)
    hit = under.hit.astype(np.float64)
    squares = under.brier + 2.0 * hit * under.confidence - hit * under.weight  # of the confidences
    other = squares - 2.0 * (1.0 - hit) * under.confidence + (1.0 - hit) * under.weight
    brier = float(known.brier.sum()) / total
    found = ScoreConvention(
        float(under.weight.sum()) / total, brier, brier + float((other - under.brier).sum()) / total
    )
    is_odd = found.below >= _ODD_SHARE and found.brier_of_class < found.brier
    return found if is_odd else None


def calibration_error(cells: OutcomeCells) -> Estimated:
    """Expected calibration error of the answers' confidences, in ten bins.

    Biased upwards by noise: for a calibrated model it is about 0.4 · sqrt(10 / records), not 0.

    References
    ----------
    Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, eq. 3.
    """
    known = cells.with_confidence
    total, n = float(known.weight.sum()), known.effective
    if not (total > 0 and n > 0):
        return UNKNOWN
    place = known.bucket // (known.buckets // CALIBRATION_BINS)
    gap = known.weight * known.hit - known.confidence
    gaps = np.bincount(place, weights=gap, minlength=CALIBRATION_BINS) / total
    spread = math.sqrt(float(known.brier.sum()) / total / n)
    return _around(float(np.abs(gaps).sum()), spread, known, n)


def _around(value: float, spread: float, cells: OutcomeCells, n: float) -> Estimated:
    low, high = value - QUANTILE * spread, value + QUANTILE * spread
    return Estimated(value, max(0.0, low), min(1.0, high), int(cells.records.sum()), n)


@dataclass(frozen=True, slots=True)
class MeasureHistogram:
    """Histogram of values, one entry per bucket in ascending order.

    ``records``, ``weight`` and ``squares`` as in :class:`OutcomeCells`; ``total`` is the weighted sum.
    """

    records: Integers
    weight: Floats
    squares: Floats
    total: Floats

    def mean(self) -> Estimated:
        """Exact mean of the values, with a normal interval."""
        mass, squares = float(self.weight.sum()), float(self.squares.sum())
        if not (mass > 0 and squares > 0):
            return UNKNOWN
        n, value = mass * mass / squares, float(self.total.sum()) / mass
        each = self.total / np.where(self.weight > 0, self.weight, 1.0)
        spread = math.sqrt(max(0.0, float(self.weight @ (each - value) ** 2) / mass) / n)
        return Estimated(
            value, value - QUANTILE * spread, value + QUANTILE * spread, int(self.records.sum()), n
        )

    def share(self) -> Estimated:
        """Share of ones among values of 0 and 1, with Wilson's interval."""
        found = self.mean()
        if math.isnan(found.value):
            return UNKNOWN
        value = min(max(found.value, 0.0), 1.0)
        low, high = wilson_limits(value, found.effective, QUANTILE)
        return Estimated(value, low, high, found.records, found.effective)

    def quantile(self, rank: float) -> Estimated:
        """Quantile, within the width of a bucket.

        The interval is that of order statistics.
        """
        mass, squares = float(self.weight.sum()), float(self.squares.sum())
        if not (mass > 0 and squares > 0):
            return UNKNOWN
        n = mass * mass / squares
        each = self.total / np.where(self.weight > 0, self.weight, 1.0)
        reached = np.cumsum(self.weight) / mass
        half = QUANTILE * math.sqrt(rank * (1.0 - rank) / n)
        value, low, high = (
            float(each[min(int(np.searchsorted(reached, at - 1e-12)), len(each) - 1)])
            for at in (rank, max(rank - half, 0.0), min(rank + half, 1.0))
        )
        return Estimated(value, low, high, int(self.records.sum()), n)


def root(figure: Estimated) -> Estimated:
    """Square root of a figure and its limits, for the RMSE."""
    value, low, high = (math.sqrt(max(one, 0.0)) for one in (figure.value, figure.low, figure.high))
    return Estimated(value, low, high, figure.records, figure.effective)


def numbered(names: Sequence[str], unnamed: frozenset[str]) -> Integers:
    """Index of each class name; -1 for one of ``unnamed``."""
    numbers: dict[str, int] = {}
    return np.array(
        [-1 if name in unnamed else numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64
    )


def number_text(value: float, *, digits: int = 3) -> str:
    """Number as display text, with few digits.

    Examples
    --------
    >>> number_text(0.04213), number_text(999.6), number_text(1138.4)
    ('0.0421', '1,000', '1,138')
    """
    return f"{value:,.0f}" if 10**digits - 0.5 <= abs(value) < 1e15 else f"{value:.{digits}g}"


def figure_text(
    statistic: str, value: float | None, low: float | None = None, high: float | None = None
) -> str:
    """Figure as display text, with its interval if known.

    Examples
    --------
    >>> figure_text("share", 0.0421, 0.039, 0.0455)
    '4.21 % (3.9 to 4.55)'
    >>> figure_text("p99", 1138.0), figure_text("count", 12345.0), figure_text("mean", None)
    ('1,138', '12,345', '?')
    """
    if value is None:
        return "?"
    if statistic in _SHARES or statistic.endswith("_gap"):
        shown = [f"{100 * one:.3g}" for one in (value, low, high) if one is not None]
        return f"{shown[0]} %" + (f" ({shown[1]} to {shown[2]})" if len(shown) == 3 and low != high else "")
    if low is None or high is None or low == high:
        return number_text(value)
    return f"{number_text(value)} ({number_text(low)} to {number_text(high)})"
