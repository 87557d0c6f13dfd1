"""Severity per case from answered examples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .examples import Examples
from .expect import Expectation, severities
from .expect.rule import Scope, reads, scope_of
from .outcome import Measure, Measured

Floats = NDArray[np.float64]
Aggregate: TypeAlias = Literal["all", "all_except_first", "any", "mean"] | Callable[[Floats], float]
"""Aggregation of a case's examples into one verdict: ``all`` takes the worst; ``all_except_first`` the worst
without the first judged one (as in CheckList, for rules that also judge the original; met if there is no
other); ``any`` the best; ``mean``; or a function of the applicable severities."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Severity per case: 0.0 met, > 0 violated, NaN not applicable.

    ``worst`` is the row of each case with the largest severity, -1 if none is violated. Both have shape
    (cases,).
    """

    severity: Floats
    worst: NDArray[np.intp]
    measures: tuple[Measure, ...] = ()


def judge(examples: Examples, expectation: Expectation, aggregate: Aggregate = "all") -> Verdicts:
    """Verdicts on answered examples.

    Examples that are not applicable are dropped before aggregation; a case with none left is not applicable
    (CheckList's documentation, ``Expect.aggregate``).
    """
    if examples.batch.rows == 0:  # no answers for an expectation to look at
        return Verdicts(np.full(examples.cases, np.nan), np.full(examples.cases, -1, dtype=np.intp))
    match scope_of(expectation):
        case "row":
            return _by_rows(examples, expectation, aggregate, np.flatnonzero(examples.is_copy))
        case "single" | "pairwise":
            return _by_rows(examples, expectation, aggregate, np.arange(examples.batch.rows))
        case "case":
            batch, case = examples.in_order()
            found = severities(expectation(batch, case), examples.cases)  # type: ignore[arg-type]  # another scope
            return Verdicts(found, _rows_of(examples))
        case _:
            return _of_suite(expectation(examples.batch))  # type: ignore[call-arg]  # another scope


def _by_rows(
    examples: Examples, expectation: Expectation, aggregate: Aggregate, rows: NDArray[np.intp]
) -> Verdicts:
    case = examples.case[rows]
    batch = _narrow(examples.batch, expectation)
    after = batch if len(rows) == batch.rows else batch.take(rows)
    original = _compared_rows(examples, scope_of(expectation))
    before = after if original is None else batch.take(original[case])
    severity = severities(expectation(before, after), len(rows))
    found = _aggregated(severity, case, examples.cases, aggregate)
    worst = np.full(examples.cases, -1, dtype=np.intp)
    violated = np.flatnonzero(severity > 0)
    order = violated[np.argsort(severity[violated], kind="stable")]
    worst[case[order]] = rows[order]  # the last assignment, that of the largest severity, stays
    return Verdicts(found, worst)


def _compared_rows(examples: Examples, scope: Scope) -> NDArray[np.intp] | None:
    """Row that each example is compared with; None if examples are judged alone."""
    if scope == "pairwise" and examples.original is None:
        first = np.full(examples.cases, len(examples.case), dtype=np.intp)
        np.minimum.at(first, examples.case, np.arange(len(examples.case)))
        return first
    return None if scope == "single" else examples.original


def _narrow(batch: Batch, expectation: Expectation) -> Batch:
    """Batch with only the columns that a rule reads, so that texts and images are not copied needlessly."""
    if (read := reads(expectation)) is None:
        return batch
    names = [name for name in batch.names if name in read or name.startswith(("outputs.", "label."))]
    return Batch(batch.to_arrow().select(names), model=batch.model) if names else batch


def _aggregated(severity: Floats, case: NDArray[np.intp], cases: int, aggregate: Aggregate) -> Floats:
    found = np.full(cases, np.nan)
    if aggregate == "all":
        np.fmax.at(found, case, severity)
    elif aggregate == "all_except_first":
        known = np.flatnonzero(~np.isnan(severity))
        order = known[np.argsort(case[known], kind="stable")]
        first = np.diff(case[order], prepend=-1) != 0
        np.fmax.at(found, case[order], np.where(first, 0.0, severity[order]))
    elif aggregate == "any":
        np.fmin.at(found, case, severity)
    elif aggregate == "mean":
        known = ~np.isnan(severity)
        count = np.bincount(case[known], minlength=cases)
        total = np.bincount(case[known], weights=severity[known], minlength=cases)
        np.divide(total, count, out=found, where=count > 0)
    else:
        known = np.flatnonzero(~np.isnan(severity))
        order = known[np.argsort(case[known], kind="stable")]
        numbers, starts, sizes = np.unique(case[order], return_index=True, return_counts=True)
        for number, start, size in zip(numbers, starts, sizes, strict=True):
            found[number] = aggregate(severity[order[start : start + size]])
        found = severities(found, cases)
    return found


def _of_suite(verdict: Any) -> Verdicts:
    measured = verdict if isinstance(verdict, Measured) else Measured(verdict)
    return Verdicts(severities(np.array([measured.severity]), 1), np.array([-1]), measured.measures)


def _rows_of(examples: Examples) -> NDArray[np.intp]:
    """Row to show for each case: its last, in INV and DIR a copy."""
    rows = np.full(examples.cases, -1, dtype=np.intp)
    rows[examples.case] = np.arange(len(examples.case))
    return rows
