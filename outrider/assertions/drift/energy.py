"""Energy distance of vectors, and its test by a witness function."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .evidence import ChangeEvidence

Floats = NDArray[np.float64]
MOST = 2_000
"""Maximum number of vectors compared per window, evenly spaced."""
PARTS = 20
"""Number of stretches of a window; the witness function is estimated on every other one, tested on others."""


@dataclass(frozen=True, slots=True)
class EnergyDistance:
    """Energy distance of two samples.

    Attributes
    ----------
    distance
        In the unit of the vectors, >= 0; 0 for equal distributions.
    coefficient
        Distance divided by twice the mean distance between both samples, in [0, 1].
    """

    distance: float
    coefficient: float


def energy_distance(reference: Floats, current: Floats) -> EnergyDistance:
    r"""Energy distance of two samples of vectors.

    :math:`2 E|X-Y| - E|X-X'| - E|Y-Y'|`, without each vector's distance from itself.

    Parameters
    ----------
    reference, current
        Finite vectors, shapes (n, d) and (m, d), n and m >= 2; at most 2,000 of each are used.

    References
    ----------
    Székely and Rizzo, "Energy statistics: a class of statistics based on distances", Journal of Statistical
    Planning and Inference 2013, eq. 2.1 and section 2.3 (the coefficient of inhomogeneity).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> one, two = rng.normal(size=(2, 500, 4))
    >>> round(energy_distance(one, two).coefficient, 2), round(energy_distance(one, two + 1.0).coefficient, 2)
    (0.0, 0.19)
    """
    one, two = _few(reference), _few(current)
    between = float(_apart(one, two).mean())
    own = [float(_apart(each, each).sum()) / (len(each) * (len(each) - 1)) for each in (one, two)]
    distance = max(0.0, 2 * between - sum(own))
    return EnergyDistance(distance, distance / (2 * between) if between else 0.0)


def vector_evidence(reference: Floats, current: Floats, *, least: float) -> ChangeEvidence:
    """Evidence that two windows of vectors have different distributions.

    The witness function :math:`E|z-Y| - E|z-X|` is estimated on every other stretch of both windows and
    evaluated on the rest, where its mean differs by the energy distance. Its variance is that of the means of
    stretches, so that runs of similar records prove nothing.

    Parameters
    ----------
    reference, current
        Finite vectors, shapes (n, d) and (m, d), n and m >= 40.
    least
        Smallest square root of the coefficient that counts as drift.

    References
    ----------
    Kübler et al., "A witness two-sample test", AISTATS 2022. We use the witness function of the energy
    distance, and another variance.
    """
    from scipy.special import stdtr

    one, two = (np.array_split(_few(each), PARTS) for each in (reference, current))
    made = [np.concatenate(each[::2]) for each in (one, two)]
    means = [
        np.array(
            [float((_apart(part, made[1]).mean(1) - _apart(part, made[0]).mean(1)).mean()) for part in each]
        )
        for each in (one[1::2], two[1::2])
    ]
    distance = float(np.sqrt(energy_distance(reference, current).coefficient))
    spread = float(np.sqrt(sum(each.var(ddof=1) / len(each) for each in means)))
    apart = float(means[0].mean() - means[1].mean())
    chance = float(stdtr(PARTS // 2 - 1, -apart / spread)) if spread else float(apart <= 0)
    return ChangeEvidence("shape", distance, least, chance)


def _few(vectors: Floats) -> Floats:
    """At most ``MOST`` vectors, evenly spaced."""
    if len(vectors) <= MOST:
        return vectors
    return vectors[np.linspace(0, len(vectors) - 1, MOST).astype(np.int64)]


def _apart(one: Floats, two: Floats) -> Floats:
    """Pairwise distances, shape (n, m)."""
    squares = (one**2).sum(axis=1)[:, None] + (two**2).sum(axis=1)[None, :] - 2.0 * one @ two.T
    found: Floats = np.sqrt(np.maximum(squares, 0.0))
    return found
