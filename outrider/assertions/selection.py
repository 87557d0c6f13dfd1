"""Which records to label when labels cost: policies over assertion severities."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Policy = Literal["uniform", "uncertainty", "random"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen records in order of choice, and why.

    Attributes
    ----------
    rows
        Row numbers, shape (chosen,).
    reason
        Index of the assertion for which the record was drawn, -1 when none was asked, shape (chosen,).
    probability
        Probability with which this draw picked the record among those left, in (0, 1], shape (chosen,).
    """

    rows: NDArray[np.intp]
    reason: NDArray[np.intp]
    probability: NDArray[np.float64]


def select(
    severities: NDArray[np.float64],
    *,
    budget: int,
    policy: Policy = "uniform",
    seed: int = 0,
    uncertainty: NDArray[np.float64] | None = None,
    groups: NDArray[np.object_] | None = None,
) -> Selection:
    """Choose up to ``budget`` records to label.

    Parameters
    ----------
    severities
        Severity per record and assertion, shape (records, assertions), >= 0; 0.0 did not fire.
    policy
        ``uniform``: draw an assertion with equal probability among those that still have candidates, then
        one of its records with probability proportional to its severity rank. ``uncertainty``: highest
        ``uncertainty`` first. ``random``: every record alike, fired or not.
    uncertainty
        Per record, for ``uncertainty``; higher is less sure, shape (records,).
    groups
        At most one record of each group is chosen (None is no group): near-duplicate frames teach little.

    Returns
    -------
    Selection
        Fewer than ``budget`` records when the candidates run out.

    References
    ----------
    Kang et al., "Model Assertions for Monitoring and Improving ML Models", MLSys 2020, §3 ("uniform" is the
    uniform-from-assertions baseline there, with the severity-rank sampling of BAL inside an assertion).
    """
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    if budget < 0:
        raise ValueError(f"budget must be >= 0, got {budget}")
    records = len(severities)
    if policy == "uncertainty" and (uncertainty is None or len(uncertainty) != records):
        raise ValueError(f"policy 'uncertainty' needs uncertainty= of shape ({records},)")
    rng = np.random.default_rng(seed)
    free = np.ones(records, dtype=np.bool_)
    chosen: list[tuple[int, int, float]] = []
    members = _members(groups)
    scores = np.zeros(records) if uncertainty is None else np.asarray(uncertainty, dtype=np.float64)
    while len(chosen) < budget and free.any():
        pick = _draw(severities, free, policy, scores, rng)
        if pick is None:
            break
        chosen.append(pick)
        row = pick[0]
        free[row] = False
        if groups is not None and groups[row] is not None:
            free[members[groups[row]]] = False
    rows, reason, probability = zip(*chosen, strict=True) if chosen else ((), (), ())
    return Selection(
        np.array(rows, dtype=np.intp),
        np.array(reason, dtype=np.intp),
        np.array(probability, dtype=np.float64),
    )


def _draw(
    severities: NDArray[np.float64],
    free: NDArray[np.bool_],
    policy: Policy,
    uncertainty: NDArray[np.float64],
    rng: np.random.Generator,
) -> tuple[int, int, float] | None:
    candidates = np.flatnonzero(free)
    if policy == "random":
        return int(rng.choice(candidates)), -1, 1.0 / len(candidates)
    if policy == "uncertainty":
        return int(candidates[np.argmax(uncertainty[candidates])]), -1, 1.0
    left = severities[candidates] > 0
    live = np.flatnonzero(left.any(axis=0))
    if not len(live):
        return None
    code = int(rng.choice(live))
    fired = candidates[left[:, code]]
    # Rank 1 is the least severe: weights grow linearly with the rank, as in BAL.
    weights = np.argsort(np.argsort(severities[fired, code], kind="stable"), kind="stable") + 1.0
    weights /= weights.sum()
    index = int(rng.choice(len(fired), p=weights))
    return int(fired[index]), code, float(weights[index] / len(live))


def _members(groups: NDArray[np.object_] | None) -> dict[object, list[int]]:
    members: dict[object, list[int]] = {}
    for row, group in enumerate(groups if groups is not None else ()):
        members.setdefault(group, []).append(row)
    return members
