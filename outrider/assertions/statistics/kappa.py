"""Agreement of two raters beyond chance (Cohen's kappa)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .loss_bounds import FloatOrNull
from .wilson import wilson_interval

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """Agreement of two raters over ``n`` subjects.

    Undefined figures are NaN.

    Attributes
    ----------
    accuracy, accuracy_low, accuracy_high
        Share of equal ratings with its 95 % Wilson interval.
    kappa, kappa_low, kappa_high
        Cohen's kappa (1 perfect, 0 as by chance) with its 95 % bootstrap interval.
    """

    n: int
    accuracy: FloatOrNull
    accuracy_low: FloatOrNull
    accuracy_high: FloatOrNull
    kappa: FloatOrNull
    kappa_low: FloatOrNull
    kappa_high: FloatOrNull


def agreement(first: Sequence[Hashable], second: Sequence[Hashable], *, seed: int = 0) -> RaterAgreement:
    """Agreement of two raters on the same subjects.

    Parameters
    ----------
    first, second
        Ratings, one per subject, equal in length.
    seed
        Seed of the bootstrap.

    References
    ----------
    Cohen, "A Coefficient of Agreement for Nominal Scales", Educational and Psychological Measurement, 1960.

    Examples
    --------
    >>> found = agreement(["a"] * 45 + ["b"] * 15 + ["a"] * 25 + ["b"] * 15, ["a"] * 60 + ["b"] * 40)
    >>> found.accuracy, round(found.kappa, 4)
    (0.6, 0.1304)
    """
    import pandas as pd

    if len(first) != len(second):
        raise ValueError(f"one rating of each per subject expected, got {len(first)} and {len(second)}")
    n = len(first)
    if not n:
        return RaterAgreement(0, *[float("nan")] * 6)
    codes, classes = pd.factorize(np.array([*first, *second], dtype=object))
    table = np.zeros((len(classes), len(classes)))
    np.add.at(table, (codes[:n], codes[n:]), 1)
    share = float(np.trace(table)) / n
    low, high = wilson_interval(float(np.trace(table)), n)
    drawn = np.random.default_rng(seed).multinomial(n, table.ravel() / n, size=RESAMPLES)
    resampled = _kappa(drawn.reshape(RESAMPLES, *table.shape).astype(np.float64))
    resampled = resampled[np.isfinite(resampled)]
    bounds = np.quantile(resampled, [0.025, 0.975]) if len(resampled) else np.full(2, np.nan)
    return RaterAgreement(
        n, share, low, high, float(_kappa(table[None])[0]), float(bounds[0]), float(bounds[1])
    )


def _kappa(tables: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kappa of each confusion table, shape (m, k, k); NaN if chance alone gives full agreement."""
    n = tables.sum(axis=(1, 2))
    observed = np.trace(tables, axis1=1, axis2=2) / n
    chance = (tables.sum(axis=1) * tables.sum(axis=2)).sum(axis=1) / n**2
    kappa = np.full(len(tables), np.nan)
    defined = chance < 1.0
    kappa[defined] = (observed[defined] - chance[defined]) / (1.0 - chance[defined])
    return kappa
