"""Threshold of a scored assertion, fitted on a few dozen labelled examples."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outrider.assertions.statistics.wilson import wilson_interval

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
LEAST_OF_EACH = 5
"""Minimum number of examples of each kind (right, wrong) for a fit."""
FOLDS = 20
RESAMPLES = 200


class IntervalEstimate(NamedTuple):
    """Share with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Threshold:
    """Fitted threshold with cross-validated quality measures.

    Attributes
    ----------
    score
        The assertion fires if the score is greater.
    precision, recall
        Cross-validated: each example is judged by a threshold fitted on others. The intervals include the
        variance of the threshold.
    auroc
        Area under the ROC curve, with bootstrap interval: the quality that any threshold could reach.
    examples, wrong
        Number of examples, and of wrong ones among them.
    """

    score: float
    precision: IntervalEstimate
    recall: IntervalEstimate
    auroc: IntervalEstimate
    examples: int
    wrong: int

    @property
    def is_informative(self) -> bool:
        """True if the score provably separates wrong from right."""
        return self.auroc.low > 0.5


def fit_threshold(
    score: ArrayLike, wrong: ArrayLike, *, precision: float | None = None, seed: int = 0
) -> Threshold:
    """Threshold with the best F1, or the most recall at a precision.

    The probability of being wrong is a logistic function of the score's log odds (Platt's, with his smoothed
    targets), and the expected F1 under it is maximised: with 50 examples this is steadier than the best
    observed F1.

    Parameters
    ----------
    score : shape (n,)
        In [0, 1]; a higher score is more probably wrong.
    wrong : shape (n,)
        Whether each example is wrong.
    precision
        Minimum expected precision, in (0, 1); None maximises F1.
    seed
        Seed of the bootstrap.

    Raises
    ------
    ValueError
        If there are fewer than ``LEAST_OF_EACH`` examples of either kind, or no threshold reaches
        ``precision``.

    References
    ----------
    Platt, "Probabilistic outputs for support vector machines and comparisons to regularized likelihood
    methods", Advances in Large Margin Classifiers, 1999.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> wrong = np.arange(60) < 20
    >>> found = fit_threshold(np.where(wrong, 0.3, 0.1) + rng.normal(0, 0.05, 60).clip(-0.1, 0.5), wrong)
    >>> 0.15 < found.score < 0.25, found.is_informative
    (True, True)
    """
    scores, truth = np.asarray(score, dtype=np.float64), np.asarray(wrong, dtype=np.bool_)
    if scores.shape != truth.shape or scores.ndim != 1:
        raise ValueError(f"one score and one verdict per example expected, got {scores.shape}, {truth.shape}")
    positive = int(truth.sum())
    if min(positive, len(truth) - positive) < LEAST_OF_EACH:
        raise ValueError(
            f"at least {LEAST_OF_EACH} wrong and {LEAST_OF_EACH} right examples expected, "
            f"got {positive} and {len(truth) - positive}"
        )
    fitted = _fitted(scores, truth, precision)
    if fitted is None:
        raise ValueError(f"no threshold reaches a precision of {precision} on these {len(truth)} examples")
    fired = _out_of_fold(scores, truth, precision)
    areas, moved = _resampled(scores, truth, precision, np.random.default_rng(seed))
    elsewhere = scores > moved[:, None]
    hits = (elsewhere & truth).sum(axis=1)
    low, high = np.quantile(areas, [0.025, 0.975]).tolist()
    return Threshold(
        fitted,
        _share(truth[fired], hits / np.maximum(elsewhere.sum(axis=1), 1)),
        _share(fired[truth], hits / positive),
        IntervalEstimate(_auroc(scores, truth), low, high),
        len(truth),
        positive,
    )


def _share(hits: Bools, elsewhere: Floats) -> IntervalEstimate:
    """Wilson interval with the effective sample size of sample and threshold variance together."""
    if not len(hits):
        return IntervalEstimate(float("nan"), 0.0, 1.0)
    near = (float(hits.sum()) + 2) / (len(hits) + 4)  # a share of 1 has a variance too (Agresti and Coull)
    alone = near * (1 - near) / len(hits)
    n = len(hits) * alone / (alone + float(elsewhere.var()))
    share = float(hits.mean())
    return IntervalEstimate(share, *wilson_interval(share * n, n))


