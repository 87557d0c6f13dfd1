"""Bounds on one model's loss beyond another's, on the same rows.

Errors of rows of one entity, or of one stretch of time, are dependent, so they count less than independent
rows. The factor is estimated from the scatter of differences between clusters, with an upper bound within
entities. If no rows differ, an intra-class correlation of ``MOST_CORRELATED`` is assumed. Both bounds are
one-sided, each with the given error.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .clusters import Clusters, Floats, freedom_of

MOST_CORRELATED = 0.5
"""Assumed intra-class correlation if too few rows differ for an estimate."""
_DOUBT, _DOUBT_UNBOUNDED = 0.3, 0.1
"""Error probability of the upper bound on the scatter within entities, for bounded and unbounded losses."""
_POWER = 0.9
_STEPS = 50
_FARTHEST = 1e9
_LARGEST = 1e100
FloatOrNull: TypeAlias = Annotated[float, "null in JSON"]
"""Float that may be infinite or NaN; JSON shows null."""


@dataclass(frozen=True, slots=True)
class Excess:
    """Candidate's mean loss less the champion's, with two one-sided bounds.

    In the loss's own unit, or as a share of the champion's loss.
    """

    value: FloatOrNull
    low: FloatOrNull
    high: FloatOrNull
    rows: int
    entities: int
    error: float
    """Error probability of each bound."""
    variance: float = 0.0
    """Variance of one row's difference."""
    effect: float = 1.0
    """Design effect: number of rows that count as one independent row."""
    stretch: str = ""
    """Period to which the bounds are limited; empty if the data span enough days."""

    def in_steps(self, step: float) -> Self:
        """Excess rounded to multiples of ``step``, its bounds outwards."""

        def rounded(share: float, how: Callable[[float], int]) -> float:
            return round(how(round(share / step, 6)) * step, 9) if math.isfinite(share) else share

        return replace(
            self,
            value=rounded(self.value, round),
            low=rounded(self.low, math.floor),
            high=rounded(self.high, math.ceil),
            variance=float(f"{self.variance:.2g}"),
            effect=float(f"{self.effect:.2g}"),
        )

    @property
    def width(self) -> float:
        """Larger distance of a bound from the value."""
        return max(self.high - self.value, self.value - self.low)

    def rows_needed(self, margin: float, *, error: float) -> int:
        """Number of rows that distinguish ``margin`` from 0 with 90 % power.

        Assumes further entities like these, one-sided bounds with ``error``, a normal distribution, and
        Wilson's correction for rare differences.
        """
        from scipy.special import ndtri

        if margin <= 0:
            return 0
        quantile, power = -float(ndtri(error)), float(ndtri(_POWER))
        deviation, rare = math.sqrt(self.variance), quantile**2 / 2
        # margin = power s / sqrt(n) + rare / n + quantile sqrt(s^2 / n + rare / 2n^2), in x = 1 / sqrt(n)
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            x = (low + high) / 2
            reach = power * deviation * x + rare * x * x
            reach += quantile * x * math.sqrt(self.variance + rare * x * x / 2)
            low, high = (low, x) if reach > margin else (x, high)
        return math.ceil(self.effect / (low * low)) if low else 0


def excess(
    champion: Floats,
    candidate: Floats,
    *,
    entities: Sequence[Any] | NDArray[Any] = (),
    times: NDArray[np.datetime64] | None = None,
    error: float = 0.05,
) -> Excess:
    """Mean difference of losses in [0, 1], with one-sided bounds.

    Parameters
    ----------
    champion, candidate
        Losses, shape (rows,).
    entities
        Entity of each row, None for a row without one; empty if no row has one.
    times
        Event time of each row; None if unknown.
    error
        Error probability of each bound.

    References
    ----------
    Tango, "Equivalence test and confidence interval for the difference in proportions for the paired-sample
    design", 1998 (score bounds; with fractional losses they are wider than needed); Kish, "Survey Sampling",
    1965, section 5.4 (design effect).

    Examples
    --------
    >>> import numpy as np
    >>> right, wrong = np.zeros(1000), (np.arange(1000) < 10).astype(float)
    >>> found = excess(wrong, right)
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (-0.01, -0.017, -0.005)
    """
    difference = np.asarray(candidate, np.float64) - champion
    rows = len(difference)
    if not rows:
        return Excess(0.0, -1.0, 1.0, 0, 0, error)
    clusters = Clusters.of(entities, times, rows=rows)
    lost, won = (np.clip(sign * difference, 0, None) for sign in (1, -1))
    high, low = _highest(lost, won, clusters, error), -_highest(won, lost, clusters, error)
    effect = max(design_effect(of, clusters, doubt=0.0) for of in (lost, won))
    count, variance = int(clusters.entities.max()) + 1, float(difference.var())
    value = float(difference.mean())
    return Excess(value, low, high, rows, count, error, variance, effect, clusters.stretch)


