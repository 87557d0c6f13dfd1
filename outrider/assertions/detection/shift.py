"""Shift of a bounded mean against an estimated reference."""

import numpy as np
from numpy.typing import NDArray

from .reference import Reference, Side

Floats = NDArray[np.float64]

EFFECTS = 0.1 * 2.0 ** np.arange(4)
"""Shifts that bets assume, in standard deviations of an observation."""
_SIDES: tuple[Side, Side] = ("up", "down")
_RICHEST = 1e200


class ShiftDetector:
    """Detector of mean shifts in many streams, updated block by block.

    **Null**: in each block, given the past, the observations of a stream are independent, and their mean
    differs by at most ``floor`` from that of its reference (of the block's season), which is known from its
    counts only. **Guarantee**: the evidence of a stream, ``1 / horizon`` times the sum of the fortunes of
    bets that start at each onset, ever reaches 1 / alpha within ``horizon`` blocks with a probability of at
    most alpha; so does the mean over all streams (see :func:`~.select_alarms`). Beyond the horizon it is a
    Shiryaev-Roberts e-detector: false alarms are ``horizon / alpha`` blocks apart on average, at least.
    :meth:`restart` starts a new horizon.

    An entity must count once: give one observation per run of an entity (:func:`~.first_of_runs`).

    Parameters
    ----------
    counts
        Counts of the reference, shape (streams, seasons, values); one season if there are none.
    values, weight, strength
        As for :meth:`~.Reference.of`.
    horizon
        Blocks within which the chance of a false alarm is bounded, >= 1.
    floor
        Tolerated shift of the mean, in the unit of the values, >= 0; one for all streams, or shape
        (streams,).

    References
    ----------
    Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change detection", NEJSDS
    2024, section 2.3; Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting",
    JRSS B 2023. For the unknown mean under the null see :class:`~.Reference`.

    Examples
    --------
    >>> import numpy as np
    >>> reference = np.array([[[9_500, 500]]])  # 5 % of 10,000
    >>> detector = ShiftDetector(reference, np.array([0.0, 1.0]), horizon=1_000)
    >>> for flagged in (4, 2, 5, 3):
    ...     evidence = detector.update(np.array([[64 - flagged, flagged]]))
    >>> bool(evidence[0] > np.log(100))
    False
    >>> for flagged in (14, 16, 12, 15):
    ...     evidence = detector.update(np.array([[64 - flagged, flagged]]))
    >>> bool(evidence[0] > np.log(100)), detector.sides().tolist()
    (True, ['up'])
    """

    def __init__(
        self,
        counts: NDArray[np.generic],
        values: Floats,
        *,
        horizon: int,
        weight: Floats | None = None,
        strength: float = 12.0,
        floor: Floats | float = 0.0,
    ) -> None:
        least = np.broadcast_to(np.asarray(floor, dtype=np.float64), len(counts))
        if horizon < 1 or (least < 0).any():
            raise ValueError(f"horizon >= 1 and floor >= 0 expected, got {horizon} and {least.min()}")
        own = np.ones(len(values)) if weight is None else weight
        self._log_horizon = float(np.log(horizon))
        tables: list[Floats] = []
        evidence: list[Floats] = []
        for side in _SIDES:
            reference = Reference.of(counts, values, weight=own, strength=strength, side=side)
            seen = values if side == "up" else 1.0 - values
            tables.append(log_gains(reference, seen, own, least))
            evidence.append(reference.evidence)
        self._log_gain = np.stack(tables)  # (sides, streams, seasons, values, levels, bets)
        self._evidence = np.stack(evidence)[:, None, :]  # (sides, 1, levels + 1)
        self._fortunes = np.zeros((2, len(counts), *self._log_gain.shape[-2:]))

    def update(self, counts: NDArray[np.generic], *, season: int = 0) -> Floats:
        """Logarithm of each stream's evidence after one more block.

        Parameters
        ----------
        counts
            Observations of the block per value, shape (streams, values); a stream without any stays
            unchanged.
        season
            Season of the block.

        Returns
        -------
        ndarray
            Shape (streams,).
        """
        seen = np.asarray(counts, dtype=np.float64)
        log_gain = np.einsum("kv,skvlb->sklb", seen, self._log_gain[:, :, season])
        with np.errstate(over="ignore"):
            self._fortunes = np.minimum((self._fortunes + 1.0) * np.exp(log_gain), _RICHEST)
        return self.evidence()

    def evidence(self) -> Floats:
        """Logarithm of each stream's evidence, shape (streams,)."""
        up, down = self._by_side()
        return np.asarray(np.logaddexp(up, down) - np.log(2.0))

    def sides(self) -> NDArray[np.str_]:
        """Direction with the larger evidence, ``up`` or ``down``, shape (streams,)."""
        up, down = self._by_side()
        return np.where(up >= down, "up", "down")

    def restart(self, streams: NDArray[np.bool_] | None = None) -> None:
        """Start a new horizon for some streams or all."""
        self._fortunes[:, slice(None) if streams is None else streams] = 0.0

    @property
    def fortunes(self) -> Floats:
        """State of the bets, shape (sides x streams x levels x bets,)."""
        return self._fortunes.ravel()

    @fortunes.setter
    def fortunes(self, state: Floats) -> None:
        self._fortunes = np.array(state, dtype=np.float64).reshape(self._fortunes.shape)

    def _by_side(self) -> Floats:
        """Log evidence by side, shape (sides, streams)."""
        with np.errstate(divide="ignore"):
            current = np.log(self._fortunes.mean(axis=-1)) - self._log_horizon
        joint = (self._evidence[..., :-1] + current).min(axis=-1)
        return np.asarray(np.minimum(joint, self._evidence[..., -1]))


def log_gains(reference: Reference, values: Floats, weight: Floats, floor: Floats) -> Floats:
    """Log gain of each bet, shape (streams, seasons, values, levels, bets)."""
    spread, noise = reference.spread[..., None], reference.noise[..., None]
    mean = np.clip(reference.means + floor[:, None, None], 1e-9, 1.0 - 1e-9)
    shift = EFFECTS * spread[..., None]
    stake = mean[..., None] * shift / (noise[..., None] + shift**2)
    bets = np.minimum(stake, 0.98)[..., None, :, :]  # (streams, seasons, 1, levels, bets)
    gain = weight[:, None] * (values[:, None] / mean[..., None, :] - 1.0)
    return np.log1p(gain[..., None] * bets)
