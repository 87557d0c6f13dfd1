"""Group rates, differences and ratios with intervals, from weighted records.

All figures are computed from a few sums (:class:`Sums`), so that one formula serves tables of groups and
sliding windows.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .wilson import wilson_limits

Floats = NDArray[np.float64]
LEAST_ENTITIES = 10.0
"""Minimum effective number of entities for an interval; the spread between fewer is unknown."""


class Limits(NamedTuple):
    """Estimates with the two ends of their intervals, arrays of one shape. NaN, 0 and 1 without a record."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the records of each group, arrays of one shape.

    Attributes
    ----------
    rows
        Number of records.
    weight, weight2
        Sums of the weights and of their squares.
    hit, hit2
        The same over the records with the property (selected, right …).
    heaviest
        Largest weight over all groups: a group without such a record may lack it by chance.
    """

    rows: Floats
    weight: Floats
    weight2: Floats
    hit: Floats
    hit2: Floats
    heaviest: Floats
    entities: "EntitySums | None" = None
    """Set if some entities have several records, which are dependent."""

    @classmethod
    def of(
        cls,
        hits: ArrayLike,
        weights: ArrayLike,
        codes: NDArray[np.intp],
        groups: int,
        *,
        entities: NDArray[np.intp] | None = None,
    ) -> "Sums":
        """Sums by group of records with group numbers ``codes``, shape (records,).

        ``entities`` numbers the entity of each record; None if each is its own.
        """
        y, w = np.asarray(hits, dtype=np.float64), np.asarray(weights, dtype=np.float64)
        terms = (np.ones(len(w)), w, w * w, w * y, w * w * y)
        rows, weight, weight2, hit, hit2 = (
            np.bincount(codes, weights=term, minlength=groups).astype(np.float64) for term in terms
        )
        heaviest = np.full(groups, w.max(initial=0.0))
        clustered = None if entities is None else EntitySums.of(y, w, codes, groups, entities)
        return cls(rows, weight, weight2, hit, hit2, heaviest, clustered)

    def and_one(self, weight: Floats, *, hit: bool) -> "Sums":
        """Sums with one additional record in each group."""
        return Sums(
            self.rows + (weight > 0),
            self.weight + weight,
            self.weight2 + weight**2,
            self.hit + weight * hit,
            self.hit2 + weight**2 * hit,
            np.maximum(self.heaviest, weight),
        )


@dataclass(frozen=True, slots=True)
class EntitySums:
    """Sums of squared entity totals per group; arrays of one shape.

    Attributes
    ----------
    entities
        Number of entities.
    weight2, hit2, both
        Sums of squares of the entities' weights and hits, and of their products.
    heaviest
        Largest weight of an entity in the group.
    """

    entities: Floats
    weight2: Floats
    hit2: Floats
    both: Floats
    heaviest: Floats

    @classmethod
    def of(
        cls, y: Floats, w: Floats, codes: NDArray[np.intp], groups: int, entities: NDArray[np.intp]
    ) -> "EntitySums | None":
        """Sums by group; None if no entity has two records."""
        pairs, inverse = np.unique(np.stack([codes, entities], axis=1), axis=0, return_inverse=True)
        if len(pairs) == len(codes):
            return None
        inverse, group = inverse.ravel(), pairs[:, 0]
        weight = np.bincount(inverse, weights=w, minlength=len(pairs))
        hit = np.bincount(inverse, weights=w * y, minlength=len(pairs))
        terms = ((weight > 0).astype(np.float64), weight**2, hit**2, weight * hit)
        count, weight2, hit2, both = (
            np.bincount(group, weights=term, minlength=groups).astype(np.float64) for term in terms
        )
        heaviest = np.zeros(groups)
        np.maximum.at(heaviest, group, weight)
        return cls(count, weight2, hit2, both, heaviest)

    def effective(self, weight: Floats) -> Floats:
        """Effective number of entities, of equal weight."""
        return np.where(self.weight2 > 0, weight**2 / np.where(self.weight2 > 0, self.weight2, 1.0), 0.0)

    def and_one(self, weight: Floats, *, hit: bool) -> "EntitySums":
        """Sums with one additional entity in each group."""
        square = weight**2
        return EntitySums(
            self.entities + (weight > 0),
            self.weight2 + square,
            self.hit2 + square * hit,
            self.both + square * hit,
            np.maximum(self.heaviest, weight),
        )


def shares(sums: Sums, *, confidence: float | Floats = 0.95) -> Limits:
    """Share of each group with Wilson's interval.

    With equal weights this is Wilson's interval. With unequal ones the number of records is replaced by an
    effective number: the smaller of Kish's and that of the linearised variance of the ratio estimator (Kish's
    if the share is 0 or 1). Each limit then adds one record of the largest weight, a hit for the upper and a
    miss for the lower, as :func:`.estimation.estimate_share` does: rarely captured records have the largest
    weights.

    If entities have several records, the variance is that between entities (linearised, with Student's
    quantile for their effective number), and each limit adds one entity of average weight. With fewer than
    :data:`LEAST_ENTITIES` effective entities the interval is [0, 1].

    References
    ----------
    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927. Kish, "Survey
    Sampling", 1965, section 8.2. Korn & Graubard, "Confidence intervals for proportions with small expected
    number of positive counts estimated from survey data", Survey Methodology 1998 (effective sample size and
    Student's quantile).

    Examples
    --------
    >>> weights = np.ones(100)
    >>> found = shares(Sums.of(np.arange(100) < 20, weights, np.zeros(100, dtype=np.intp), 1))
    >>> [round(float(each[0]), 3) for each in found]
    [0.2, 0.133, 0.289]
    """
    known = sums.weight > 0
    share = np.where(known, np.minimum(sums.hit / np.where(known, sums.weight, 1.0), 1.0), np.nan)
    all_equal = _is_equal(sums) & np.isclose(sums.weight, sums.rows * sums.heaviest, rtol=1e-9)
    extra = np.where(all_equal | ~known, 0.0, sums.heaviest)
    low, _ = _limits(sums.and_one(extra, hit=False), confidence)
    _, high = _limits(sums.and_one(extra, hit=True), confidence)
    # At the ends one limit is exact; rounding must not push it past the share itself.
    low = np.where(share <= 0, 0.0, np.clip(low, 0.0, share))
    high = np.where(share >= 1, 1.0, np.clip(high, share, 1.0))
    if sums.entities is not None:
        between = _between_entities(sums, sums.entities, share, confidence)
        low, high = np.fmin(low, between.low), np.fmax(high, between.high)
    return Limits(share, np.where(known, low, 0.0), np.where(known, high, 1.0))


def _limits(sums: Sums, confidence: float | Floats) -> tuple[Floats, Floats]:
    """Wilson's limits for an effective number of records; [0, 1] for groups without records."""
    weight = np.where(sums.weight > 0, sums.weight, 1.0)
    p = np.minimum(sums.hit / weight, 1.0)
    return wilson_limits(p, *_effective(sums, p, weight, confidence))