def most_shown(entities: NDArray[Any], error: float, *, times: NDArray[np.datetime64] | None = None) -> float:
    """Largest loss that rows of these entities and times can prove.

    The lower bound if all rows were lost; at most 0 if no loss could be proven.

    Examples
    --------
    >>> import numpy as np
    >>> most_shown(np.array(["a"] * 400), 0.05), round(most_shown(np.arange(400), 0.05), 2)
    (-1.0, 0.99)
    """
    lost = np.ones(len(entities))
    return excess(np.zeros(len(entities)), lost, entities=entities, times=times, error=error).low


def relative_excess(
    champion: Floats,
    candidate: Floats,
    *,
    entities: Sequence[Any] | NDArray[Any] = (),
    times: NDArray[np.datetime64] | None = None,
    error: float = 0.05,
) -> Excess:
    """Relative difference of unbounded losses, with one-sided bounds.

    In units of the champion's mean loss. The bounds are Fieller's: the shares for which the mean of candidate
    - (1 + share) champion does not differ significantly from 0 (Fieller, "Some problems in interval
    estimation", 1954). If the champion's loss is 0, any proven loss is infinitely more, and the upper bound
    is infinite.

    Parameters
    ----------
    champion, candidate
        Losses >= 0, shape (rows,).
    entities, times, error
        As for :func:`excess`.

    Examples
    --------
    >>> import numpy as np
    >>> losses = np.random.default_rng(0).exponential(size=2000)
    >>> found = relative_excess(losses, 1.1 * losses)
    >>> round(found.value, 3), round(found.high, 3)
    (0.1, 0.1)
    """
    rows = len(champion)
    if not rows:
        return Excess(0.0, -1.0, math.inf, 0, 0, error)
    clusters = Clusters.of(entities, times, rows=rows)
    old, new = np.asarray(champion, np.float64), np.asarray(candidate, np.float64)
    count = int(clusters.entities.max()) + 1
    if not (np.isfinite(old).all() and np.isfinite(new).all()):
        raise ValueError("losses: finite numbers expected, found others; leave such rows out")
    top = max(float(old.max()), float(new.max()))
    if top > _LARGEST:  # sums and squares of such would have no number
        old, new = old / top, new / top
    total = float(old.sum())
    if total <= float(new.sum()) / _FARTHEST:  # any loss that is shown is beyond every share
        value = 0.0 if float(new.sum()) <= 0.0 else math.inf
        low = math.inf if _mean_bound(-new, clusters, error) < 0.0 else -1.0
        return Excess(value, low, math.inf, rows, count, error, stretch=clusters.stretch)
    value = float(new.sum()) / total - 1.0
    high = _crossing(lambda share: _mean_bound(new - (1.0 + share) * old, clusters, error) <= 0.0, value)
    low = -1.0
    if high is not None:
        found = _crossing(
            lambda share: _mean_bound((1.0 - share) * old - new, clusters, error) <= 0.0, -value
        )
        low = -1.0 if found is None else max(-found, -1.0)
    beyond = (new - (1.0 + value) * old) * (rows / total)
    effect = design_effect(beyond, clusters, doubt=0.0)
    high = math.inf if high is None else high
    return Excess(value, low, high, rows, count, error, float(beyond.var()), effect, clusters.stretch)


# ---- scatter of clusters ---------------------------------------------------------------------------------


