"""Bounds on one model's loss beyond another's, on the same rows.

Rows of one entity err together, so an entity counts for less than its rows do. How much less is estimated
from above: by the scatter of the entities where differences are many, by an intra-class correlation of
``MOST_CORRELATED`` where they are few. Both bounds are one-sided, each with the given error.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_CORRELATED = 0.5
"""Intra-class correlation of differences that are too few to show theirs."""
_FEW = 2.0
"""Differences an entity, below which their scatter tells nothing."""
_POWER = 0.9
_STEPS = 50
_FARTHEST = 1e9
_LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class Excess:
    """Mean loss of the candidate beyond the champion's.

    ``value`` with its two one-sided bounds: in the loss's own unit, or as a share of the champion's loss.
    """

    value: float
    low: float
    high: float
    rows: int
    entities: int
    error: float
    """Of each bound."""
    variance: float = 0.0
    """Of one row's difference."""
    effect: float = 1.0
    """Rows of these entities that tell as much as one of its own."""

    def in_steps(self, step: float) -> Self:
        """Excess rounded to multiples of a step, its bounds outwards."""

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
        """Number of rows whose bounds tell ``margin`` from 0.

        Nine times in ten, with another ``error``, from more entities like these. As of a normal distribution,
        with Wilson's correction for rare differences.
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
    champion: Floats, candidate: Floats, *, entities: Sequence[Any] | NDArray[Any] = (), error: float = 0.05
) -> Excess:
    """Excess of losses between 0 and 1, such as wrong or right.

    Parameters
    ----------
    champion, candidate
        Losses, shape (rows,).
    entities
        Entity of each row, None for a row of its own; none if every row is.
    error
        Probability with which each bound may be wrong.

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
    units = entity_numbers(entities, len(champion))
    difference = np.asarray(candidate, np.float64) - champion
    if not len(difference):
        return Excess(0.0, -1.0, 1.0, 0, 0, error)
    lost, won = (_Sums.of(np.clip(sign * difference, 0, None), units) for sign in (1, -1))
    high, low = _highest(lost, won, error), -_highest(won, lost, error)
    effect = max(_design_effect(of, is_few=of.is_few) for of in (lost, won))
    variance, entities_seen = float(difference.var()), len(lost.rows)
    return Excess(
        float(difference.mean()), low, high, len(difference), entities_seen, error, variance, effect
    )


def most_shown(entities: NDArray[Any], error: float) -> float:
    """Loss that rows of these entities can show at most.

    The lower bound had all of them been lost; at most 0 where no loss could be shown.

    Examples
    --------
    >>> import numpy as np
    >>> most_shown(np.array(["a"] * 400), 0.05), round(most_shown(np.arange(400), 0.05), 2)
    (-1.0, 0.99)
    """
    lost = np.ones(len(entities))
    return excess(np.zeros(len(entities)), lost, entities=entities, error=error).low


def relative_excess(
    champion: Floats, candidate: Floats, *, entities: Sequence[Any] | NDArray[Any] = (), error: float = 0.05
) -> Excess:
    """Excess of unbounded losses, as a share of the champion's mean loss.

    The bounds are Fieller's: the shares at which the mean of candidate - (1 + share) champion is not told
    from 0 (Fieller, "Some problems in interval estimation", 1954). Where the champion loses nothing, any loss
    that is shown is infinitely more, and no share bounds it from above.

    Parameters
    ----------
    champion, candidate
        Losses >= 0, shape (rows,).
    entities, error
        As of :func:`excess`.

    Examples
    --------
    >>> import numpy as np
    >>> losses = np.random.default_rng(0).exponential(size=2000)
    >>> found = relative_excess(losses, 1.1 * losses)
    >>> round(found.value, 3), round(found.high, 3)
    (0.1, 0.1)
    """
    units = entity_numbers(entities, len(champion))
    rows = len(champion)
    if not rows:
        return Excess(0.0, -1.0, math.inf, 0, 0, error)
    old, new = np.asarray(champion, np.float64), np.asarray(candidate, np.float64)
    count = int(units.max()) + 1
    top = max(float(old.max()), float(new.max()))
    if top > _LARGEST:  # sums and squares of such would have no number
        old, new = old / top, new / top
    total = float(old.sum())
    if total <= float(new.sum()) / _FARTHEST:  # any loss that is shown is beyond every share
        value = 0.0 if float(new.sum()) <= 0.0 else math.inf
        low = math.inf if _mean_bound(-new, units, error) < 0.0 else -1.0
        return Excess(value, low, math.inf, rows, count, error)
    value = float(new.sum()) / total - 1.0
    high = _crossing(lambda share: _mean_bound(new - (1.0 + share) * old, units, error) <= 0.0, value)
    low = -1.0
    if high is not None:
        found = _crossing(lambda share: _mean_bound((1.0 - share) * old - new, units, error) <= 0.0, -value)
        low = -1.0 if found is None else max(-found, -1.0)
    beyond = (new - (1.0 + value) * old) * (rows / total)
    effect = _design_effect(_Sums.of(beyond, units), is_few=False)
    high = math.inf if high is None else high
    return Excess(value, low, high, rows, count, error, float(beyond.var()), effect)