def too_few(sums: Sums) -> NDArray[np.bool_]:
    """Mask of the groups with too few entities for an interval."""
    if sums.entities is None:
        return np.zeros(np.shape(sums.rows), dtype=np.bool_)
    return (sums.entities.effective(sums.weight) < LEAST_ENTITIES) & (sums.entities.entities < sums.rows)


def _between_entities(sums: Sums, entities: EntitySums, share: Floats, confidence: float | Floats) -> Limits:
    """Wilson's limits for the equivalent number of records with distinct entities."""
    average = np.where(entities.entities > 0, sums.weight / np.maximum(entities.entities, 1.0), 0.0)
    low, _ = _entity_limits(sums.weight + average, sums.hit, entities.and_one(average, hit=False), confidence)
    hit = sums.hit + average
    _, high = _entity_limits(sums.weight + average, hit, entities.and_one(average, hit=True), confidence)
    silent = too_few(sums)
    low = np.where(silent | (share <= 0), 0.0, np.clip(low, 0.0, share))
    high = np.where(silent | (share >= 1), 1.0, np.clip(high, share, 1.0))
    return Limits(share, low, high)


def _entity_limits(
    weight: Floats, hit: Floats, entities: EntitySums, confidence: float | Floats
) -> tuple[Floats, Floats]:
    from scipy.stats import t

    weight = np.where(weight > 0, weight, 1.0)
    p = np.clip(hit / weight, 0.0, 1.0)
    count, effective = entities.entities, np.maximum(entities.effective(weight), 1.0)
    spread = np.maximum(entities.hit2 - 2 * p * entities.both + p * p * entities.weight2, 0.0) / weight**2
    spread = spread * count / np.maximum(count - 1, 1.0)
    inside = (p > 0) & (p < 1) & (spread > 0)
    n = np.where(inside, p * (1 - p) / np.where(inside, spread, 1.0), effective)
    n = np.maximum(n, 1.0)
    return wilson_limits(p, n, t.ppf(0.5 + np.asarray(confidence) / 2, np.maximum(effective - 1, 1.0)))


