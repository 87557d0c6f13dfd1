"""BAL: labels go to assertions whose fires fell after earlier labels."""

import numpy as np
from numpy.typing import NDArray

from .state import SelectionState

EXPLORATION = 0.25
"""Share of the draws spread evenly over the assertions."""
LEAST_REDUCTION = 0.01
"""Minimum relative fall in fires; if no assertion reaches it, the round falls back."""


def marginal_reductions(state: SelectionState) -> NDArray[np.float64]:
    """Relative fall in each assertion's fires over the last two rounds.

    0.0 where fires rose. Fires are counted per record, so that changing traffic volume does not matter.
    """
    before, now = state.rounds[-2:]
    old = np.array(before.fires) / max(before.records, 1)
    new = np.array(now.fires) / max(now.records, 1)
    fell = np.divide(old - new, old, out=np.zeros(len(old)), where=old > 0)
    return np.maximum(fell, 0.0)


def bal_shares(state: SelectionState, assertions: int) -> NDArray[np.float64] | None:
    """Probability of each assertion, or None when this round falls back.

    References
    ----------
    Kang et al., "Model Assertions for Monitoring and Improving ML Models", MLSys 2020, algorithm 2 and §3:
    the first round is uniform over assertions; later ones draw assertion m in proportion to its marginal
    reduction r_m, 25 % of the budget uniformly; if every r_m is below 1 %, the round uses a baseline.
    """
    even = np.full(assertions, 1.0 / max(assertions, 1))
    if len(state.rounds) < 2:
        return even
    reductions = marginal_reductions(state)
    if not (reductions >= LEAST_REDUCTION).any():
        return None
    return np.asarray(EXPLORATION * even + (1.0 - EXPLORATION) * reductions / reductions.sum())
