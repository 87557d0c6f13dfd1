"""Group metrics from counts of answers and labels over time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.group_rates import EntitySums, Limits, Sums, shares, too_few

from .fairness import metrics_of_sums
from .group_figures import LEAST_ROWS, GroupMetrics, GroupRate, Metric

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
GapFigure = tuple[NDArray[np.intp], Callable[[float], Limits]]


@dataclass(frozen=True, slots=True)
class GroupCells:
    """Counts of records by group, answer and label; arrays of shape (cells,).

    Attributes
    ----------
    group
        Index of the group.
    is_labelled
        True for counts of labelled records; False for counts of all records, labelled ones included.
    is_selected, is_positive, is_right
        The answer is the positive class; the label is; the answer equals the label.
    records, weight, squares
        Number of records, sum of weights and sum of squared weights.
    entities
        Number of distinct entities per minute and answer, over all records; 0 for labelled counts.
    """

    group: NDArray[np.intp]
    is_labelled: Bools
    is_selected: Bools
    is_positive: Bools
    is_right: Bools
    records: Floats
    entities: Floats
    weight: Floats
    squares: Floats

    def take(self, cells: NDArray[np.intp] | Bools) -> "GroupCells":
        """Subset of the cells."""
        return GroupCells(*(getattr(self, name)[cells] for name in self.__slots__))

    def joined(self, other: "GroupCells") -> "GroupCells":
        """Cells of both, concatenated."""
        names = self.__slots__
        return GroupCells(*(np.concatenate([getattr(self, one), getattr(other, one)]) for one in names))


def counted_metrics(
    cells: GroupCells, groups: Sequence[str], *, by: Sequence[str], per_entity: Floats | None = None
) -> GroupMetrics:
    """Group metrics from counts, as :func:`~outrider.behavioral_tests.group_metrics` from records.

    Rates equal those of the records. If entities have several records, intervals count each entity as one
    observation per minute, as if all its records were equal: wider than those of ``group_metrics``, which
    estimates their correlation, if each entity occurs in a single minute.

    Examples
    --------
    >>> none, one = np.zeros(4, dtype=bool), np.ones(4)
    >>> cells = GroupCells(
    ...     np.array([0, 0, 1, 1]), none, np.array([True, False] * 2), none, none,
    ...     one * [20, 80, 60, 40], one * [20, 80, 60, 40], one * [20, 80, 60, 40], one * [20, 80, 60, 40])
    >>> found = counted_metrics(cells, ["sex=f", "sex=m"], by=["sex"])
    >>> [(rate.group, rate.metric, rate.value) for rate in found.rates]
    [('sex=f', 'selection_rate', 0.2), ('sex=m', 'selection_rate', 0.6)]
    """
    sums = _sums_by_metric(cells, len(groups), per_entity)
    return metrics_of_sums(by, dict(zip(groups, _rows(cells, len(groups)), strict=True)), sums)


def stepped_metrics(
    cells: GroupCells,
    steps: NDArray[np.intp],
    groups: Sequence[str],
    *,
    by: Sequence[str],
    per_entity: Floats | None = None,
) -> dict[int, GroupMetrics]:
    """Group metrics of each step with cells. Each as :func:`counted_metrics` of that step's cells."""
    size = len(groups)
    known, place = np.unique(steps, return_inverse=True)
    stacked = replace(cells, group=place.ravel() * size + cells.group)
    each = None if per_entity is None else np.tile(per_entity, len(known))
    sums = _sums_by_metric(stacked, size * len(known), each, steps=len(known))
    rates: list[list[GroupRate]] = [[] for _ in known]
    gaps: list[dict[Metric, GapFigure]] = [{} for _ in known]
    for metric, one in sums.items():
        counted = np.where(too_few(one), 0, one.rows).astype(np.intp).reshape(-1, size)
        many = (counted >= LEAST_ROWS).sum(axis=1)
        pairs = np.maximum(many * (many - 1) // 2, 1)
        narrow = shares(one)
        wide = shares(one, confidence=np.repeat(1.0 - 0.05 / pairs, size))
        columns = (*narrow, one.rows)
        for at in range(len(known)):
            own = slice(at * size, (at + 1) * size)
            rates[at] += [
                GroupRate(group, metric, value, low, high, int(n))
                for group, value, low, high, n in zip(
                    groups, *(column[own].tolist() for column in columns), strict=True
                )
            ]
            gaps[at][metric] = counted[at], partial(_given, Limits(*(column[own] for column in wide)))
    rows = np.array(_rows(stacked, size * len(known))).reshape(-1, size).tolist()
    return {
        int(step): GroupMetrics(
            tuple(by), dict(zip(groups, rows[at], strict=True)), tuple(rates[at]), gaps[at]
        )
        for at, step in enumerate(known.tolist())
    }


def _given(limits: Limits, confidence: float) -> Limits:  # noqa: ARG001 - worked out for that of the gap
    return limits


def _rows(cells: GroupCells, groups: int) -> list[int]:
    """Number of records of each group."""
    own = cells.take(~cells.is_labelled)
    found: list[int] = np.bincount(own.group, weights=own.records, minlength=groups).astype(int).tolist()
    return found


def _sums_by_metric(
    cells: GroupCells, groups: int, per_entity: Floats | None, *, steps: int = 1
) -> dict[Metric, Sums]:
    """Sums of each metric that the cells allow; groups of consecutive steps follow each other."""
    everything, labelled = cells.take(~cells.is_labelled), cells.take(cells.is_labelled)
    rows = np.bincount(everything.group, weights=everything.records, minlength=groups)
    entities = np.bincount(everything.group, weights=everything.entities, minlength=groups)
    ratio = rows / np.where(entities > 0, entities, np.maximum(rows, 1.0))
    sums: dict[Metric, Sums] = {}
    if len(everything.group):
        sums["selection_rate"] = _sums(everything, everything.is_selected, groups, ratio, steps)
    if len(labelled.group):
        ratio = ratio if per_entity is None else per_entity
        right, selected, positive = labelled.is_right, labelled.is_selected, labelled.is_positive
        of_labels: tuple[tuple[Metric, Bools, Bools], ...] = (
            ("tpr", selected, positive),
            ("fpr", selected, ~positive),
            ("ppv", positive, selected),
            ("accuracy", right, np.ones(len(right), dtype=np.bool_)),
        )
        for metric, hit, within in of_labels:
            sums[metric] = _sums(labelled.take(within), hit[within], groups, ratio, steps)
    return sums


def _sums(cells: GroupCells, hit: Bools, groups: int, per_entity: Floats, steps: int) -> Sums:
    """Sums by group; ``per_entity`` records count as one."""
    terms = (cells.records, cells.weight, cells.squares, cells.weight * hit, cells.squares * hit)
    rows, weight, weight2, hits, hits2 = (
        np.bincount(cells.group, weights=term, minlength=groups).astype(np.float64) for term in terms
    )
    # The mean weight of the heaviest cell, by weight: of records of one weight that very weight.
    most = np.zeros(steps)
    size = groups // steps
    np.maximum.at(most, cells.group // size, cells.squares / np.where(cells.weight > 0, cells.weight, 1.0))
    heaviest = np.repeat(most, size)
    if (per_entity <= 1.0 + 1e-9).all():
        return Sums(rows, weight, weight2, hits, hits2, heaviest)
    many = np.maximum(per_entity, 1.0)
    entities = EntitySums(rows / many, many * weight2, many * hits2, many * hits2, many * heaviest)
    return Sums(rows, weight, weight2, hits, hits2, heaviest, entities)
