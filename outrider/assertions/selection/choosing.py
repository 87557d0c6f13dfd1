"""``select``: choose the records to label under a budget."""

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
"""Reason of a pick by the policy without an assertion."""
AUDIT = -2
"""Reason of a pick of the uniform audit sample."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Selection:
    """Chosen records in order of choice, with reasons and probabilities.

    Attributes
    ----------
    rows
        Row numbers, shape (chosen,).
    reason
        Index of the assertion for which the record was drawn, -1 without an assertion, -2 for the audit
        sample, shape (chosen,).
    probability
        Probability that this draw, policy and audit together, picked the record among those left, in (0, 1],
        shape (chosen,).
    population
        Records left before each draw, shape (chosen,).
    floor
        Minimum probability of any record in this draw, times ``population``: the audit share, or 1.0 once the
        policy had no record left. The last three give the weights of
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
    """Protocol of a policy in one round."""

    def floor(self, population: int) -> float | None:
        """Minimum probability of the ``population`` left, or None without any."""

    def draw(self, rng: np.random.Generator) -> tuple[int, int] | None:
        """Row and assertion (-1 without) of the next pick, or None."""

    def probability(self, row: int) -> float:
        """Probability that the next draw picks ``row``."""

    def remove(self, rows: Rows) -> None:
        """Exclude rows from further draws."""

    def pick(self, row: int) -> None:
        """Update the policy after a pick, also one by the audit."""


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
        proportion to its severity rank; ``uncertainty``: the most uncertain records first; ``random``: all
        records with equal probability.
    seed
        Together with the number of rounds in ``state`` it determines all draws.
    state
        Earlier rounds, and the observations of this one: ``adaptive`` uses the labels, ``bal`` the fires.
    labelled
        Mask of records that have a label: never chosen, nor (except for the audit) a record of the same
        group.
    blocked
        Mask of records that only the audit may choose.
    groups
        Group of each record (None: no group); a policy picks at most one record per group, since
        near-duplicates add little.
    uncertainty
        Uncertainty per record, higher is less certain: required by ``uncertainty``.
    embeddings, probabilities
        Inputs of the model's last layer, shape (records, width), and class probabilities, shape (records,
        classes): needed by ``badge``, used by ``adaptive``.
    audit_share
        Share of the draws in which all unlabelled records have equal probability: it makes estimates from
        these labels unbiased (:mod:`outrider.assertions.statistics.estimation`). Once a policy has no record
        left, all draws are audit; with 0.0 the round ends there, and its labels represent no population.
    fallback
        Policy that replaces ``bal`` in a round in which no assertion's fires fell.

    Returns
    -------
    Selection
        ``budget`` records, or fewer if there are not enough (without an audit, for the policy).

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
    """Draws of policy and audit in random order, each with the probability of the mixture.

    The order is random so that every draw could have been either: the probability of a pick does not depend
    on which of the two took it, and no record has less than ``audit_share`` of a uniform probability. Once
    the policy has no record left, every draw is uniform.
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
    """Mask of the draws that are audits; a fractional number is rounded at random."""
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
    """Rows by group, indexed once for all picks."""

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
        """The rows and all rows of their groups."""
        if self._code is None:
            return rows
        codes = np.unique(self._code[rows])
        codes = codes[codes >= 0]
        starts = np.searchsorted(self._sorted, codes, side="left")
        ends = np.searchsorted(self._sorted, codes, side="right")
        mates = [self._order[start:end] for start, end in zip(starts, ends, strict=True)]
        return np.unique(np.concatenate([rows, *mates]))
