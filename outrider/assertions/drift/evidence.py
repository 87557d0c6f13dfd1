"""P-values of changes, and Holm's correction over all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .counting import ColumnCounts
from .distances import chi_square, ks_of_counts, total_variation
from .variation import BlockScatter, Variation

Floats = NDArray[np.float64]
Change: TypeAlias = Literal["shape", "missing", "unseen"]
POWER = 0.8
"""Power with which the smallest detectable distance is detected."""
_POWER_QUANTILE = 0.8416
_RARE = 0.1
"""Share up to which event counts are also tested by the binomial distribution."""


@dataclass(frozen=True, slots=True)
class ChangeEvidence:
    """Size and p-value of one change of a column.

    Attributes
    ----------
    change
        ``shape``: the distribution; ``missing``, ``unseen``: the share of such values.
    distance
        Kolmogorov-Smirnov distance or total variation, or difference of shares; in [0, 1].
    floor
        Minimum distance that counts as drift: the requested one, or the estimation error of the reference if
        that is larger.
    chance
        Probability of such a distance without drift (p-value), in [0, 1].
    before, after
        Shares in reference and current; ``nan`` for the shape.
    """

    change: Change
    distance: float
    floor: float
    chance: float
    before: float = float("nan")
    after: float = float("nan")


def evidence_of(
    counts: ColumnCounts, variation: Variation, *, least: float, least_share: float
) -> list[ChangeEvidence]:
    """Evidence of each kind of change.

    Parameters
    ----------
    least, least_share
        Minimum distance of the shape, and minimum difference of shares, that count as drift, in [0, 1].
    """
    n, m = float(counts.reference.sum()), float(counts.current.sum())
    found = []
    if n and m:
        found.append(_shape(counts, variation, n, m, least))
    sizes = n + counts.missing[0], m + counts.missing[1]
    if all(sizes):
        found.append(_share("missing", counts.missing, sizes, variation.missing, least_share))
    if n and m:
        found.append(_share("unseen", counts.unseen, (n, m), variation.of_unseen(n, m), least_share))
    return found


def _shape(counts: ColumnCounts, variation: Variation, n: float, m: float, least: float) -> ChangeEvidence:
    from scipy.special import fdtrc

    scatter = variation.shape
    own = np.sqrt(scatter.dispersion / n)
    if counts.is_ordered:
        distance = ks_of_counts(counts.reference, counts.current)
        chance = _averaged(scatter, n, m, lambda spread: _of_distance(distance, spread, scatter.blocks))
        chance = chance if scatter.shows_windows(n, m) else 1.0
        # 1.36: the 0.95 quantile of Kolmogorov's distribution.
        return ChangeEvidence("shape", distance, max(least, 1.36 * own), chance)
    one, two = counts.merged()
    distance = total_variation(one, two)
    shares = one / one.sum()
    error = 0.5 * float(np.sqrt(2 / np.pi * shares * (1 - shares)).sum()) * own
    statistic, freedom = chi_square(one, two)
    # Beside one category all others are unseen, and judged as such: so few are no chi-square.
    is_known = np.count_nonzero(counts.reference) > 1 and scatter.shows_windows(n, m)
    if not freedom or not is_known:
        return ChangeEvidence("shape", distance, max(least, error), 1.0)
    # Pearson's statistic is of independent records: 1 / n + 1 / m is the variance in it.
    ratio = statistic * (1 / n + 1 / m) / freedom
    own_freedom = freedom / min(scatter.spread, freedom)
    within = own_freedom * max(1, scatter.blocks - 1)
    chance = _averaged(scatter, n, m, lambda spread: fdtrc(own_freedom, within, ratio / spread))
    return ChangeEvidence("shape", distance, max(least, error), chance)


def _averaged(scatter: BlockScatter, n: float, m: float, chance: Callable[[Floats], Floats]) -> float:
    """P-value averaged over the possible growth curves of the scatter.

    ``chance`` maps variances to p-values.
    """
    weights, variances = scatter.variances(n, m)
    return float(weights @ chance(variances))


def _of_distance(distance: float, variance: Floats, blocks: int) -> Floats:
    """P-value of a Kolmogorov-Smirnov distance, given the variance of a difference of shares."""
    from scipy.special import kolmogorov

    return _estimated(kolmogorov(distance / np.sqrt(variance)), 2 * (blocks - 1))


def _estimated(chance: Floats, freedom: int) -> Floats:
    """P-value corrected for a variance estimated with ``freedom`` degrees of freedom.

    Replaces the normal by Student's distribution at the deviation with p-value ``chance``.
    """
    from scipy.special import chdtri, fdtrc

    found: Floats = fdtrc(1, max(1, freedom), chdtri(1, np.maximum(chance, 1e-300)))
    return found


def _share(
    change: Change,
    events: tuple[float, float],
    sizes: tuple[float, float],
    scatter: BlockScatter,
    least: float,
) -> ChangeEvidence:
    """Evidence for a difference of two shares; one-sided (increase) for unseen values."""
    from scipy.special import fdtrc

    n, m = sizes
    before, after = events[0] / n, events[1] / m
    both = (events[0] + events[1]) / (n + m)
    if not 0 < both < 1 or (change == "unseen" and after <= before):
        return ChangeEvidence(change, abs(after - before), least, 1.0, before, after)
    ratio, within = (after - before) ** 2 / (both * (1 - both)), max(1, scatter.blocks - 1)
    chance = _averaged(scatter, n, m, lambda spread: fdtrc(1, within, ratio / spread))
    chance = chance / 2 if change == "unseen" else chance
    if both <= _RARE:
        chance = max(chance, _rare_chance(events, sizes, scatter.dispersion, is_one_sided=change == "unseen"))
    floor = max(least, 1.96 * float(np.sqrt(before * (1 - before) * scatter.dispersion / n)))
    return ChangeEvidence(change, abs(after - before), floor, chance, before, after)


def _rare_chance(
    events: tuple[float, float], sizes: tuple[float, float], dispersion: float, *, is_one_sided: bool
) -> float:
    """P-value of two event counts that are too small for a normal approximation.

    Przyborowski and Wilenski, "Homogeneity of results in testing samples from Poisson series", Biometrika
    1940.
    """
    from scipy.special import betainc

    one, two = (each / dispersion for each in events)
    total, side = one + two, sizes[1] / sum(sizes)
    up = float(betainc(two, one + 1, side)) if two > 0 else 1.0
    if is_one_sided:
        return up
    down = float(betainc(one, two + 1, 1 - side)) if one > 0 else 1.0
    return min(1.0, 2 * min(up, down)) if total else 1.0


def holm(chances: Sequence[float]) -> Floats:
    """Holm-adjusted p-values.

    Tests with a value of at most alpha are significant, with familywise error alpha.

    Parameters
    ----------
    chances
        P-values in [0, 1], under any dependence, shape (tests,).

    Returns
    -------
    ndarray
        In [0, 1], in the given order.

    References
    ----------
    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(chances, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    found = np.empty(len(values))
    found[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)))
    return found