def _highest(lost: Floats, won: Floats, clusters: Clusters, error: float) -> float:
    """Upper bound of the mean of lost - won, both in [0, 1]."""
    if clusters.freedom < 1:
        return 1.0
    effect = max(design_effect(of, clusters) for of in (lost, won))
    quantile = quantile_of(error, clusters.freedom)
    score = _tango(float(lost.sum()) / effect, float(won.sum()) / effect, len(lost) / effect, quantile)
    return min(max(_mean_by_clusters(lost - won, clusters, error), score), 1.0)


def _mean_by_clusters(values: Floats, clusters: Clusters, error: float) -> float:
    """Upper bound of the mean, from the scatter of the clusters."""
    mean = float(values.mean())
    found = clusters.scatter(values - mean)
    if found.variance <= 0.0:
        return mean
    return mean + quantile_of(error, found.freedom) * math.sqrt(found.variance) / len(values)


def design_effect(values: Floats, clusters: Clusters, *, doubt: float = _DOUBT) -> float:
    """Design effect: number of rows that count as one independent row.

    Variance of the mean, relative to independent rows. ``doubt`` is the error probability of an upper bound
    on the scatter within entities; 0 uses its estimate.
    """
    rows = np.bincount(clusters.entities).astype(np.float64)
    most = 1.0 + (float(np.square(rows).sum()) / len(values) - 1.0) * MOST_CORRELATED
    residuals = values - values.mean()
    alone = float(np.square(residuals).sum())
    if len(rows) < 2 or alone <= 0.0:
        return most
    own, both = clusters.by_entity(residuals), clusters.scatter(residuals)
    larger = own.freedom / _chi2_quantile(doubt, own.freedom) if doubt else 1.0
    within = min(max(larger * own.variance / alone, 1.0), most)
    return within * max(both.variance / max(own.variance, alone), 1.0)


def bound_of_mean(values: Floats, error: float) -> float:
    """Distance of the mean's one-sided bound, for independent values.

    If few values carry the scatter, their kurtosis lowers the degrees of freedom.
    """
    scatter = float(values.var())
    if scatter <= 0.0:
        return 0.0
    return quantile_of(error, freedom_of(values)) * math.sqrt(scatter / (len(values) - 1))


def _mean_bound(values: Floats, clusters: Clusters, error: float) -> float:
    """Upper bound of the mean of unbounded values; adds one more row as bad as the worst."""
    rows = len(values)
    if clusters.freedom < 1:
        return math.inf
    mean, effect = float(values.mean()), design_effect(values, clusters, doubt=_DOUBT_UNBOUNDED)
    single = mean + quantile_of(error, clusters.freedom) * math.sqrt(
        float(values.var()) * effect / max(rows - 1, 1)
    )
    worst = max(float(values.max()) - mean, 0.0) / (rows + 1)
    return max(single, _mean_by_clusters(values, clusters, error)) + worst


def _tango(lost: float, won: float, rows: float, quantile: float) -> float:
    """Tango's upper score bound of (lost - won) / rows."""
    low, high = (lost - won) / rows, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        linear = (2 * rows - lost + won) * middle - lost - won
        free = -won * middle * (1.0 - middle)
        share = (math.sqrt(max(linear * linear - 8.0 * rows * free, 0.0)) - linear) / (4.0 * rows)
        variance = rows * (2.0 * share + middle * (1.0 - middle))
        if lost - won - rows * middle < -quantile * math.sqrt(max(variance, 1e-300)):
            high = middle
        else:
            low = middle
    return high


def _crossing(is_above: Callable[[float], bool], start: float) -> float | None:
    """Smallest share from ``start`` on for which ``is_above`` holds; None if there is none."""
    step = first = 1e-3 * max(abs(start), 1.0)
    while not is_above(start + step):
        step *= 4.0
        if step > _FARTHEST * first:
            return None
    low, high = start, start + step
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return high


def quantile_of(error: float, freedom: float) -> float:
    """Quantile of Student's t that is exceeded with probability ``error``."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1.0 - error))


def _chi2_quantile(error: float, freedom: float) -> float:
    from scipy.special import chdtri

    return float(chdtri(freedom, 1.0 - error))
