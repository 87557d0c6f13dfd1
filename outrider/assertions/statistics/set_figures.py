"""Macro-F1 and average precision of rows, and bounds on their fall.

These figures are not means over rows: their variance comes from leaving out groups of entities (jackknife).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from .clusters import Clusters, Scatter, freedom_of
from .loss_bounds import Excess, design_effect, quantile_of

SetFigure = Literal["macro_f1", "average_precision"]
SET_FIGURES: tuple[SetFigure, ...] = get_args(SetFigure)
GROUPS = 100
"""Maximum number of groups of entities that are left out in turn."""
_SHARE: Mapping[SetFigure, float] = {"macro_f1": 2.0, "average_precision": 1.0}
"""Divisor: losing a share s of a class's rows lowers its figure by about s / divisor."""
Floats: TypeAlias = NDArray[np.float64]
Classes: TypeAlias = NDArray[np.intp]


def macro_f1(answers: Classes, labels: Classes, classes: int) -> float:
    """Mean F1 over the labelled classes.

    Parameters
    ----------
    answers, labels
        Class indices, shape (rows,); an answer of -1 is none of the classes.

    Examples
    --------
    >>> import numpy as np
    >>> round(macro_f1(np.array([0, 0, 1, -1]), np.array([0, 1, 1, 1]), 2), 3)
    0.583
    """
    there = np.bincount(labels, minlength=classes)
    predicted = np.bincount(answers[answers >= 0], minlength=classes)
    hit = np.bincount(labels[answers == labels], minlength=classes)
    seen = there > 0
    return float(np.mean(2.0 * hit[seen] / (there + predicted)[seen])) if seen.any() else 0.0


def average_precision(scores: Floats, labels: Classes) -> float:
    """Mean average precision over the labelled classes.

    Equal scores share one rank, as in scikit-learn.

    Parameters
    ----------
    scores
        Score of each class, shape (rows, classes).

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]])
    >>> round(average_precision(scores, np.array([0, 0, 1])), 3)
    0.667
    """
    return float(_average_precisions(scores, labels, np.zeros(len(labels), np.intp), 0)[0])


def _average_precisions(scores: Floats, labels: Classes, groups: NDArray[np.intp], number: int) -> Floats:
    """Figure of all rows, then without each of ``number`` groups, shape (number + 1,)."""
    total, classes = np.zeros((2, 1 + number))
    for label in np.unique(labels):
        order = np.argsort(-scores[:, label], kind="stable")
        ranked, hits, group = scores[order, label], labels[order] == label, groups[order]
        for left_out in range(-1, number):
            kept = slice(None) if left_out < 0 else group != left_out
            some = hits[kept]
            if some.any():
                total[1 + left_out] += _precision(ranked[kept], some)
                classes[1 + left_out] += 1
    return total / np.maximum(classes, 1)


def _precision(ranked: Floats, hits: NDArray[np.bool_]) -> float:
    """Average precision of hits sorted by descending score."""
    ends = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
    reached = hits.cumsum()[ends]
    gained = np.diff(reached, prepend=0)
    return float((gained * reached / (ends + 1)).sum() / reached[-1])


def set_excess(
    figure: SetFigure,
    champion: NDArray[Any],
    candidate: NDArray[Any],
    labels: Classes,
    *,
    classes: int,
    entities: Sequence[Any] | NDArray[Any] = (),
    times: NDArray[np.datetime64] | None = None,
    error: float = 0.05,
) -> Excess:
    """Decrease of a figure from champion to candidate, with one-sided bounds.

    Parameters
    ----------
    champion, candidate
        Class indices, shape (rows,), or for ``average_precision`` scores, shape (rows, classes).
    labels
        Class indices of the same rows.
    entities, times, error
        As for :func:`~outrider.assertions.statistics.loss_bounds.excess`.

    References
    ----------
    Shao & Tu, "The Jackknife and Bootstrap", 1995, section 2.3 (grouped jackknife). Errors not seen so far
    are bounded like the score interval does: by that many lost rows of the rarest class.
    """
    rows = len(labels)
    if not rows:
        return Excess(0.0, -1.0, 1.0, 0, 0, error)
    clusters = Clusters.of(entities, times, rows=rows)
    count = int(clusters.entities.max()) + 1
    both = champion, candidate
    value = float(_falls(figure, both, labels, classes, clusters.entities, 0)[0])
    if clusters.freedom < 1:
        return Excess(value, -1.0, 1.0, rows, count, error, stretch=clusters.stretch)
    found = clusters.combined(lambda numbers: _scatter(figure, both, labels, classes, numbers))
    reach = quantile_of(error, found.freedom) * math.sqrt(found.variance)
    predicted = [model if model.ndim == 1 else model.argmax(axis=1) for model in both]
    lost = ((predicted[0] == labels) & (predicted[1] != labels)).astype(np.float64)
    unseen = _unseen(figure, labels, lost, clusters.entities, error)
    # The farther the figure is on one side, the farther what is unseen may pull it to the other.
    up, down = (unseen / 2.0 * (1.0 + max(far, 0.0)) for far in (-value, value))
    high = min(value + up + math.hypot(reach, up), 1.0)
    low = max(value - down - math.hypot(reach, down), -1.0)
    deviation = max(reach, unseen) / max(quantile_of(error, clusters.freedom), 1e-9)
    variance = rows * deviation * deviation
    return Excess(value, low, high, rows, count, error, variance, stretch=clusters.stretch)


def _scatter(
    figure: SetFigure, both: tuple[Any, Any], labels: Classes, classes: int, of: NDArray[np.intp]
) -> Scatter:
    """Scatter of the decrease, by leaving out groups of clusters."""
    number = min(int(of.max()) + 1, GROUPS)
    falls = _falls(figure, both, labels, classes, of % number, number)
    moved = (number - 1) * falls[1:]  # by how much each group moves the figure, less what all do
    return Scatter(float(moved.var()) / (number - 1), freedom_of(moved))


def _falls(
    figure: SetFigure,
    both: tuple[Any, Any],
    labels: Classes,
    classes: int,
    groups: NDArray[np.intp],
    number: int,
) -> Floats:
    """Decrease over all rows, then without each of ``number`` groups, shape (number + 1,)."""
    if figure == "macro_f1":
        old, new = (_macro_f1s(predicted, labels, classes, groups, number) for predicted in both)
    else:
        old, new = (_average_precisions(scores, labels, groups, number) for scores in both)
    return np.asarray(old - new)


def _macro_f1s(
    answers: Classes, labels: Classes, classes: int, groups: NDArray[np.intp], number: int
) -> Floats:
    """Figure of all rows, then without each of ``number`` groups, shape (number + 1,)."""
    without = (groups != group for group in range(number))
    found = [macro_f1(answers[kept], labels[kept], classes) for kept in without]
    return np.array([macro_f1(answers, labels, classes), *found])


def _unseen(figure: SetFigure, labels: Classes, lost: Floats, units: NDArray[np.intp], error: float) -> float:
    """Upper bound of the decrease by errors not seen yet, of any rows or of the rarest class."""
    rows = np.bincount(labels)
    seen = np.flatnonzero(rows)
    rarest = labels == int(seen[np.argmin(rows[seen])])
    found = []
    for some, weight in ((np.ones(len(labels), np.bool_), 1.0), (rarest, len(seen) * _SHARE[figure])):
        own = np.unique(units[some], return_inverse=True)[1]
        hidden = quantile_of(error, max(int(own.max()), 1)) ** 2 * design_effect(lost[some], Clusters(own))
        found.append(hidden / (some.sum() + hidden) / weight)
    return float(max(found))