def smallest_found(counts: ColumnCounts, variation: Variation, alpha: float) -> float:
    """Smallest distance of the shape detected with about 80 % power.

    Above 1.0 if none is. ``alpha`` is the error of this test, in (0, 1).
    """
    sizes = float(counts.reference.sum()), float(counts.current.sum())
    if not variation.shape.shows_windows(*sizes):
        return float("inf")
    weights, variances = variation.shape.variances(*sizes)
    low, high = 0.1 * float(np.sqrt(variances.min())), 20 * float(np.sqrt(variances.max()))
    while high > 1.01 * low:
        proven = float(np.sqrt(low * high))
        is_proven = float(weights @ _of_distance(proven, variances, variation.shape.blocks)) <= alpha
        low, high = (low, proven) if is_proven else (proven, high)
    return high + 0.5 * _POWER_QUANTILE * float(np.sqrt(weights @ variances))


def records_needed(variation: Variation, alpha: float, distance: float) -> int:
    """Approximate records per window that detect a distance.

    With 80 % power, if the scatter of blocks does not last longer than a block.
    """
    from scipy.special import kolmogi

    detected = float(kolmogi(alpha)) + 0.5 * _POWER_QUANTILE
    return int(np.ceil(2 * variation.shape.dispersion * (detected / distance) ** 2))