def _log_odds(score: Floats) -> Floats:
    inside = np.clip(score, 1e-9, 1.0 - 1e-9)
    return np.log(inside / (1.0 - inside))


def _fitted(score: Floats, wrong: Bools, precision: float | None) -> float | None:
    """Threshold between two scores; None if no threshold reaches the precision."""
    ordered = np.sort(score)[::-1]
    chance = _chance_of_wrong(score, wrong, ordered)
    fired = np.arange(1, len(ordered) + 1)
    hits = np.cumsum(chance)
    last = np.append(ordered[1:] < ordered[:-1], True)  # equal scores fire together
    if precision is None:
        worth = 2 * hits / (fired + hits[-1])
    else:
        worth = np.where(hits / fired >= precision, hits, -1.0)
    worth = np.where(last, worth, -1.0)
    best = int(np.argmax(worth))
    if worth[best] < 0:
        return None
    below = ordered[best + 1] if best + 1 < len(ordered) else 0.0
    return float(ordered[best] + below) / 2


def _chance_of_wrong(score: Floats, wrong: Bools, at: Floats) -> Floats:
    """Platt's logistic fit by Newton's method, with a weak ridge penalty on the standardised slope."""
    x = _log_odds(score)
    centre, spread = float(x.mean()), float(x.std()) or 1.0
    X = np.stack([(x - centre) / spread, np.ones(len(x))], axis=1)
    positive = int(wrong.sum())
    target = np.where(wrong, (positive + 1) / (positive + 2), 1 / (len(wrong) - positive + 2))
    weights, pull = np.zeros(2), np.diag([0.5, 1e-9])
    for _ in range(50):
        chance = 1.0 / (1.0 + np.exp(-np.clip(X @ weights, -30, 30)))
        gradient = X.T @ (chance - target) + pull @ weights
        hessian = (X.T * (chance * (1 - chance) + 1e-9)) @ X + pull
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            break
    # A score that falls where it should rise must not turn the verdict round.
    slope = max(0.0, float(weights[0])) / spread
    odds = slope * (_log_odds(at) - centre) + float(weights[1])
    chance_at: Floats = 1.0 / (1.0 + np.exp(-np.clip(odds, -500, 500)))
    return chance_at


def _out_of_fold(score: Floats, wrong: Bools, precision: float | None) -> Bools:
    """Mask of the examples that fire at the threshold fitted on the other folds; folds are stratified."""
    order = np.lexsort((np.arange(len(wrong)), wrong))
    fold = np.empty(len(wrong), dtype=np.intp)
    fold[order] = np.arange(len(wrong)) % min(FOLDS, len(wrong))
    fired = np.zeros(len(wrong), dtype=np.bool_)
    for number in range(int(fold.max()) + 1):
        here = fold == number
        threshold = _fitted(score[~here], wrong[~here], precision)
        fired[here] = False if threshold is None else score[here] > threshold
    return fired


def _auroc(score: Floats, wrong: Bools) -> float:
    """Area under the ROC curve by midranks."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    positive = int(wrong.sum())
    return float((rank[wrong].sum() - positive * (positive + 1) / 2) / (positive * (len(wrong) - positive)))


def _resampled(
    score: Floats, wrong: Bools, precision: float | None, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """AUROC and threshold of stratified bootstrap resamples; infinity if no threshold exists."""
    bad, good = score[wrong], score[~wrong]
    verdict = np.repeat([True, False], [len(bad), len(good)])
    areas, thresholds = np.empty(RESAMPLES), np.empty(RESAMPLES)
    for at in range(RESAMPLES):
        drawn = np.concatenate([rng.choice(bad, len(bad)), rng.choice(good, len(good))])
        areas[at] = _auroc(drawn, verdict)
        threshold = _fitted(drawn, verdict, precision)
        thresholds[at] = np.inf if threshold is None else threshold
    return areas, thresholds