# ---- sums by entity -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sums:
    """Values >= 0 by entity: rows, sums, and the variance of one row."""

    rows: Floats
    sums: Floats
    variance: float

    @classmethod
    def of(cls, values: Floats, units: NDArray[np.intp]) -> "_Sums":
        rows: Floats = np.bincount(units).astype(np.float64)
        return cls(rows, np.bincount(units, values).astype(np.float64), float(values.var()))

    @property
    def is_few(self) -> bool:
        """True where the sums are too small to scatter as they would."""
        return float(self.sums.sum()) < _FEW * len(self.rows)


def entity_numbers(entities: Sequence[Any] | NDArray[Any], rows: int) -> NDArray[np.intp]:
    """Number of each row's entity; rows without one get their own."""
    if not len(entities):
        return np.arange(rows)
    places: dict[Any, int] = {}
    keys = ((row,) if name is None or name != name else name for row, name in enumerate(entities))
    return np.array([places.setdefault(key, len(places)) for key in keys], dtype=np.intp)


def _highest(lost: _Sums, won: _Sums, error: float) -> float:
    """Upper bound of the mean of lost - won, both in [0, 1]."""
    rows, total = lost.rows, float(lost.rows.sum())
    if len(rows) < 2:
        return 1.0
    quantile = quantile_of(error, len(rows) - 1)
    sums = lost.sums - won.sums
    scattered = _mean_by_entities(sums, rows, error)
    effect = max(_design_effect(of, error, is_few=of.is_few) for of in (lost, won))
    score = _tango(float(lost.sums.sum()) / effect, float(won.sums.sum()) / effect, total / effect, quantile)
    return min(max(scattered, score), 1.0)


def _mean_by_entities(sums: Floats, rows: Floats, error: float) -> float:
    """Upper bound of the mean, by the scatter of the entities."""
    mean = float(sums.sum() / rows.sum())
    return mean + bound_of_mean((sums - rows * mean) * (len(rows) / float(rows.sum())), error)


def design_effect(values: Floats, units: NDArray[np.intp], error: float) -> float:
    """Upper bound of the rows that tell as much as one alone.

    Parameters
    ----------
    values
        Losses >= 0 of the rows.
    units
        Number of each row's entity.
    """
    of = _Sums.of(values, units)
    return _design_effect(of, error, is_few=of.is_few)


def bound_of_mean(values: Floats, error: float) -> float:
    """Distance of the mean's one-sided bound, from independent values.

    Where few values carry the scatter it is known the worse: the degrees of freedom follow from its kurtosis
    (Satterthwaite, "An approximate distribution of estimates of variance components", 1946).
    """
    squares, count = np.square(values - values.mean()), len(values)
    scatter = float(squares.sum())
    if scatter <= 0.0:
        return 0.0
    kurtosis = max(count * float(np.square(squares).sum()) / scatter**2 - 3.0, 0.0)
    quantile = quantile_of(error, 2.0 / (2.0 / (count - 1) + kurtosis / count))
    return quantile * math.sqrt(scatter / (count - 1) / count)


def _design_effect(of: _Sums, error: float | None = None, *, is_few: bool) -> float:
    """Variance of the mean in that of as many independent rows, or its upper bound with an error."""
    typical = float(np.square(of.rows).sum() / of.rows.sum())
    if typical <= 1.0:
        return 1.0
    most = 1.0 + (typical - 1.0) * MOST_CORRELATED
    if is_few or of.variance <= 0.0:
        return most
    mean = float(of.sums.sum() / of.rows.sum())
    scatter = float((np.square(of.sums - of.rows * mean) / of.rows).sum()) / of.variance
    freedom = len(of.rows) - 1
    expected = freedom if error is None else _chi2_quantile(error, freedom)
    return min(max(scatter / max(expected, 1e-9), 1.0), most)


def _mean_bound(values: Floats, units: NDArray[np.intp], error: float) -> float:
    """Upper bound of a mean of any reals: one more row as bad as the worst is supposed."""
    of, rows = _Sums.of(values, units), len(values)
    if len(of.rows) < 2:
        return math.inf
    quantile, mean = quantile_of(error, len(of.rows) - 1), float(values.mean())
    effect = _design_effect(of, error, is_few=False)
    single = mean + quantile * math.sqrt(of.variance * effect / max(rows - 1, 1))
    worst = max(float(values.max()) - mean, 0.0) / (rows + 1)
    return max(single, _mean_by_entities(of.sums, of.rows, error)) + worst


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
    """Least share from ``start`` on that a bound allows; None for none."""
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
    """Quantile of Student's t that is exceeded with an error."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1.0 - error))


def _chi2_quantile(error: float, freedom: int) -> float:
    from scipy.special import chdtri

    return float(chdtri(freedom, 1.0 - error))
