"""Reference of streams: possible means, with the evidence against each."""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.bets import UNIT_BETS, mean_wealth

Floats = NDArray[np.float64]
Side = Literal["up", "down"]

LEVELS = 8
"""Number of steps on which possible reference means lie; more steps detect changes earlier."""
_HALVINGS = 20


@dataclass(frozen=True, slots=True)
class Reference:
    """Possible means of each stream, from counts of its reference.

    A true mean above ``means[..., g - 1]`` is refuted by the reference's own counts with evidence
    ``evidence[g]``; a mean below the first with evidence 1/2. A change is proven only if counts of the
    reference and of the stream *together* refute every possible mean, so the bound includes the reference's
    estimation error, at no cost in alpha.

    Parameters
    ----------
    means
        Rising in the last axis, in (0, 1), shape (streams, seasons, levels).
    evidence
        Logarithm of the evidence, shape (levels + 1,).
    spread
        Weighted standard deviation of an observation, shape (streams, seasons).
    noise
        Mean of ``weight² (value - mean)²`` divided by that of the weights, which is the variance if all
        weights are equal; shape (streams, seasons).

    References
    ----------
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2023 (the
    evidence against one mean); Ramdas et al., "Admissible anytime-valid sequential inference must rely on
    nonnegative martingales", 2020 (an infimum over a composite null is an e-process).
    """

    means: Floats
    evidence: Floats
    spread: Floats
    noise: Floats

    @classmethod
    def of(
        cls,
        counts: NDArray[np.generic],
        values: Floats,
        *,
        weight: Floats | None = None,
        strength: float = 12.0,
        side: Side = "up",
    ) -> Self:
        """Reference from counts.

        Parameters
        ----------
        counts
            Observations per stream, season and value, shape (streams, seasons, values).
        values
            Possible values of an observation, in [0, 1], shape (values,): 0 and 1 for a rate, ranks of fixed
            bins for a column.
        weight
            Weight relative to the largest one, in (0, 1], shape (values,); None for equal weights.
        strength
            Largest evidence that will be needed, in nats, such as log(streams / alpha).
        side
            Direction of the change to detect; for ``"down"`` all means are those of ``1 - values``.

        Raises
        ------
        ValueError
            If shapes differ, a value or weight is out of range, or a season has no observation.
        """
        own = np.ones(len(values)) if weight is None else np.asarray(weight, dtype=np.float64)
        counted = np.asarray(counts, dtype=np.float64)
        _check(counted, values, own)
        seen = values if side == "up" else 1.0 - values
        mean, spread, noise = moments(counted, seen, own)
        seasons = counted.shape[1]
        top = strength + np.log(2.0 * seasons) + 0.5
        levels = np.linspace(np.sqrt(2.0 * top) / LEVELS, np.sqrt(2.0 * top), LEVELS) ** 2 / 2.0
        means = _invert(counted, 1.0 - seen, own, levels, mean, spread)
        evidence = np.log(0.5 + 0.5 * np.exp(np.append(-np.inf, levels)) / seasons)
        return cls(means, evidence, spread, noise)


def log_evidence(counts: Floats, values: Floats, weight: Floats, mean: Floats) -> Floats:
    r"""Logarithm of the evidence that observations have a mean above ``mean``.

    The mean over bets :math:`b` of :math:`\prod_i (1 + b w_i (v_i - m) / m)`: a martingale if the mean is m,
    with expectation at most 1 if it is below.

    Parameters
    ----------
    counts
        Number of observations by value, shape (..., values).
    mean
        In (0, 1), shape (...).

    Returns
    -------
    ndarray
        Shape (...).
    """
    gain = (weight * (values / mean[..., None] - 1.0))[..., None] * UNIT_BETS
    return mean_wealth(np.einsum("...v,...vb->...b", counts, np.log1p(gain)))


def moments(counts: Floats, values: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, spread and noise of counts (see :class:`Reference`), each of shape (...).

    ``counts`` has shape (..., values).
    """
    total = counts @ weight
    mean = counts @ (weight * values) / total
    away = (values - mean[..., None]) ** 2
    least = 1.0 / (2.0 * counts.sum(axis=-1) + 2.0)  # a rate of 0 is known to this only
    least = least * (1.0 - least)
    spread = np.sqrt(np.maximum((counts * weight * away).sum(axis=-1) / total, least))
    noise = np.maximum((counts * weight**2 * away).sum(axis=-1) / total, least * weight.min())
    return mean, spread, noise


def _invert(
    counts: Floats, values: Floats, weight: Floats, levels: Floats, mean: Floats, spread: Floats
) -> Floats:
    """Smallest means that each level of evidence refutes as too high, shape (streams, seasons, levels)."""

    def is_refuted(mean: Floats) -> NDArray[np.bool_]:
        inside = np.clip(1.0 - mean, 1e-12, 1.0 - 1e-12)
        return np.asarray(log_evidence(counts[..., None, :], values, weight, inside) >= levels)

    rows = counts.sum(axis=-1, keepdims=True)
    guess = 4.0 * np.sqrt(2.0 * levels) * spread[..., None] / np.sqrt(rows) + 8.0 * (levels + 1.0) / rows
    low = np.repeat(mean[..., None], len(levels), axis=-1)
    high = np.minimum(low + guess / weight.min(), 1.0)
    high = np.where(is_refuted(high), high, 1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        refuted = is_refuted(middle)
        low, high = np.where(refuted, low, middle), np.where(refuted, middle, high)
    return np.clip(high, 1e-9, 1.0 - 1e-9)


def _check(counts: Floats, values: Floats, weight: Floats) -> None:
    if (
        counts.ndim != 3
        or values.ndim != 1
        or counts.shape[-1] != len(values)
        or values.shape != weight.shape
    ):
        raise ValueError(
            "counts of shape (streams, seasons, values) with one value and one weight per column expected, "
            f"got counts {counts.shape}, values {values.shape} and weights {weight.shape}"
        )
    if not ((values >= 0) & (values <= 1)).all() or not ((weight > 0) & (weight <= 1)).all():
        raise ValueError(
            f"values in [0, 1] and weights in (0, 1] expected, got {values.min()} to {values.max()} and "
            f"{weight.min()} to {weight.max()}"
        )
    if not (counts >= 0).all() or not (counts.sum(axis=-1) > 0).all():
        stream, season = np.argwhere(~(counts.sum(axis=-1) > 0))[0] if (counts >= 0).all() else (0, 0)
        raise ValueError(
            f"the reference of stream {stream} has no observation in season {season}: a mean to compare with "
            "needs at least one"
        )
