"""``select``: which records to label when labels cost."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .adaptive import Adaptive
from .badge import Badge, Gradients
from .bal import bal_shares
from .flagged import Flagged
from .order import Ordered, Shuffled
from .state import SelectionState

Policy = Literal["adaptive", "uniform", "bal", "badge", "uncertainty", "random"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
Fallback = Literal["random", "uncertainty"]
POLICY = -1
"""Reason of a pick for which no assertion was asked."""
AUDIT = -2
"""Reason of a pick of the uniform audit sample."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen records in order of choice, and why.

    Attributes
    ----------
    rows
        Row numbers, shape (chosen,).
    reason
        Index of the assertion for which the record was drawn, -1 when none was asked, -2 for the audit
        sample, shape (chosen,).
    probability
        Probability with which this draw, policy and audit together, picked the record among those left, in
        (0, 1], shape (chosen,).
    population
        Records left to each draw, shape (chosen,).
    floor
        Least probability that any of them had in this draw, times ``population``: the audit share, or 1.0
        once the policy had nothing left. The three give the weights of
        :func:`~outrider.assertions.statistics.estimation.selection_weights`.
    """

    rows: Rows
    reason: Rows
    probability: Floats
    population: Rows
    floor: Floats

    @property
    def audit(self) -> Bools:
        """Mask of the picks in the uniform audit sample."""
        return np.asarray(self.reason == AUDIT)


class Sampler(Protocol):
    """Policy in one round."""

    def floor(self, population: int) -> float | None:
        """Least probability of the ``population`` left, or None without any."""

    def draw(self, rng: np.random.Generator) -> tuple[int, int] | None:
        """Row and assertion (-1 without) of the next pick, else None."""

    def probability(self, row: int) -> float:
        """Probability that the next draw picks ``row``."""

    def remove(self, rows: Rows) -> None:
        """Rows that may no longer be drawn."""

    def pick(self, row: int) -> None:
        """A row was picked, here or for the audit."""


def select(
    severities: ArrayLike,
    *,
    budget: int,
    policy: Policy = "adaptive",
    seed: int = 0,
    state: SelectionState | None = None,
    labelled: Bools | None = None,
    blocked: Bools | None = None,
    groups: NDArray[np.object_] | None = None,
    uncertainty: ArrayLike | None = None,
    embeddings: NDArray[np.floating] | None = None,
    probabilities: NDArray[np.floating] | None = None,
    audit_share: float = 0.1,
    fallback: Fallback = "random",
) -> Selection:
    """Choose up to ``budget`` records to label.

    Parameters
    ----------
    severities
        Severity per record and assertion, shape (records, assertions), >= 0; 0.0 did not fire.
    policy
        ``adaptive`` (see :class:`Adaptive`), ``bal`` (see :func:`bal_shares`), ``badge`` (see
        :class:`Badge`), ``uniform``: an assertion with equal probability, then one of its records in
        proportion to its severity rank; ``uncertainty``: the least sure first; ``random``: all alike.
    seed
        With the number of rounds in ``state`` it settles every draw.
    state
        Earlier rounds, and this one observed: ``adaptive`` reads the labels bought, ``bal`` the fires.
    labelled
        Records that have a label: never chosen, nor (but for the audit) a record of the same group.
    blocked
        Records that only the audit may choose.
    groups
        A policy picks at most one record of each group (None is no group): near-duplicates teach little.
    uncertainty
        Per record, higher is less sure: needed by ``uncertainty``.
    embeddings, probabilities
        Inputs of the model's last layer, shape (records, width), and class probabilities, shape (records,
        classes): needed by ``badge``, used by ``adaptive``.
    audit_share
        Share of the draws that take any unlabelled record alike, whatever fired: what makes estimates from
        these labels honest (:mod:`outrider.assertions.statistics.estimation`). A policy that has nothing
        left is all audit; with 0.0 the round ends there, and its labels are no sample of anything.
    fallback
        What ``bal`` does in a round in which no assertion's fires fell.

    Returns
    -------
    Selection
        ``budget`` records while there are as many; without an audit fewer when the policy's run out.

    Examples
    --------
    >>> severities = np.array([[0.0, 0.0], [0.9, 0.0], [0.2, 0.0], [0.0, 0.4]])
    >>> found = select(severities, budget=2, policy="uniform", audit_share=0.0)
    >>> bool((severities[found.rows, found.reason] > 0).all())
    True
    """
    scores = np.asarray(severities, dtype=np.float64)
    _check(scores, budget, policy, audit_share)
    rng = np.random.default_rng([seed, 0 if state is None else len(state.rounds)])
    unsure = _column("uncertainty", uncertainty, len(scores))
    gradients = None
    if embeddings is not None and probabilities is not None:
        gradients = Gradients(embeddings, probabilities)
        if len(gradients.squared_norm) != len(scores):
            raise ValueError(f"embeddings must have {len(scores)} rows, one per record")
    sampler = _sampler(policy, scores, state or SelectionState(), rng, unsure, gradients, fallback)
    left = np.ones(len(scores), dtype=np.bool_)
    same = _Groups(groups, len(scores))
    if labelled is not None:
        left[labelled] = False
        sampler.remove(same.of(np.flatnonzero(labelled)))
    if blocked is not None:
        sampler.remove(np.flatnonzero(blocked))
    return _run(sampler, left, same, _audits(budget, audit_share, rng), audit_share, rng)


def _run(
    sampler: Sampler,
    left: Bools,
    same: "_Groups",
    audits: Bools,
    audit_share: float,
    rng: np.random.Generator,
) -> Selection:
    """Draws of the policy and of the audit in random turn, each with the probability of the mixture.

    The turn is random so that every draw could have been either: then the probability of a pick is known
    without asking which of the two took it, and no record is less likely than ``audit_share`` of an even
    draw. Once the policy has nothing left, every draw is even.
    """
    in_turn = iter(rng.permutation(np.flatnonzero(left)).tolist() if audit_share else ())
    population = int(left.sum())
    picks: list[tuple[int, int, float, int, float]] = []
    for is_audit in audits.tolist():
        least = sampler.floor(population) if population else None
        share = 1.0 if least is None else audit_share
        found = _next_audit(in_turn, left) if is_audit or least is None else sampler.draw(rng)
        if found is None:
            break
        row, reason = found
        probability, floor = share / population, share
        if least is not None:
            probability += (1.0 - share) * sampler.probability(row)
            floor += (1.0 - share) * least * population
        picks.append((row, reason, probability, population, floor))
        left[row] = False
        population -= 1
        sampler.pick(row)
        sampler.remove(same.of(np.array([row])))
    rows, reasons, chances, populations, floors = zip(*picks, strict=True) if picks else [()] * 5
    return Selection(
        np.array(rows, dtype=np.intp),
        np.array(reasons, dtype=np.intp),
        np.array(chances, dtype=np.float64),
        np.array(populations, dtype=np.intp),
        np.array(floors, dtype=np.float64),
    )


def _next_audit(in_turn: Iterator[int], left: Bools) -> tuple[int, int] | None:
    return next(((row, AUDIT) for row in in_turn if left[row]), None)


def _audits(budget: int, share: float, rng: np.random.Generator) -> Bools:
    """Mask of the draws that are audits: the share of the budget, a fraction rounded by chance."""
    positions = np.zeros(budget, dtype=np.bool_)
    count = min(int(share * budget + rng.random()), budget) if share else 0
    positions[rng.choice(budget, size=count, replace=False)] = True
    return positions


def _sampler(
    policy: Policy,
    severities: Floats,
    state: SelectionState,
    rng: np.random.Generator,
    uncertainty: Floats | None,
    gradients: Gradients | None,
    fallback: Fallback,
) -> Sampler:
    records, assertions = severities.shape
    if policy == "adaptive":
        return Adaptive(severities, state, rng, uncertainty=uncertainty, gradients=gradients)
    if policy == "badge":
        if gradients is None:
            raise ValueError("policy 'badge' needs embeddings= and probabilities=")
        return Badge(gradients)
    if policy == "uniform":
        return Flagged(severities, np.ones(assertions))
    if policy == "bal":
        shares = bal_shares(state, assertions)
        if shares is not None:
            return Flagged(severities, shares)
        policy = fallback
    if policy == "uncertainty":
        if uncertainty is None:
            raise ValueError(f"policy 'uncertainty' needs uncertainty= of shape ({records},)")
        return Ordered(np.argsort(-uncertainty, kind="stable"))
    return Shuffled(rng.permutation(records))


def _check(severities: Floats, budget: int, policy: str, audit_share: float) -> None:
    if severities.ndim != 2:
        raise ValueError(f"severities must have shape (records, assertions), got {severities.shape}")
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    if budget < 0:
        raise ValueError(f"budget must be >= 0, got {budget}")
    if not 0.0 <= audit_share <= 1.0:
        raise ValueError(f"audit_share must be in [0, 1], got {audit_share}")


def _column(name: str, values: ArrayLike | None, records: int) -> Floats | None:
    if values is None:
        return None
    column = np.asarray(values, dtype=np.float64)
    if column.shape != (records,):
        raise ValueError(f"policy 'uncertainty' needs {name}= of shape ({records},), got {column.shape}")
    return column


class _Groups:
    """Rows of the same group, found without a pass per pick."""

    def __init__(self, groups: NDArray[np.object_] | None, records: int) -> None:
        if groups is not None and len(groups) != records:
            raise ValueError(f"groups must have one value per record, {records}, got {len(groups)}")
        self._code: NDArray[np.int64] | None = None
        if groups is None:
            return
        import pandas as pd

        self._code, _ = pd.factorize(np.asarray(groups, dtype=object))  # -1 is None
        self._order = np.argsort(self._code, kind="stable")
        self._sorted = self._code[self._order]

    def of(self, rows: Rows) -> Rows:
        """The rows and all of their groups."""
        if self._code is None:
            return rows
        codes = np.unique(self._code[rows])
        codes = codes[codes >= 0]
        starts = np.searchsorted(self._sorted, codes, side="left")
        ends = np.searchsorted(self._sorted, codes, side="right")
        mates = [self._order[start:end] for start, end in zip(starts, ends, strict=True)]
        return np.unique(np.concatenate([rows, *mates]))