def _kish(sums: Sums) -> Floats:
    return np.where(sums.weight2 > 0, sums.weight**2 / np.where(sums.weight2 > 0, sums.weight2, 1.0), 1.0)


def _is_equal(sums: Sums) -> NDArray[np.bool_]:
    """Mask of the groups whose records have equal weights."""
    return np.isclose(_kish(sums), sums.rows, rtol=1e-9)


def _effective(
    sums: Sums, share: Floats, weight: Floats, confidence: float | Floats
) -> tuple[Floats, Floats]:
    """Effective records, and the quantile: normal if all weights are equal, else Student's."""
    kish, is_equal, normal = _kish(sums), _is_equal(sums), _normal(confidence)
    if is_equal.all():
        return np.maximum(sums.rows, 1.0), np.broadcast_to(normal, share.shape)
    from scipy.stats import t

    missed2 = np.maximum(sums.weight2 - sums.hit2, 0.0)
    spread = (sums.hit2 * (1 - share) ** 2 + missed2 * share**2) / weight**2
    spread = spread * sums.rows / np.maximum(sums.rows - 1, 1.0)
    inside = (share > 0) & (share < 1) & (spread > 0)
    by_variance = share * (1 - share) / np.where(inside, spread, 1.0)
    n = np.where(is_equal, sums.rows, np.where(inside, np.minimum(kish, by_variance), kish))
    n = np.maximum(n, 1.0)
    student = t.ppf(0.5 + np.asarray(confidence) / 2, np.maximum(n - 1, 1.0))
    return n, np.where(is_equal, normal, student)


def _normal(confidence: float | Floats) -> Floats:
    if np.ndim(confidence) == 0:
        return np.asarray(NormalDist().inv_cdf(0.5 + float(confidence) / 2))
    from scipy.stats import norm

    return np.asarray(norm.ppf(0.5 + np.asarray(confidence) / 2))


def differences(first: Limits, second: Limits) -> Limits:
    """Difference ``first - second`` with an interval.

    The interval combines the intervals of the two.

    References
    ----------
    Newcombe, "Interval estimation for the difference between independent proportions", Statistics in Medicine
    1998, method 10. Zou & Donner, "Construction of confidence limits about effect measures", Statistics in
    Medicine 2008: the same for any two independent estimates with limits.

    Examples
    --------
    >>> codes = np.repeat([0, 1], [70, 80])  # 56 of 70 and 48 of 80, Newcombe's first example
    >>> both = shares(Sums.of(np.r_[np.arange(70) < 56, np.arange(80) < 48], np.ones(150), codes, 2))
    >>> first, second = (Limits(*(each[[at]] for each in both)) for at in (0, 1))
    >>> [round(float(each[0]), 4) for each in differences(first, second)]
    [0.2, 0.0524, 0.3339]
    """
    value = first.value - second.value
    low = value - np.hypot(first.value - first.low, second.high - second.value)
    high = value + np.hypot(first.high - first.value, second.value - second.low)
    known = ~np.isnan(value)
    return Limits(
        value, np.where(known, np.maximum(low, -1.0), -1.0), np.where(known, np.minimum(high, 1.0), 1.0)
    )


def ratios(first: Limits, second: Limits) -> Limits:
    """``first / second`` of two shares, with an interval.

    The interval combines the intervals of the two.

    References
    ----------
    Donner & Zou, "Closed-form confidence intervals for functions of the normal mean and standard deviation",
    Statistical Methods in Medical Research 2012, eq. 8 (MOVER-R). Unlike the interval of the log ratio it
    exists for 0 selected records, too.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        value = first.value / second.value
        product = first.value * second.value
        low = _ratio_end(product, first.low * (2 * first.value - first.low), second, second.high, -1.0)
        high = _ratio_end(product, first.high * (2 * first.value - first.high), second, second.low, 1.0)
    low = np.where(np.isnan(low), 0.0, np.maximum(low, 0.0))
    high = np.where(np.isnan(high) | (second.low <= 0), np.inf, high)
    return Limits(value, np.fmin(low, value), np.fmax(high, value))


def _ratio_end(product: Floats, own: Floats, second: Limits, end: Floats, sign: float) -> Floats:
    other = end * (2 * second.value - end)
    inside = np.maximum(product * product - own * other, 0.0)
    root: Floats = (product + sign * np.sqrt(inside)) / other
    return root
